"""Training the embedding row of the mask token beside an adapter."""

import copy
from typing import Any

from peft import PeftConfig, PeftModel
from peft.tuners.tuners_utils import check_target_module_exists
from torch import nn
from transformers import PreTrainedModel

from ..modeling import get_base_model


__all__ = ["check_adapter", "check_targets", "complete_output_embeddings", "is_targeted", "with_mask_row"]


def with_mask_row(peft_config: PeftConfig, model: PreTrainedModel, mask_token_id: int) -> PeftConfig:
    """
    A copy of the configuration that also trains the mask token's row of the input embeddings, and saves it.

    Raises:
        `TypeError`: If it is no configuration of PEFT.
        `ValueError`: If the method adds virtual tokens, if it adapts the head, or if it cannot train single rows of
            the embeddings beside what it trains; the message names what was set.
    """
    if not isinstance(peft_config, PeftConfig):
        raise TypeError(f"`peft_config` must be a `peft.PeftConfig`, got `{type(peft_config).__name__}`.")
    kind = type(peft_config).__name__
    if peft_config.is_prompt_learning:
        raise ValueError(
            f"`peft_config` is a {kind}: methods that learn a prompt shift the tokens under the two streams. Use LoRA "
            "or DoRA."
        )
    embeddings = check_targets(peft_config, model)
    name = embeddings.split(".")[-1]
    peft_config = copy.deepcopy(peft_config)
    if is_saved(peft_config, embeddings):
        return peft_config
    embeddings_are_targeted = is_targeted(peft_config, embeddings)
    if embeddings_are_targeted or not hasattr(peft_config, "trainable_token_indices"):
        if was_trained(model, mask_token_id):
            return peft_config
        what = f"has {targets(peft_config)}" if embeddings_are_targeted else f"is a {kind}"
        raise ValueError(
            f"`peft_config` {what}, which cannot save the whole row of the mask token. Use LoRA or DoRA on other "
            f"layers than {name!r}, or train all rows with `modules_to_save=[{name!r}]` where the method has that."
        )
    indices = by_module(peft_config.trainable_token_indices, name)
    key = next((key for key in indices if embeddings.endswith(key)), name)
    indices[key] = sorted({*indices.get(key, []), mask_token_id})
    vars(peft_config)["trainable_token_indices"] = indices
    return peft_config


def check_targets(peft_config: PeftConfig, model: PreTrainedModel) -> str:
    """
    Check that an adapter leaves the head alone.

    Returns:
        `str`: Name of the input embeddings.

    Raises:
        `ValueError`: If the head is a target.
    """
    head = module_name(model, model.get_output_embeddings())
    if is_targeted(peft_config, head):
        raise ValueError(
            f"`peft_config` has {targets(peft_config)}, which names the head {head!r}. The loss is computed from its "
            "weight, so that an adapter on it would never be trained: leave it out."
        )
    return module_name(model, model.get_input_embeddings())


def check_adapter(model: PeftModel, mask_token_id: int) -> None:
    """
    Check the adapter in force: one that was passed ready-made, or that TRL completed.

    Raises:
        `ValueError`: If it leaves the row of a new mask token as it is, or trains the head apart from a tied row.
    """
    base_model = get_base_model(model)
    embeddings = module_name(base_model, base_model.get_input_embeddings())
    head = module_name(base_model, base_model.get_output_embeddings())
    name = embeddings.split(".")[-1]
    config = model.active_peft_config
    indices = by_module(getattr(config, "trainable_token_indices", None), name)
    rows = {row for key, rows in indices.items() if embeddings.endswith(key) for row in rows}
    is_complete = is_saved(config, embeddings) or was_trained(base_model, mask_token_id)
    if mask_token_id not in rows and not is_complete:
        raise ValueError(
            "The adapter does not train the mask token's embedding. Pass the base model with a `peft_config`, or "
            f"create the adapter with `trainable_token_indices={{{name!r}: [{mask_token_id}]}}`."
        )
    # With `ensure_weight_tying` PEFT turns a head in `modules_to_save` into the embeddings it is tied to.
    is_split = rows and (is_saved(config, head) or is_saved(config, embeddings))
    if is_split and base_model.config.get_text_config().tie_word_embeddings:
        raise ValueError(
            f"`peft_config` has the head {head!r} in `modules_to_save`, but it is tied to the embeddings, of which "
            f"the row of the mask token is trained, and PEFT could not load both again: add {name!r} to "
            "`modules_to_save`, or leave the head out."
        )


def complete_output_embeddings(model: PreTrainedModel | PeftModel) -> None:
    """
    Where the output embeddings are tied to a trained row, PEFT wraps them in a module without a `bias`, which TRL's
    fused LM head reads.
    """
    output_embeddings: Any = model.get_output_embeddings()
    if not hasattr(output_embeddings, "bias"):
        output_embeddings.bias = output_embeddings.original_module.bias


def was_trained(model: PreTrainedModel, mask_token_id: int) -> bool:
    """Whether the saved base model has a row for the mask token already."""
    return (getattr(model.config, "mars", None) or {}).get("mask_token_id") == mask_token_id


def module_name(model: nn.Module, module: nn.Module | None) -> str:
    return next(name for name, other in model.named_modules() if other is module)


def is_saved(peft_config: PeftConfig, name: str) -> bool:
    """Whether a module is trained and saved whole, as PEFT matches `modules_to_save`."""
    return name.endswith(tuple(getattr(peft_config, "modules_to_save", None) or ()))


def is_targeted(peft_config: PeftConfig, name: str) -> bool:
    """Whether the adapter goes on a module."""
    parameters = getattr(peft_config, "target_parameters", None) or ()
    if f"{name}.weight".endswith(tuple(parameters)):
        return True
    return getattr(peft_config, "target_modules", None) is not None and bool(
        check_target_module_exists(peft_config, name)
    )


def targets(peft_config: PeftConfig) -> str:
    """What the user set to say where the adapter goes."""
    names = ("target_modules", "target_parameters")
    values = {name: getattr(peft_config, name, None) for name in names}
    return ", ".join(f"`{name}={value!r}`" for name, value in values.items() if value)


def by_module(indices: list[int] | dict[str, list[int]] | None, name: str) -> dict[str, list[int]]:
    """`trainable_token_indices` in its long form; the short one is about the input embeddings."""
    return {name: indices} if isinstance(indices, list) else dict(indices or {})
