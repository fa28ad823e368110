"""See the model's speed, and its runs, while it trains."""

import copy
from typing import Any

from transformers import GenerationConfig, Trainer, TrainerCallback
from trl.models.utils import unwrap_model_for_generation


__all__ = ["LogRunsCallback", "format_runs"]


class LogRunsCallback(TrainerCallback):
    """
    Decodes a few prompts at every evaluation, logs `eval_tokens_per_forward`, and prints the first answer with a bar
    between the runs, each of them the tokens of one forward pass.

    Usage:

    ```python
    >>> trainer = MARSTrainer(...)
    >>> trainer.add_callback(LogRunsCallback(trainer, prompts=eval_dataset["prompt"][:4]))
    ```

    Args:
        trainer ([`MARSTrainer`]):
            Trainer to which the callback will be attached.
        prompts (`list[str]` or `list[list[dict]]`):
            Prompts as texts or as chat messages, decoded as one batch.
        generation_config ([`~transformers.GenerationConfig`], *optional*):
            How to decode, with `mars_threshold` and the like. By default at most 128 new tokens with
            `mars_threshold=0.9`.

    Raises:
        `ValueError`: If there are no prompts, or `generation_config` has no `mars_threshold`.
    """

    def __init__(
        self,
        trainer: Trainer,
        prompts: list[str] | list[list[dict[str, str]]],
        generation_config: GenerationConfig | None = None,
    ):
        if len(prompts) == 0:
            raise ValueError("`prompts` is empty: give at least one prompt to decode.")
        if generation_config is None:
            generation_config = GenerationConfig(max_new_tokens=128, mars_threshold=0.9)
        if getattr(generation_config, "mars_threshold", None) is None:
            raise ValueError("`generation_config` needs a `mars_threshold`: without one there are no runs to show.")
        self.trainer = trainer
        self.prompts = list(prompts)
        self.generation_config = generation_config

    def on_evaluate(self, args, state, control, processing_class=None, **kwargs):
        accelerator = self.trainer.accelerator
        inputs = self._tokenize(processing_class).to(accelerator.device)
        config = copy.deepcopy(self.generation_config)
        config.return_dict_in_generate = True
        # Every process decodes: where weights are sharded, all of them are needed for each forward.
        with unwrap_model_for_generation(
            self.trainer.model_wrapped,
            accelerator,
            gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs,
        ) as unwrapped:
            model: Any = unwrapped
            model.eval()
            output = model.generate(**inputs, generation_config=config)
        self.trainer.log({"eval_tokens_per_forward": round(output.tokens_per_forward, 3)})
        if state.is_world_process_zero:
            answer = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
            print(
                f"step {state.global_step}, {output.tokens_per_forward:.2f} tokens/forward\n"
                f"{format_runs(processing_class, answer, output.acceptance_lengths[0])}",
                flush=True,
            )

    def _tokenize(self, tokenizer):
        is_chat = not isinstance(self.prompts[0], str)
        texts = self.prompts
        if is_chat:
            texts = tokenizer.apply_chat_template(texts, add_generation_prompt=True, tokenize=False)
        # A chat template writes the special tokens itself.
        return tokenizer(texts, padding=True, padding_side="left", add_special_tokens=not is_chat, return_tensors="pt")


def format_runs(tokenizer: Any, token_ids: list[int], acceptance_lengths: list[int]) -> str:
    """The text of one answer, with `│` where a forward pass ended."""
    runs, start = [], 0
    for length in acceptance_lengths:
        runs.append(tokenizer.decode(token_ids[start : start + length]))
        start += length
    return "│".join(runs)
