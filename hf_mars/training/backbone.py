"""One forward over both streams through TRL's fused LM head."""

import contextlib
from collections.abc import Generator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from .streams import Streams


__all__ = ["forward_backbone", "forward_streams"]


def forward_streams(
    model: nn.Module, base_model: PreTrainedModel, streams: Streams, is_scored: torch.Tensor, **kwargs
) -> Any:
    """
    Forward both streams, and score the given columns alone.

    Args:
        model (`nn.Module`): The model as the trainer wraps it.
        base_model ([`PreTrainedModel`]): The language model inside.
        streams ([`Streams`]): The batch.
        is_scored (`torch.BoolTensor` of shape `(batch_size, length)`): Columns that go through the LM head.
        kwargs: Passed on to the forward, such as `fused_lm_head=True`.

    Returns:
        The output of the forward, its fields of shape `(1, num_scored, ...)`.
    """
    attention_mask = streams.attention_mask(base_model.config.get_text_config(), base_model.dtype)
    with patched_backbone(base_model.base_model, attention_mask, streams.is_real, is_scored):
        return model(input_ids=streams.input_ids, position_ids=streams.position_ids, use_cache=False, **kwargs)


@contextlib.contextmanager
def patched_backbone(
    backbone: nn.Module, attention_mask: Any, is_real: torch.Tensor, is_scored: torch.Tensor
) -> Generator[None]:
    """
    Give the backbone a prepared attention mask, and take from it the scored columns, as one row.

    The mask goes in here and not through the model, which would hand it to the load-balancing loss of experts too:
    that one counts the real columns, padding left out.
    """

    def set_mask(module, args, kwargs):
        return args, {**kwargs, "attention_mask": attention_mask}

    def select(module, args, outputs):
        outputs.last_hidden_state = outputs.last_hidden_state[is_scored][None]
        router_logits = getattr(outputs, "router_logits", None)
        if router_logits is not None:
            outputs.router_logits = tuple(
                logits.view(*is_real.shape, -1)[is_real] for logits in router_logits if logits is not None
            )
        return outputs

    handles = [
        backbone.register_forward_pre_hook(set_mask, with_kwargs=True),
        backbone.register_forward_hook(select),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def forward_backbone(model: nn.Module, base_model: PreTrainedModel, **inputs) -> torch.Tensor:
    """
    Run the layers of a model alone, through whatever the trainer wraps it in.

    Args:
        model (`nn.Module`): The model as the trainer wraps it.
        base_model ([`PreTrainedModel`]): The language model inside.
        inputs: Of the layers: `input_ids`, `position_ids`, a prepared `attention_mask`, `cache`.

    Returns:
        `torch.Tensor` of shape `(batch_size, length, hidden_size)`: The last hidden states.
    """
    hidden_states = []

    # The inputs go in here: PEFT looks through the tokens that it is passed for those that activate an adapter.
    def set_inputs(module, args, kwargs):
        return (), {**kwargs, **inputs}

    def take(module, args, outputs):
        hidden_states.append(outputs.last_hidden_state)
        outputs.last_hidden_state = outputs.last_hidden_state[:1, :1]  # the head need not look at the others
        return outputs

    backbone = base_model.base_model
    handles = [
        backbone.register_forward_pre_hook(set_inputs, with_kwargs=True),
        backbone.register_forward_hook(take),
    ]
    try:
        model(use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return hidden_states[0]
