"""Adapters that act on the mask columns alone, on a model that stays what it was: PEFT's activated LoRA."""

import copy
import dataclasses
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.variants import ALoraLinearVariant
from peft.utils import INCLUDE_LINEAR_LAYERS_SHORTHAND
from peft.utils.other import TrainableTokensWrapper
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ..decoding.gated_adapter import is_gated
from .adapters import check_targets, is_targeted


__all__ = ["AdapterGate", "check_gated_adapter", "gated_config", "initialize_mask_row"]

# Fields that would change the base model, or train more of it, with the values that do not.
NEUTRAL = {
    "bias": ("none",),
    "init_lora_weights": (True, "gaussian", "orthogonal"),
    "layer_replication": (None,),
    "modules_to_save": (None, []),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, [], {}),
}
# PEFT gates adapters on these; on others they would act on every column, without a word.
QUANTIZATIONS = ("bitsandbytes",)


def gated_config(peft_config: PeftConfig | None, model: PreTrainedModel, mask_token_id: int) -> LoraConfig:
    """
    A copy of the configuration whose adapter acts on the mask columns alone, and that also trains and saves the mask
    token's row of the input embeddings.

    Args:
        peft_config ([`~peft.LoraConfig`], *optional*):
            Rank, targets and so on. By default rank 64 on all linear layers but the head.
        model ([`PreTrainedModel`]): The model; it stays as it is.
        mask_token_id (`int`): Id of the mask token.

    Raises:
        `TypeError`: If it is no configuration of LoRA.
        `ValueError`: If something in it would change the base model, or does not go together with activated LoRA; the
            message names it. So do quantised models other than those of bitsandbytes.
    """
    peft_config = peft_config or LoraConfig(r=64, lora_alpha=128, target_modules="all-linear", task_type="CAUSAL_LM")
    if type(peft_config) is not LoraConfig:
        raise TypeError(f"`mask_gated` needs a `LoraConfig` as `peft_config`, got `{type(peft_config).__name__}`.")
    if peft_config.alora_invocation_tokens:
        raise ValueError("`alora_invocation_tokens` in `peft_config` is set by `mask_gated`: leave it out.")
    for field in dataclasses.fields(peft_config):
        # Kinds of LoRA such as DoRA, which PEFT tells apart by fields and does not combine.
        if field.metadata.get("is_lora_variant") and getattr(peft_config, field.name):
            raise ValueError(
                f"`{field.name}` in `peft_config` does not go together with `mask_gated`: PEFT cannot gate such an "
                "adapter. Leave it out."
            )
    for name, neutral in NEUTRAL.items():
        value = getattr(peft_config, name, None)
        if value not in neutral:
            raise ValueError(
                f"`{name}={value!r}` in `peft_config` does not go together with `mask_gated`, which trains LoRA "
                "matrices and the mask token's row, and nothing else of the model: leave it out."
            )
    method = getattr(getattr(model, "hf_quantizer", None), "quantization_config", None)
    if method is not None and method.quant_method not in QUANTIZATIONS:
        raise ValueError(
            f"The model is quantised with {str(method.quant_method)!r}, on which PEFT cannot gate an adapter: load it "
            "without quantisation, or with bitsandbytes."
        )
    peft_config = copy.deepcopy(peft_config)
    if peft_config.target_modules == INCLUDE_LINEAR_LAYERS_SHORTHAND:
        # Told by name: PEFT takes experts that are one parameter for linear layers too, and cannot gate those.
        peft_config.target_modules = sorted(linear_layers(model))
    embeddings = check_targets(peft_config, model)
    if is_targeted(peft_config, embeddings):
        raise ValueError(
            f"`target_modules={peft_config.target_modules!r}` in `peft_config` names the embeddings {embeddings!r}, "
            "of which `mask_gated` trains the mask token's row: leave them out."
        )
    peft_config.task_type = "CAUSAL_LM"
    peft_config.alora_invocation_tokens = [mask_token_id]
    # Two names of the embeddings. Where the head is tied to them, PEFT would change the row there too, and the model's
    # own logits with it; it does not if the layers that are tied list different rows. The first name is the one that
    # counts, and PEFT sorts them in the file.
    first, second = sorted([embeddings, embeddings.split(".")[-1]])
    peft_config.trainable_token_indices = {first: [mask_token_id], second: []}
    return peft_config


def linear_layers(model: PreTrainedModel) -> set[str]:
    """Names of the linear layers, without the head."""
    head = model.get_output_embeddings()
    return {
        name.split(".")[-1]
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, Conv1D)) and module is not head
    }


def check_gated_adapter(model: PeftModel, mask_token_id: int) -> None:
    """
    Check the adapter in force: that its every layer can be gated, and that it is one of `mask_gated` at all.

    Raises:
        `ValueError`: If it is not; the message says what to do.
    """
    has_row = isinstance(model.get_input_embeddings(), TrainableTokensWrapper)
    is_tied = isinstance(model.get_output_embeddings(), TrainableTokensWrapper)
    learns = any(parameter.requires_grad for parameter in model.parameters())
    if not is_gated(model.active_peft_config, mask_token_id) or not has_row or is_tied or not learns:
        raise ValueError(
            "`mask_gated` needs an adapter that it made itself: pass the base model, with a `LoraConfig` as "
            "`peft_config`, or an adapter that was trained so, loaded with `is_trainable=True`."
        )
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            variants = module.lora_variant.values()
            if not variants or not all(isinstance(variant, ALoraLinearVariant) for variant in variants):
                raise ValueError(
                    f"`target_modules` in `peft_config` names {name!r}, a {type(module.get_base_layer()).__name__} on "
                    "which PEFT cannot gate an adapter: leave it out."
                )


@torch.no_grad()
def initialize_mask_row(model: PeftModel) -> None:
    """Begin the trained row of the mask token at the mean of the embeddings; the base model's row stays."""
    wrapper = model.get_input_embeddings()
    weight = wrapper.original_module.weight
    wrapper.token_adapter.trainable_tokens_delta[model.active_adapter].copy_(weight.mean(0, keepdim=True))


class AdapterGate:
    """
    Lets an adapter act on all columns of a forward, or on none: a training step forwards its masks alone.

    It stands at the layers of PEFT, to which nobody says `alora_offsets` here, so that they compute what the base
    layers do. What PEFT offers for the model as a whole picks columns out of every layer's input and puts the results
    back, which costs a tenth of a step where all columns are wanted, and it allows no second forward without a
    backward pass where layers checkpoint their gradients.

    Args:
        model ([`~peft.PeftModel`]): The model with the adapter.
    """

    def __init__(self, model: PeftModel):
        self._is_open = False
        for module in model.modules():
            if isinstance(module, LoraLayer):
                module.register_forward_hook(self._add_adapter)

    def open(self) -> None:
        """From here on the adapter acts on every column, also in a backward pass."""
        self._is_open = True

    def close(self) -> None:
        """From here on the model is the base model."""
        self._is_open = False

    def _add_adapter(self, layer: LoraLayer, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        if not self._is_open:
            return output
        states = args[0]
        for adapter in layer.active_adapters:
            lora_A: Any = layer.lora_A[adapter]
            lora_B = layer.lora_B[adapter]
            if not torch.is_autocast_enabled(states.device.type):
                states = states.to(lora_A.weight.dtype)
            added = lora_B(lora_A(layer.lora_dropout[adapter](states))) * layer.scaling[adapter]
            output = output + added.to(output.dtype)
        return output
