"""An adapter that acts on the masks of a window alone, on a model that stays what it was."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn.functional import linear
from transformers import PreTrainedModel


__all__ = ["GatedAdapter", "get_gated_adapter", "has_gated_adapter", "is_gated"]


def is_gated(peft_config: Any, mask_token_id: int) -> bool:
    """
    Whether an adapter acts on the mask columns alone, told from its configuration.

    Args:
        peft_config ([`~peft.PeftConfig`]): The configuration, as it is in `adapter_config.json` too.
        mask_token_id (`int`): Id of the mask token, in the entry `mars` of the same file.
    """
    return getattr(peft_config, "alora_invocation_tokens", None) == [mask_token_id]


class GatedAdapter:
    """
    The gated LoRA adapter that is active on a model, if any, while it decodes several tokens a forward.

    PEFT's own path picks columns out of every layer's input by a table and puts the results back, and it copies the
    whole matrix of embeddings to exchange one row. Where the columns are the last ones of all rows, a slice will do.
    So PEFT's layers are switched off meanwhile, and hooks on the layers inside add `B(A(x))`, and the mask token's
    row. Columns before the last ones get nothing: they are the base model's, to the bit.

    Args:
        model ([`PreTrainedModel`]): The language model inside.
    """

    def __init__(self, model: PreTrainedModel):
        self._model = ref(model)
        self._num_users, self._num_columns = 0, 0
        self._hooks = ExitStack()

    @contextmanager
    def attached(self) -> Generator[None]:
        """Look up which adapter is active, and stand in for PEFT inside. May be nested."""
        self._num_users += 1
        try:
            if self._num_users == 1:
                self._attach()
            yield
        finally:
            self._num_users -= 1
            if self._num_users == 0:
                self._hooks.close()

    @contextmanager
    def acting_on(self, num_columns: int) -> Generator[None]:
        """Inside, the adapter acts on the last columns of a forward, this many of each row."""
        self._num_columns = num_columns
        try:
            yield
        finally:
            self._num_columns = 0

    def _attach(self) -> None:
        model = self._model()
        if model is not None and has_gated_adapter(model):
            for layer in list(model.modules()):
                if hasattr(layer, "trainable_tokens_delta"):
                    self._replace(layer, self._get_row_exchange(layer))
                elif hasattr(layer, "lora_variant"):
                    self._replace(layer, self._get_addition(layer))

    def _replace(self, layer: Any, change: Callable[[torch.Tensor, torch.Tensor], None] | None) -> None:
        """Switch a layer of PEFT off, and have the outputs of the layer inside changed, until the hooks go."""
        self._hooks.callback(switch_on, layer, [parameter.requires_grad for parameter in layer.parameters()])
        layer.enable_adapters(False)
        if change is not None:
            handle = layer.get_base_layer().register_forward_hook(
                lambda base_layer, args, output: change(args[0], output) if self._num_columns else None
            )
            self._hooks.callback(handle.remove)

    def _get_addition(self, layer: Any) -> Callable[[torch.Tensor, torch.Tensor], None] | None:
        (name,) = layer.active_adapters
        if name not in layer.lora_A:
            return None
        lora_A, lora_B, scaling = layer.lora_A[name].weight, layer.lora_B[name], layer.scaling[name]
        weight, bias = lora_B.weight, lora_B.bias

        def add(states: torch.Tensor, output: torch.Tensor) -> None:
            # In one piece and in the dtype of the adapter: a third less time on a CPU than slices in bfloat16.
            states = states[:, -self._num_columns :].reshape(-1, states.shape[-1]).to(lora_A.dtype)
            output = output[:, -self._num_columns :]
            output.add_(linear(linear(states, lora_A), weight, bias).view(output.shape), alpha=scaling)

        return add

    def _get_row_exchange(self, layer: Any) -> Callable[[torch.Tensor, torch.Tensor], None] | None:
        (name,) = layer.active_adapters
        if not layer.token_indices.get(name):
            return None
        (row,) = layer.trainable_tokens_delta[name]
        row = row * getattr(layer.get_base_layer(), "embed_scale", 1.0)  # as Gemma's

        def exchange(tokens: torch.Tensor, output: torch.Tensor) -> None:
            output[:, -self._num_columns :] = row

        return exchange


def has_gated_adapter(model: PreTrainedModel) -> bool:
    """
    Whether the active PEFT adapter of a model is a gated one.

    Raises:
        `ValueError`: If it is not the only one that is active.
    """
    mars = getattr(model.config, "mars", None) or {}
    configs = getattr(model, "peft_config", {}) if mars else {}  # PEFT sets it on the model that it gives layers to
    names = {name for name, config in configs.items() if is_gated(config, mars["mask_token_id"])}
    if not names:
        return False
    layer: Any = next((module for module in model.modules() if hasattr(module, "lora_variant")), None)
    if layer is None or layer.disable_adapters:
        return False
    gated = [name in names for name in layer.active_adapters]
    if any(gated) and len(gated) > 1:
        raise ValueError(
            f"The adapters {list(layer.active_adapters)} are active together, and one of them acts on masks alone: "
            "choose one with `set_adapter`."
        )
    return any(gated)


def switch_on(layer: Any, requires_grad: list[bool]) -> None:
    layer.enable_adapters(True)  # which makes the adapter trainable
    for parameter, value in zip(layer.parameters(), requires_grad, strict=True):
        parameter.requires_grad_(value)


_adapters: "WeakKeyDictionary[PreTrainedModel, GatedAdapter]" = WeakKeyDictionary()


def get_gated_adapter(model: PreTrainedModel) -> GatedAdapter:
    """The one of a model; it lives as long as the model, and all that decode with the model share it."""
    return _adapters.setdefault(model, GatedAdapter(model))
