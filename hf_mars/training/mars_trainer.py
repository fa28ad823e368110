"""Supervised fine-tuning with an additional stream of masks."""

import contextlib
import functools
from typing import Any

import torch
from transformers import ProcessorMixin
from trl import SFTTrainer
from trl.trainer.utils import get_config_model_id

from ..hub import write_custom_generate
from ..modeling import add_mask_token, check_architecture, enable_mars
from .mars_config import MARSConfig
from .streams import IGNORED, build_streams


__all__ = ["MARSTrainer"]


class MARSTrainer(SFTTrainer):
    """
    [`~trl.SFTTrainer`] that also teaches the model to fill several masks after a prefix (MARS, arXiv 2604.07023).

    It takes the arguments of [`~trl.SFTTrainer`]. What differs from the parent:

    - `args` is a [`MARSConfig`].
    - The tokenizer gets a mask token, and the model's configuration an entry `mars`, so that `trainer.model` and every
      saved checkpoint can `generate(..., mars_threshold=...)`.
    - The loss of a batch is that of the masks plus `ar_weight` times the autoregressive loss, from one forward over
    both
      streams (equation 5). Both are summed over tokens and divided by the same number of supervised tokens.
    - `ar_loss`, `mask_loss` and `mask_accuracy` are logged beside TRL's own metrics, which describe the clean stream.

    Example:

    ```python
    >>> from datasets import load_dataset
    >>> from hf_mars import MARSConfig, MARSTrainer

    >>> trainer = MARSTrainer(
    ...     model="Qwen/Qwen2.5-0.5B-Instruct",
    ...     args=MARSConfig(block_size=4, output_dir="Qwen2.5-0.5B-MARS"),
    ...     train_dataset=load_dataset("trl-lib/Capybara", split="train"),
    ... )
    >>> trainer.train()
    ```
    """

    _tag_names = ["trl", "sft", "mars"]
    _name = "MARS"

    def __init__(self, model, args: MARSConfig | None = None, **kwargs):
        if args is None:
            model_name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = MARSConfig(f"{model_name.split('/')[-1]}-MARS")
        elif not isinstance(args, MARSConfig):
            raise TypeError(f"`args` must be a `MARSConfig`, got `{type(args).__name__}`.")
        check_supported(args, kwargs)
        super().__init__(model, args, **kwargs)
        if isinstance(self.processing_class, ProcessorMixin):
            raise ValueError("Vision-language models are not supported: pass a text-only model and its tokenizer.")
        check_architecture(self.model)
        mask_token_id = add_mask_token(self.model, self.processing_class, args.mask_token)
        enable_mars(self.model, mask_token_id=mask_token_id, block_size=args.block_size)

    def train(self, *args, **kwargs):
        output = super().train(*args, **kwargs)
        # Layers that checkpoint their gradients drop the cache while in training mode: leave the model ready to
        # generate.
        self.model.eval()
        return output

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        streams = build_streams(
            inputs["input_ids"],
            inputs["labels"],
            mask_token_id=self.model.config.mars["mask_token_id"],
            block_size=self.args.block_size,
            attention_mask=inputs.get("attention_mask"),
            random_phase=self.args.block_phase == "random",
        )
        # Only columns that predict something go through the LM head. Without any, one that is ignored keeps the graph.
        is_scored = streams.shift_labels != IGNORED
        is_scored[0, 0] |= ~is_scored.any()
        with scored_columns(self.accelerator.unwrap_model(model), is_scored):
            outputs = model(
                input_ids=streams.input_ids,
                position_ids=streams.position_ids,
                attention_mask=streams.attention_mask(self.model.config.get_text_config(), self.model.dtype),
                shift_labels=streams.shift_labels[is_scored][None],
                use_cache=False,
                fused_lm_head=True,
            )
        is_clean = streams.offsets[is_scored][None] < 0
        self._log_losses(outputs, is_clean)

        # The parent sums `log_probs`, divides by the number of supervised clean tokens, and takes its metrics from the
        # other fields: give it the weighted log-probabilities of both streams, and the clean stream's fields.
        outputs.log_probs = outputs.log_probs * torch.where(is_clean, self.args.ar_weight, 1.0)
        for name in ("entropy", "is_top1", "label_mask"):
            outputs[name] = outputs[name][is_clean]
        forward = functools.partial(two_stream_forward, model, outputs)
        return super().compute_loss(forward, inputs, return_outputs, num_items_in_batch)

    def _log_losses(self, outputs, is_clean: torch.Tensor) -> None:
        """Log the loss of each stream and the accuracy of the masks, over all processes."""
        is_mask = outputs.label_mask & ~is_clean
        losses = -outputs.log_probs.detach()
        sums = torch.stack(
            [
                (losses * is_clean).sum(),
                (outputs.label_mask & is_clean).sum(),
                (losses * is_mask).sum(),
                (outputs.is_top1 * is_mask).sum(),
                is_mask.sum(),
            ]
        )
        sums = self.accelerator.gather_for_metrics(sums[None]).sum(0).tolist()
        ar_loss, num_clean, mask_loss, num_correct, num_masks = sums
        metrics = self._metrics["train" if self.model.training else "eval"]
        metrics["ar_loss"].append(ar_loss / max(num_clean, 1))
        metrics["mask_loss"].append(mask_loss / max(num_masks, 1))
        metrics["mask_accuracy"].append(num_correct / max(num_masks, 1))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        write_custom_generate(output_dir or self.args.output_dir)


@contextlib.contextmanager
def scored_columns(model, is_scored: torch.Tensor):
    """Let the backbone of `model` return the hidden states of the given columns alone, as one row."""

    def select(module, args, outputs):
        outputs.last_hidden_state = outputs.last_hidden_state[is_scored][None]
        return outputs

    handle = model.base_model.register_forward_hook(select)
    try:
        yield
    finally:
        handle.remove()


def two_stream_forward(model, outputs, *args, fused_lm_head: bool = False, **kwargs):
    """Stands in for the model in TRL's `compute_loss`: the forward over both streams is done already."""
    return outputs if fused_lm_head else model(*args, **kwargs)


def check_supported(args: MARSConfig, kwargs: dict[str, Any]) -> None:
    """Refuse what MARS training does not do, by name."""
    for name in ("packing", "padding_free", "assistant_only_loss", "activation_offloading"):
        if getattr(args, name):
            raise ValueError(f"`{name}=True` is not supported by MARSTrainer yet: leave it `False`.")
    if args.loss_type != "nll":
        raise ValueError(f"`loss_type={args.loss_type!r}` is not supported by MARSTrainer: use 'nll'.")
    if args.label_smoothing_factor:
        raise ValueError("`label_smoothing_factor` is not supported by MARSTrainer: leave it 0.")
    for name in ("peft_config", "compute_loss_func", "quantization_config"):
        if kwargs.get(name) is not None:
            raise ValueError(f"`{name}` is not supported by MARSTrainer yet: leave it out.")
