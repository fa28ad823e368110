"""Training the embedding row of the mask token beside an adapter."""

import copy

from peft import PeftConfig, PeftModel
from transformers import PreTrainedModel


__all__ = ["check_mask_row_is_trained", "complete_output_embeddings", "with_mask_row"]


def with_mask_row(peft_config: PeftConfig, model: PreTrainedModel, mask_token_id: int) -> PeftConfig:
    """
    A copy of the configuration that also trains the mask token's row of the input embeddings.

    Raises:
        `ValueError`: If the method adds virtual tokens, or cannot train single rows.
    """
    if peft_config.is_prompt_learning:
        raise ValueError(
            f"`peft_config` is a {type(peft_config).__name__}: methods that learn a prompt shift the tokens under the "
            "two streams. Use LoRA or DoRA."
        )
    if not hasattr(peft_config, "trainable_token_indices"):
        raise ValueError(
            f"`peft_config` is a {type(peft_config).__name__}, which cannot train the row of the mask token: use LoRA "
            "or DoRA."
        )
    peft_config = copy.deepcopy(peft_config)
    name = embeddings_name(model)
    if name in (peft_config.modules_to_save or []):
        return peft_config
    indices = peft_config.trainable_token_indices
    if isinstance(indices, list):  # PEFT's short form for the input embeddings
        indices = {name: indices}
    indices = dict(indices or {})
    indices[name] = sorted({*indices.get(name, []), mask_token_id})
    peft_config.trainable_token_indices = indices
    return peft_config


def check_mask_row_is_trained(model: PeftModel, base_model: PreTrainedModel, mask_token_id: int) -> None:
    """
    Raises:
        `ValueError`: If a ready-made adapter leaves the row of a new mask token as it is.
    """
    name = embeddings_name(base_model)
    config = model.active_peft_config
    indices = getattr(config, "trainable_token_indices", None) or {}
    indices = indices if isinstance(indices, list) else indices.get(name, [])
    was_trained = (getattr(base_model.config, "mars", None) or {}).get("mask_token_id") == mask_token_id
    if mask_token_id not in indices and name not in (config.modules_to_save or []) and not was_trained:
        raise ValueError(
            "The adapter does not train the mask token's embedding. Pass the base model with a `peft_config`, or "
            f"create the adapter with `trainable_token_indices={{{name!r}: [{mask_token_id}]}}`."
        )


def complete_output_embeddings(model: PreTrainedModel | PeftModel) -> None:
    """
    Where the output embeddings are tied to a trained row, PEFT wraps them in a module without a `bias`, which TRL's
    fused LM head reads.
    """
    output_embeddings = model.get_output_embeddings()
    if not hasattr(output_embeddings, "bias"):
        output_embeddings.bias = output_embeddings.original_module.bias


def embeddings_name(model: PreTrainedModel) -> str:
    """Name of the input embeddings, as PEFT matches it."""
    embeddings = model.get_input_embeddings()
    return next(name for name, module in model.named_modules() if module is embeddings).split(".")[-1]
