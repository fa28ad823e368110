"""The decoding step: window, forward, decide, assemble, cut, commit."""

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from .acceptance import confidence, first_columns
from .batch import Batch
from .deciding import AcceptedTokens, assemble, decide
from .gated_adapter import get_gated_adapter
from .masks import create_window_mask
from .output import StepOutput, TokenRecord
from .plan import plan_fixed
from .planner import Planner
from .positions import depends_on_forward
from .sampling import read_thresholds
from .stopping import cut
from .window import Window


__all__ = ["MARSDecoder"]


class MARSDecoder:
    """
    Decodes a batch of rows, several tokens a forward, each row at its own pace.

    One call of [`~MARSDecoder.step`] is one forward pass and one device-to-host copy:

    1. Plan, and build the window of every row: pending tokens, drafts, masks.
    2. Forward all rows. A query sees the slots of its own row alone.
    3. Decide: exclude the mask token, then choose a token and a confidence for every wanted column.
    4. Assemble the accepted tokens: the drafts that the autoregressive choice agrees with, that choice's bonus token,
       and, in lossy mode, the leading masks whose confidence passes the threshold.
    5. Cut them at the row's budget, at its first end-of-sequence token, and where another criterion stops it.
    6. Commit: the cursor moves over the real tokens of the window; in verify mode the confident masks are the next
       drafts. Rows that are done leave the batch.

    The state of the rows is the batch's; a decoder keeps none.

    Args:
        model ([`PreTrainedModel`]): The model.
        batch ([`Batch`]): The rows.
        scores ([`TokenRecord`], *optional*): Collects the processed scores of each token, also for criteria.
        planner ([`Planner`], *optional*): Says how far each step drafts in rows that no threshold tells.
        forward (`Callable`, *optional*): The model's forward in the steps after the first, such as a compiled one.
        model_kwargs: Passed on to every forward.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batch: Batch,
        scores: TokenRecord | None = None,
        forward: Callable | None = None,
        planner: Planner | None = None,
        **model_kwargs,
    ):
        self.model, self.batch, self.scores, self.model_kwargs = model, batch, scores, model_kwargs
        self.forward, self.planner = forward or model, planner or Planner(model)
        self.config, self.adapter = model.config.get_text_config(), get_gated_adapter(model)
        self.takes_logits_to_keep = "logits_to_keep" in inspect.signature(model.forward).parameters

    @property
    def depends_on_forward(self) -> bool:
        """Whether the rows may reach positions that change the rotary embedding of a whole forward."""
        context = self.batch.context
        max_length = self.batch.sampling.max_length + context.slot_offset
        return depends_on_forward(self.config, context.length, max_length, context.attention_mask)

    def prefill(self, length: int) -> None:
        """Forward the next slots of every row's context, at most `length` and all but the last one of each."""
        self._forward(self.batch.build_context_window(length), num_logits=1, is_causal=True)
        self.batch.advance_context(length)

    def step(self, return_logits: bool = False, return_confidences: bool = False) -> StepOutput:
        """
        Run one forward over the rows that still decode.

        Args:
            return_logits (`bool`, *optional*, defaults to `False`): Whether to tell the logits of the accepted tokens.
            return_confidences (`bool`, *optional*, defaults to `False`): Whether to tell their confidences.

        Returns:
            [`StepOutput`]: What it added.
        """
        start = time.perf_counter()
        batch, sampling = self.batch, self.batch.sampling
        thresholds, num_masks = self._read_thresholds()
        if sampling.any_planned:
            plan = self.planner.plan(batch, num_masks)
            batch.follow(plan)
        else:
            plan = plan_fixed(batch.host.num_drafts, num_masks)
        rows, host = batch.rows, batch.host
        max_drafts = rows.drafts.shape[1]
        first_column = max_drafts - rows.num_drafts  # where each row's accepted tokens begin among the logits
        groups = rows.num_drafts[:, None] if plan.is_causal else plan.groups.to(rows.tokens.device)

        # 1. Build the window
        window = batch.build_window(groups, plan.num_masks)
        # 2. Forward: the last columns decide
        with self.adapter.acting_on(plan.num_mask_columns):
            logits = self._forward(window, max_drafts + 1 + plan.num_mask_columns, plan.is_causal)
        raw_logits = logits.clone() if return_logits else None
        # 3. Decide
        logits[..., sampling.mask_token_id] = -torch.inf
        uniforms = batch.read_uniforms(max_drafts + 1 + plan.num_masks)
        decision = decide(logits, rows, sampling, thresholds, groups, batch.sequences, uniforms)
        # 4. Assemble
        accepted = assemble(decision, rows, sampling)
        # 5. Cut
        width = accepted.tokens.shape[1]
        scores = None if self.scores is None else first_columns(decision.all_scores, first_column, width)
        accepted, is_finished = self._cut(accepted, scores)
        # 6. Commit
        output = batch.advance(decision, accepted, is_finished)
        if sampling.any_planned:
            self.planner.observe(host, sampling, output, window.slots.shape[1], time.perf_counter() - start)
        if raw_logits is not None:
            output = replace(output, logits=first_columns(raw_logits, first_column, width))
        if return_confidences:
            confidences = confidence(decision.all_scores, sampling.params[0].decoding.metric)
            output = replace(output, confidences=first_columns(confidences, first_column, width).cpu())
        return output

    def _read_thresholds(self) -> tuple[torch.Tensor, int]:
        """The threshold of each row, and the masks that they need: none that cannot pass, nor past every budget."""
        batch, sampling = self.batch, self.batch.sampling
        thresholds, block_size = read_thresholds(sampling)
        if batch.is_first and sampling.params[0].decoding.is_exact:
            return thresholds, 0  # the prompt is read as plain decoding reads it
        return thresholds, (sampling.largest_block if batch.static else min(block_size, batch.remaining)) - 1

    def _forward(self, window: Window, num_logits: int, is_causal: bool) -> torch.Tensor:
        """Float32 logits of the last `num_logits` columns of the window."""
        batch = self.batch
        inputs: dict[str, Any] = {"input_ids": window.input_ids}
        if batch.context.inputs_embeds is not None and batch.is_first:
            known = batch.context.inputs_embeds[:, int(batch.host.cursor[0]) :][:, : window.input_ids.shape[1]]
            masks = self.model.get_input_embeddings()(window.input_ids[:, known.shape[1] :])
            inputs = {"inputs_embeds": torch.cat([known, masks.to(known)], dim=1)}
        if self.takes_logits_to_keep:
            inputs["logits_to_keep"] = num_logits
        # A window of equal rows without padding is plain causal: the model makes its own mask, or needs none.
        attention_mask = None
        if batch.static or batch.has_padding or not is_causal or not batch.is_aligned:
            length = batch.cache.get_mask_sizes(window.slots.shape[1], 0)[0]
            attention_mask = create_window_mask(self.config, window, batch.rows.is_real, length, self.model.dtype)
        batch.cache.open_window(window.slots)
        outputs = (self.model if batch.is_first else self.forward)(
            **inputs,
            attention_mask=attention_mask,
            position_ids=window.position_ids,
            cache=batch.cache,
            use_cache=True,
            return_dict=True,
            **self.model_kwargs,
        )
        return outputs.logits[:, -num_logits:].to(device=window.slots.device, dtype=torch.float32, copy=True)

    def _cut(self, accepted: AcceptedTokens, scores: torch.Tensor | None) -> tuple[AcceptedTokens, torch.Tensor]:
        """Cut the accepted tokens, and write what is left to the sequences and the record of scores."""
        batch, rows, sampling = self.batch, self.batch.rows, self.batch.sampling
        accepted, is_finished = cut(accepted, sampling.max_lengths - rows.lengths, sampling.eos_token_ids)
        batch.write(accepted)
        if self.scores is not None and scores is not None:
            self.scores.add(scores, rows.ids, accepted.lengths)
        if batch.stopping is not None:
            accepted, is_finished = batch.stopping.cut(accepted, is_finished, rows.ids, batch.sequences, self.scores)
            batch.write(accepted)
        return accepted, is_finished
