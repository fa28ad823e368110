"""MARS as a speculative method of vLLM whose drafts come out of the target's own forward."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .options import EngineOptions
from .planner import Planner, Progress
from .request_options import RequestOptions
from .runner import reach_runner
from .version import check_version
from .windows import Window, next_window, read_windows


__all__ = ["MARSProposer"]

logger = logging.getLogger(f"vllm.{__name__}")  # below vLLM's own logger, which has the handlers


@dataclass(frozen=True)
class Seen:
    """What the last forward said at its masks, of all rows one after the other; on the device still."""

    windows: list[Window]
    choices: torch.Tensor | None
    probabilities: torch.Tensor | None


class MARSProposer:
    """
    Proposes the drafts that the last forward gave at its masks, and new masks behind them.

    ```bash
    vllm serve CHECKPOINT --speculative-config '{"model": "hf_mars_vllm.MARSProposer", "num_speculative_tokens": 6}'
    ```

    vLLM makes one in its worker. Its rejection sampler verifies the drafts, so greedy answers are those of plain vLLM,
    and sampled ones have its distribution. No forward is run beside the target's own.

    Args:
        vllm_config (`VllmConfig`):
            Reads `mars` of the checkpoint's config.json, `num_speculative_tokens`, of which
            `2 * (block_size - 1)` are of use, and [`EngineOptions`] of `additional_config`.

    Raises:
        `RuntimeError`: If this was not tested with the installed vLLM.
        `TypeError`: If an option has the wrong type.
        `ValueError`: If the checkpoint is no MARS checkpoint, or an option is out of range.
    """

    def __init__(self, vllm_config: Any):
        self.options = EngineOptions.from_additional_config(vllm_config.additional_config)
        if not self.options.allow_untested_version:
            check_version()
        mars = getattr(vllm_config.model_config.hf_config, "mars", None)
        if not mars:
            raise ValueError(
                "The model's config.json has no `mars` entry: serve a checkpoint that hf_mars trained, and merge an "
                "adapter into its base model first."
            )
        self.max_length = vllm_config.speculative_config.num_speculative_tokens
        if self.max_length < 2:
            raise ValueError(
                f"`num_speculative_tokens` must be at least 2, a draft and a mask, got {self.max_length}; "
                f"{2 * (mars['block_size'] - 1)} is best for this checkpoint."
            )
        self.mask_token_id = mars["mask_token_id"]
        self.num_masks = min(mars["block_size"] - 1, self.max_length // 2)
        self.token_budget = vllm_config.scheduler_config.max_num_batched_tokens
        self.planner = Planner(self.num_masks + 1) if self.options.automatic else None
        self.requests: dict[str, RequestOptions] = {}
        self.seen: Seen | None = None

    def load_model(self, target_model: Any) -> None:
        """
        Called by the runner when the target model is loaded: masks will never be its answer.

        Args:
            target_model (`torch.nn.Module`): Its `compute_logits` is replaced.
        """
        compute_logits = target_model.compute_logits

        def compute_logits_without_mask(*args, **kwargs) -> torch.Tensor | None:
            logits = compute_logits(*args, **kwargs)
            if logits is not None:  # as it is on ranks that do not sample
                logits[..., self.mask_token_id] = -torch.inf
            return logits

        target_model.compute_logits = compute_logits_without_mask
        self.rows = reach_runner(self, self.before_verification)

    def before_verification(self, sampler: torch.nn.Module, args: tuple) -> None:
        """
        Read the logits of a forward before the sampler, which may write into them, has them.

        Args:
            sampler (`torch.nn.Module`): vLLM's rejection sampler.
            args (`tuple`):
                Metadata with `num_draft_tokens` and `draft_token_ids`; probabilities of drafts; logits of shape
                `(drafts + rows, vocabulary)`; and the parameters of sampling.
        """
        metadata, _, logits, _ = args
        rows = self.rows()
        if len(rows) != len(metadata.num_draft_tokens):  # a dry run
            return
        if self.seen is not None and self.planner:  # nothing was proposed after the forward before
            self.planner.forget_start()
        known = self.requests
        self.requests = {name: known.get(name) or options_of(name, extra_args) for name, extra_args in rows}
        windows = read_windows(metadata.num_draft_tokens, metadata.draft_token_ids.tolist(), self.mask_token_id)
        mask_rows = [row for window in windows for row in window.mask_rows]
        choices: torch.Tensor | None = None
        probabilities: torch.Tensor | None = None
        if mask_rows:
            logits = logits[torch.tensor(mask_rows, device=logits.device)]
            if any(self.threshold(name) > 0 for name in self.requests):
                probabilities, choices = logits.float().softmax(-1).max(-1)
            else:
                choices = logits.argmax(-1)
        self.seen = Seen(windows, choices, probabilities)

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: Any = None,
        token_ids_cpu: Any = None,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """
        Called by the runner after each forward.

        Args:
            sampled_token_ids (`list[list[int]]`): The tokens that each row gained; none while its prompt is read.
            num_tokens_no_spec, token_ids_cpu, slot_mappings: Not used.

        Returns:
            `list[list[int]]`: For each row the drafts and masks of the next forward.
        """
        seen, self.seen = self.seen, None
        if seen is None:
            raise RuntimeError("MARSProposer saw no logits before it was asked to propose: vLLM has changed.")
        rows = list(zip(self.requests, sampled_token_ids, seen.windows, strict=True))
        chosen = self.choose_rows({name: progress_of(window, tokens) for name, tokens, window in rows})
        max_length = self.room(len(rows))
        choices = seen.choices.tolist() if seen.choices is not None else []
        probabilities = seen.probabilities.tolist() if seen.probabilities is not None else []
        proposals, first = [], 0
        for name, tokens, window in rows:
            part = slice(first, first + window.num_masks)
            first = part.stop
            proposal = []
            if name in chosen:
                proposal = next_window(
                    window,
                    len(tokens),
                    choices[part],
                    probabilities[part],
                    threshold=self.threshold(name),
                    num_masks=self.num_masks,
                    max_length=max_length,
                    mask_token_id=self.mask_token_id,
                )
            proposals.append(proposal)
        if self.planner:
            self.planner.forward_starts()
        return proposals

    def choose_rows(self, progress: dict[str, Progress]) -> set[str]:
        """The requests that get drafts and masks in the next forward."""
        candidates = {name for name, each in progress.items() if each.num_gained and self.requests[name].is_wanted}
        if len(progress) > self.options.max_batch_size:
            candidates = set()
        if self.planner is None:
            return candidates
        self.planner.observe(progress)
        return self.planner.choose(candidates)

    def room(self, num_rows: int) -> int:
        """
        Most tokens to propose for each row. Windows take at most half of the budget that plain decoding would leave
        for the prompts of others: vLLM serves running rows first.
        """
        return min(self.max_length, max(0, self.token_budget - num_rows) // (2 * num_rows))

    def threshold(self, name: str) -> float:
        """The threshold of a request: its own, or the engine's."""
        own = self.requests[name].threshold
        return self.options.threshold if own is None else own


def options_of(name: str, extra_args: Mapping[str, Any] | None) -> RequestOptions:
    try:
        return RequestOptions.from_extra_args(extra_args)
    except (TypeError, ValueError) as error:
        # Only where `RequestCheck` is not installed; an error here would end the engine.
        logger.warning("Request %s is decoded with the options of the engine: %s", name, error)
        return RequestOptions()


def progress_of(window: Window, tokens: list[int]) -> Progress:
    return Progress(len(tokens), window.num_columns, window.num_drafts)
