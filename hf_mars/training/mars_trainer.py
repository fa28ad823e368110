"""Supervised fine-tuning with an additional stream of masks."""

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from huggingface_hub import HfApi, ModelCardData
from peft import PeftConfig, PeftModel
from torch.utils.data import DataLoader
from transformers import (
    AutoProcessor,
    BitsAndBytesConfig,
    DataCollator,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    TrainerCallback,
)
from trl import SFTTrainer
from trl.trainer.utils import FusedCausalLMOutput

from ..decoding.masks import check_attention_backend
from ..generative_model import GenerativeModel
from ..hub import CheckpointCard, CheckpointFacts, PushResult, complete_checkpoint, push_folder
from ..modeling import add_mask_token, check_architecture, enable_mars, get_base_model
from ..paper import PAPER
from .adapters import check_adapter, complete_output_embeddings, with_mask_row
from .backbone import forward_streams
from .expected_speed import ExpectedSpeedCallback
from .gated import GatedStep
from .gated_adapters import check_gated_adapter, gated_config, initialize_mask_row
from .loading import load_model
from .mars_config import DEFAULT_GATED_LOSS, MARSConfig
from .mask_token_check import MaskTokenCheck
from .resuming import get_last_complete_checkpoint
from .stream_metrics import gated_metrics, stream_metrics, sum_losses
from .streams import IGNORED, build_streams, select_stream_inputs
from .summary import hub_datasets, summarize_training
from .support import check_prepared, check_supported


__all__ = ["MARSTrainer"]

EvalDataset = Dataset | IterableDataset | DatasetDict | IterableDatasetDict | dict[str, Dataset | IterableDataset]


class MARSTrainer(SFTTrainer):
    """
    [`~trl.SFTTrainer`] that also teaches the model to fill several masks after a prefix (MARS, arXiv 2604.07023).

    It takes the arguments of [`~trl.SFTTrainer`]. What differs from the parent:

    - `args` is a [`MARSConfig`].
    - The tokenizer gets a mask token, and the model's configuration an entry `mars`, so that `trainer.model` and every
      saved checkpoint can `generate(..., mars_threshold=...)`. With a `peft_config`, the embedding row of the mask
      token is trained beside the adapter.
    - The loss of a batch is that of the masks plus `ar_weight` times the autoregressive loss, from one forward over
      both streams (equation 5). Both are summed over tokens and divided by the same number of supervised tokens.
    - `ar_loss`, `mask_loss` and `mask_accuracy`, also by offset in the block, are logged beside TRL's own metrics,
      which describe the clean stream; an evaluation adds `expected_tokens_per_forward` by threshold.
    - With `mask_gated=True` the model stays as it is, and a LoRA adapter that acts on the masks alone learns to say
      what the model itself would say ([`GatedStep`]). `peft_config` may be left out. `mask_accuracy` is then the share
      of masks whose likeliest token is the model's own, `mask_overlap` the probability that a sampled draft is
      accepted, and `expected_tokens_per_forward` is also logged for verified and for sampled drafts, as if every
      forward began a block.
    - Data that contain the mask token are warned of, once a data set, with the count.

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
    _paper = PAPER

    # Narrower than the parent's, and so said anew.
    args: MARSConfig  # pyrefly: ignore[bad-override-mutable-attribute]
    model: GenerativeModel | PeftModel  # pyrefly: ignore[bad-override]
    processing_class: PreTrainedTokenizerBase  # pyrefly: ignore[bad-override]

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel,
        args: MARSConfig | None = None,
        data_collator: DataCollator | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: EvalDataset | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        compute_loss_func: Callable | None = None,
        compute_metrics: Callable[[EvalPrediction], dict] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        quantization_config: BitsAndBytesConfig | None = None,
        peft_config: PeftConfig | None = None,
        formatting_func: Callable[[dict], str] | None = None,
    ):
        if args is None:
            model_name = model if isinstance(model, str) else model.config.name_or_path or "model"
            args = MARSConfig(output_dir=f"{model_name.split('/')[-1]}-MARS")
        elif not isinstance(args, MARSConfig):
            raise TypeError(f"`args` must be a `MARSConfig`, got `{type(args).__name__}`.")
        check_supported(args, compute_loss_func)

        # Loaded here rather than by the parent: the mask token must be known before an adapter is added.
        model_init_kwargs: Any = args.model_init_kwargs
        if isinstance(model, str):
            model, quantization_config = load_model(model, args, quantization_config), None
            args.model_init_kwargs = None  # they are used up, and the parent would warn that it ignores them
        base_model = get_base_model(model)
        check_architecture(base_model)
        check_attention_backend(base_model.config.get_text_config())
        if processing_class is None:
            processing_class = AutoProcessor.from_pretrained(
                model.config.name_or_path,
                revision=(model_init_kwargs or {}).get("revision"),
                trust_remote_code=args.trust_remote_code,
            )
        if isinstance(processing_class, ProcessorMixin):
            raise ValueError("Vision-language models are not supported: pass a text-only model and its tokenizer.")
        mask_token_id = add_mask_token(base_model, processing_class, args.mask_token, initialize=not args.mask_gated)
        if args.mask_gated and not isinstance(model, PeftModel):
            peft_config = gated_config(peft_config, base_model, mask_token_id)
        elif not args.mask_gated and peft_config is not None:
            peft_config = with_mask_row(peft_config, base_model, mask_token_id)
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizers=optimizers,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
            preprocess_logits_for_metrics=preprocess_logits_for_metrics,
            quantization_config=quantization_config,
            peft_config=peft_config,
            formatting_func=formatting_func,
        )
        args.model_init_kwargs = model_init_kwargs
        check_prepared(self)
        if not args.mask_gated and isinstance(self.model, PeftModel):  # before the model says that it was trained
            check_adapter(self.model, mask_token_id)
        enable_mars(self.model, mask_token_id=mask_token_id, block_size=args.block_size)
        self._gated_step: GatedStep | None = None
        if args.mask_gated and isinstance(self.model, PeftModel):
            check_gated_adapter(self.model, mask_token_id)
            if not isinstance(model, PeftModel):
                initialize_mask_row(self.model)
            self._gated_step = GatedStep(self.model, args)
        complete_output_embeddings(self.model)
        mask_logits = None if self._gated_step is None else self._gated_step.mask_logits
        self._expected_speed = ExpectedSpeedCallback(self, mask_logits)
        self.add_callback(self._expected_speed)
        self._mask_token_check = MaskTokenCheck(self)
        self._mask_token_check.begin("`train_dataset`", self.train_dataset, training=True)
        evaluated = self.eval_dataset if isinstance(self.eval_dataset, dict) else {None: self.eval_dataset}
        for name, dataset in evaluated.items():
            self._mask_token_check.begin(eval_name(name), dataset)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs):
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_complete_checkpoint(str(self.args.output_dir))
        output = super().train(resume_from_checkpoint, *args, **kwargs)
        # Layers that checkpoint their gradients drop the cache in training mode: leave the model ready to generate.
        self.model.eval()
        return output

    def get_train_dataloader(self) -> DataLoader:
        self._mask_token_check.begin("`train_dataset`", self.train_dataset, training=True)
        return super().get_train_dataloader()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        if isinstance(eval_dataset, str) and isinstance(self.eval_dataset, dict):
            self._mask_token_check.begin(eval_name(eval_dataset), self.eval_dataset[eval_dataset])
        else:
            self._mask_token_check.begin(eval_name(), self.eval_dataset if eval_dataset is None else eval_dataset)
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        self._mask_token_check.begin("`test_dataset`", test_dataset)
        return super().get_test_dataloader(test_dataset)

    def training_step(self, *args, **kwargs):
        try:
            return super().training_step(*args, **kwargs)
        finally:
            if self._gated_step is not None:
                self._gated_step.finish()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        base_model = get_base_model(self.accelerator.unwrap_model(model))
        self._mask_token_check.observe(inputs["input_ids"], self.model.training)
        if self._gated_step is not None:
            outputs = self._score_gated(self._gated_step, model, base_model, inputs)
        else:
            outputs = self._score_streams(model, base_model, inputs)
        forward = functools.partial(scored_forward, model, outputs)
        return super().compute_loss(forward, inputs, return_outputs, num_items_in_batch)

    def _score_gated(self, step: GatedStep, model, base_model, inputs):
        """What TRL takes a loss and metrics from: the masks' losses, and the predictions of the model itself."""
        training = self.model.training
        masks = step(model, base_model, select_stream_inputs(inputs))
        self._log_sums(masks.sums(), gated_metrics)
        losses = masks.weighted_losses(self.args.mask_loss or DEFAULT_GATED_LOSS)
        num_phases = (self.args.mask_phases or 1) if training else self.args.block_size
        scale = num_phases * (self.args.noisy_ratio if training else 1.0)
        return FusedCausalLMOutput(
            log_probs=-losses[None] / scale,
            entropy=masks.scores.entropies[None],
            is_top1=masks.scores.is_label[None],
            label_mask=masks.is_counted[None],
            aux_loss=losses.new_zeros(()),
        )

    def _score_streams(self, model, base_model, inputs):
        noisy_ratio = self.args.noisy_ratio if self.model.training else 1.0
        streams = build_streams(
            **select_stream_inputs(inputs),
            mask_token_id=base_model.config.mars["mask_token_id"],
            block_size=self.args.block_size,
            phase=None if self.args.block_phase == "random" else 0,
            noisy_ratio=noisy_ratio,
        )
        # Only columns that predict something go through the LM head. Without any, one that is ignored keeps the graph.
        is_scored = streams.shift_labels != IGNORED
        is_scored[0, 0] |= ~is_scored.any()
        outputs = forward_streams(
            model,
            base_model,
            streams,
            is_scored,
            shift_labels=streams.shift_labels[is_scored][None],
            fused_lm_head=True,
            **({"output_router_logits": True} if self.aux_loss_enabled else {}),
        )
        offsets = streams.offsets[is_scored][None]
        self._log_sums(sum_losses(outputs, offsets, self.args.block_size), stream_metrics)

        # The parent sums `log_probs`, divides by the number of supervised clean tokens, and takes its metrics from the
        # other fields: give it the weighted log-probabilities of both streams, and the clean stream's fields.
        is_clean = offsets < 0
        outputs.log_probs = outputs.log_probs * torch.where(is_clean, self.args.ar_weight, 1 / noisy_ratio)
        for name in ("entropy", "is_top1", "label_mask"):
            outputs[name] = outputs[name][is_clean]
        return outputs

    def _log_sums(self, sums: torch.Tensor, name_them: Callable[[list[list[float]]], dict[str, float]]) -> None:
        """Log what sums mean, over all processes."""
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, value in name_them(self.accelerator.gather_for_metrics(sums[None]).sum(0).tolist()).items():
            metrics[name].append(value)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        output = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        for name, value in self._expected_speed.update(model, inputs).items():
            self._metrics["eval"][name] = [value]  # over all batches so far, so the parent has nothing to average
        return output

    def create_model_card(
        self,
        model_name: str | None = None,
        dataset_name: str | list[str] | None = None,
        tags: str | list[str] | None = None,
    ) -> None:
        """Write the model card of `args.output_dir`, as [`~hf_mars.save_pretrained`] does."""
        if self.is_world_process_zero():
            self._write_card(CheckpointCard.read(str(self.args.output_dir)), dataset_name, tags, self.hub_model_id)

    def push_to_hub(  # pyrefly: ignore[bad-override]  # a card that failed is told in the result
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs,
    ) -> PushResult | Future | None:
        """
        Save the model and push it as [`~hf_mars.push_to_hub`] does: the weights first, then the card.

        It takes the arguments of [`~transformers.Trainer.push_to_hub`].
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = token if token is not None else self.args.hub_token
        if self.hub_model_id is None:
            self.init_hf_repo(token=token, private=private)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        self.create_model_card(**kwargs)
        self._finish_current_push()
        push = functools.partial(
            push_folder,
            str(self.args.output_dir),
            str(self.hub_model_id),
            token=token,
            revision=revision if revision is not None else self.args.hub_revision,
            private=private,
            commit_message=commit_message,
        )
        return push() if blocking else HfApi().run_as_future(push)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        output_dir = output_dir or str(self.args.output_dir)
        super()._save(output_dir, state_dict)  # the model brings its decoding code along, and a card
        if self.args.should_save:
            self._write_card(CheckpointCard.read(output_dir))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self.is_world_process_zero():  # the parent copies weights from there, but knows no custom_generate/
            complete_checkpoint(str(self.args.output_dir), self.model.config.mars)
        super()._push_from_checkpoint(checkpoint_folder)

    def _write_card(
        self,
        card: CheckpointCard,
        dataset_name: str | list[str] | None = None,
        tags: str | list[str] | None = None,
        repo_id: str | None = None,
    ) -> None:
        # Stated here and not read from the directory, where the weights may be yet to come.
        facts = CheckpointFacts(
            is_adapter=isinstance(self.model, PeftModel),
            is_gated=self.args.mask_gated,
            base_model=self.model.config.name_or_path,
            mask_token=self.processing_class.mask_token,
            **self.model.config.mars,
        )
        tags = [tags] if isinstance(tags, str) else tags
        card.write(
            ModelCardData(datasets=dataset_name or hub_datasets(self.train_dataset), tags=tags),
            training=summarize_training(self),
            repo_id=repo_id,
            facts=facts,
        )


def eval_name(key: str | None = None) -> str:
    return "`eval_dataset`" if key is None else f"`eval_dataset[{key!r}]`"


def scored_forward(model, outputs, *args, fused_lm_head: bool = False, **kwargs):
    """Stands in for the model in TRL's `compute_loss`: the forward is done already."""
    return outputs if fused_lm_head else model(*args, **kwargs)
