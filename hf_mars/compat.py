"""
What hf_mars takes from other libraries without their promise to keep it.

Names with an underscore are used in two files alone: this one, and `decoding/compat.py` for the code that is shipped
with checkpoints. Where a class of hf_mars overrides or reads a private attribute of its parent, that cannot stand
here, so [`PRIVATE_NAMES`] lists it too. `tests/test_compat.py` checks the list against what is installed, and the
package against the list.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


__all__ = ["PRIVATE_NAMES", "PrivateName", "keeping_the_cache"]


@contextmanager
def keeping_the_cache(model: PreTrainedModel) -> Generator[None]:
    """
    Let layers that checkpoint their gradients keep a cache that is only read: their second forward, in the backward
    pass, then reads the same states. It is what transformers has the flag for.

    Args:
        model ([`PreTrainedModel`]): The language model.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    before = [layer._can_checkpoint_with_cache for layer in layers]
    for layer in layers:
        layer._can_checkpoint_with_cache = True
    try:
        yield
    finally:
        for layer, can in zip(layers, before, strict=True):
            layer._can_checkpoint_with_cache = can


class PrivateName(NamedTuple):
    """
    A name that its library may take away.

    Args:
        owner (`str`): Class or module that has it, as it is imported.
        name (`str`): The name.
        parameters (`tuple[str, ...]`): Those of its parameters that are passed, where it is a function.
        waits_for (`str`): What would make it unnecessary.
    """

    owner: str
    name: str
    parameters: tuple[str, ...]
    waits_for: str


# With an underscore, then names of modules that their libraries do not document.
PRIVATE_NAMES = tuple(
    PrivateName(*entry)
    for entry in (
        # transformers: the model and its attention
        ("transformers.PreTrainedConfig", "_attn_implementation", (), "a getter beside `set_attn_implementation`"),
        ("transformers.PreTrainedModel", "_can_set_attn_implementation", (), "an answer of `set_attn_implementation`"),
        (
            "transformers.modeling_layers.GradientCheckpointingLayer",
            "_can_checkpoint_with_cache",
            (),
            "an argument of `gradient_checkpointing_enable`",
        ),
        # transformers: `generate`
        (
            "transformers.GenerationMixin",
            "_sample",
            ("input_ids", "logits_processor", "stopping_criteria", "generation_config", "synced_gpus", "streamer"),
            "a public plain loop that a `custom_generate` may call",
        ),
        ("transformers.GenerationMixin", "_optimize_model_for_decode", (), "`generate` doing it around any strategy"),
        (
            "transformers.GenerationMixin",
            "_valid_auto_compile_criteria",
            ("model_kwargs", "generation_config"),
            "a compiled forward handed to a `custom_generate`",
        ),
        ("transformers.GenerationMixin", "_is_user_defined", (), "a `custom_generate` being told whose the cache is"),
        ("transformers.GenerationMixin", "_mask_length", (), "`generate` passing on the mask it was given"),
        ("transformers.PrefixConstrainedLogitsProcessor", "_prefix_allowed_tokens_fn", (), "a public attribute"),
        ("transformers.PrefixConstrainedLogitsProcessor", "_num_beams", (), "a public attribute"),
        # transformers and TRL: what `MARSTrainer` overrides or reads
        ("transformers.Trainer", "_save", ("output_dir", "state_dict"), "a callback before a save, beside `on_save`"),
        ("transformers.Trainer", "_push_from_checkpoint", ("checkpoint_folder",), "a callback before a push"),
        ("transformers.Trainer", "_finish_current_push", (), "a public way to wait for a push"),
        ("transformers.Trainer", "_prepare_inputs", ("inputs",), "a public way to move a batch to its device"),
        ("trl.SFTTrainer", "_metrics", (), "a public way to add metrics to the next log"),
        ("trl.SFTTrainer", "_name", (), "nothing: every trainer of TRL sets it"),
        ("trl.SFTTrainer", "_paper", (), "nothing: trainers of TRL that follow a paper set it"),
        ("trl.SFTTrainer", "_tag_names", (), "nothing: every trainer of TRL sets it"),
        # torch, where PEFT keeps what `generate` was told
        ("torch.nn.Module", "_forward_pre_hooks", (), "PEFT telling which adapter each row of a call has"),
        # lm-eval
        (
            "lm_eval.models.huggingface.HFLM",
            "_model_generate",
            ("context", "max_length", "stop"),
            "lm-eval counting forward passes, or a public method",
        ),
        # evaluate
        ("evaluate.EvaluationModule", "_info", (), "nothing: it is how a module says what it is"),
        ("evaluate.EvaluationModule", "_compute", (), "nothing: it is how a module says what it does"),
        # Not documented
        ("transformers.cache_utils", "get_layer_types_and_kwargs", ("config",), "a public list of layer types"),
        ("transformers.convert_slow_tokenizer", "bytes_to_unicode", (), "tokenizers telling the bytes of a token"),
        ("transformers.utils.peft_utils", "find_adapter_config_file", ("model_id", "revision"), "documentation"),
        ("transformers.integrations.fsdp", "is_fsdp_managed_module", ("module",), "`generate` passing `synced_gpus`"),
        ("trl.SFTTrainer", "fused_lm_head", (), "a method that scores a batch, which `compute_loss` calls"),
        (
            "trl.trainer.utils",
            "FusedCausalLMOutput",
            ("log_probs", "entropy", "is_top1", "label_mask", "aux_loss"),
            "the same",
        ),
        ("trl.trainer.utils", "create_model_from_path", ("model_id", "kwargs"), "`SFTTrainer` loading in a method"),
        (
            "trl.models.utils",
            "unwrap_model_for_generation",
            ("model", "accelerator"),
            "documentation, as TRL's own callbacks use it",
        ),
        ("peft.tuners.tuners_utils", "check_target_module_exists", ("config", "key"), "a public test of one layer"),
        ("peft.tuners.lora.variants", "ALoraLinearVariant", (), "a public list of the layers that can be gated"),
        ("peft.utils.other", "TrainableTokensWrapper", (), "documentation"),
        ("peft.tuners.lora.LoraLayer", "lora_variant", (), "documentation"),
        ("peft.tuners.trainable_tokens.TrainableTokensLayer", "trainable_tokens_delta", (), "documentation"),
        ("peft.tuners.trainable_tokens.TrainableTokensLayer", "token_indices", (), "documentation"),
    )
)
