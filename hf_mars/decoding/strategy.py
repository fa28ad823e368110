"""The decoding step: window, forward, decide, cut, commit."""

from collections.abc import Callable

import torch
from transformers import Cache, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from .acceptance import confidence, first_columns
from .cache import MARSCache
from .deciding import decide
from .masks import create_window_mask
from .options import DecodingOptions
from .output import TokenRecord
from .processing import for_row, is_prefix_free
from .row_options import BatchOptions, RowOptions
from .rows import Rows, Step
from .stopping import StoppingRule, cut
from .window import Window, build_window


__all__ = ["MARSDecoder"]


class MARSDecoder:
    """
    Decodes a batch of rows, several tokens a forward, each row at its own pace.

    One call of [`~MARSDecoder.step`] is one forward pass and one device-to-host copy:

    1. Build the window of every row: pending tokens, drafts, masks.
    2. Forward all rows. A query sees the slots of its own row, up to its own.
    3. Exclude the mask token, then choose a token and a confidence for every wanted column.
    4. Keep the drafts that the autoregressive choice agrees with, add that choice's next token, and, where all drafts
       held, take the leading masks whose confidence passes the threshold: as tokens (lossy) or as drafts (verify).
    5. Cut each run at the row's budget, at its first end-of-sequence token, and where another criterion stops it.
    6. Commit: the cursor moves over the real tokens of the window. Rows that are done leave the batch.

    A *slot* is a place in the cache, counted from the start of the context; an *index* is a place in `sequences`. They
    differ where the context holds more than `input_ids`: embeddings, or the cache of an earlier turn.

    Between two steps, rows of another decoder can [`join`] and rows can [`leave`].

    Args:
        model ([`PreTrainedModel`]): The model.
        options ([`DecodingOptions`]): How to decode.
        input_ids (`torch.LongTensor` of shape `(batch_size, prompt_length)`): Left-padded prompts.
        context_length (`int`): Slots of the context: prompt, embeddings and what `past` holds.
        position_ids (`torch.LongTensor` of shape `(batch_size, length)`): Positions of the last slots of the context.
        logits_processor ([`LogitsProcessorList`]): As prepared by `generate`.
        stopping_criteria ([`StoppingCriteriaList`]): As prepared by `generate`.
        attention_mask (`torch.LongTensor` of shape `(batch_size, context_length)`, *optional*): 0 where padded.
        inputs_embeds (`torch.FloatTensor` of shape `(batch_size, context_length, hidden_size)`, *optional*):
            Embeddings of the context, instead of tokens.
        past ([`Cache`], *optional*): Keys and values of an earlier turn. With it, no row leaves before all are done.
        use_cache (`bool`, *optional*, defaults to `True`): Whether to keep keys and values from step to step.
        static (`bool`, *optional*, defaults to `False`): Whether all steps after the first have the same shapes.
        do_sample (`bool`, *optional*, defaults to `False`): Whether to sample.
        pad_token_id (`int`, *optional*, defaults to 0): Fills rows that ended earlier than others.
        scores, logits ([`TokenRecord`], *optional*): Collect the processed scores and the logits of each token.
        with_confidences (`bool`, *optional*, defaults to `False`): Whether steps tell the confidence of their tokens.
        generator (`torch.Generator`, *optional*): Source of the random numbers, on the CPU.
        model_kwargs: Passed on to every forward.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        options: DecodingOptions,
        input_ids: torch.Tensor,
        context_length: int,
        position_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        past: Cache | None = None,
        use_cache: bool = True,
        static: bool = False,
        do_sample: bool = False,
        pad_token_id: int = 0,
        scores: TokenRecord | None = None,
        logits: TokenRecord | None = None,
        with_confidences: bool = False,
        generator: torch.Generator | None = None,
        **model_kwargs,
    ):
        input_ids = input_ids.long()
        batch_size, prompt_length = input_ids.shape
        self.model, self.model_kwargs, self.mask_token_id = model, model_kwargs, options.mask_token_id
        self.config = model.config.get_text_config()
        self.use_cache, self.static = use_cache, static
        self.forward: Callable = model  # of the steps after the first; the caller may compile it
        self.past, self.rows_stay = past, static or past is not None
        self.scores, self.logits, self.with_confidences = scores, logits, with_confidences
        self.stopping = StoppingRule(stopping_criteria, prompt_length, batch_size, options.mask_token_id)
        max_length, self.pad_token_id = self.stopping.max_length, pad_token_id
        self.slot_offset, self.context_length = context_length - prompt_length, context_length
        prefix_free = LogitsProcessorList(filter(is_prefix_free, logits_processor))
        self.options = BatchOptions(
            [
                RowOptions(
                    decoding=options,
                    index=row,
                    num_rows=batch_size,
                    max_length=max_length,
                    eos_token_ids=self.stopping.eos_token_ids,
                    do_sample=do_sample,
                    processors=LogitsProcessorList(for_row(p, row, batch_size) for p in logits_processor),
                    prefix_free=prefix_free,
                    generator=generator,
                )
                for row in range(batch_size)
            ],
            input_ids.device,
        )

        capacity = max_length + self.slot_offset + 2 * options.block_size
        self.cache = MARSCache(
            self.config.num_hidden_layers, batch_size, input_ids.device, capacity=capacity if static else None
        )
        if past is not None:
            self.cache.load(past)
        past_length = self.cache.get_seq_length()
        self.inputs_embeds = None if inputs_embeds is None else inputs_embeds[:, past_length:]

        # One block of room past the end, so that a run is written before it is cut.
        room = max_length - prompt_length + options.block_size
        self.sequences = torch.nn.functional.pad(input_ids, (0, room), value=pad_token_id)
        missing = context_length - position_ids.shape[1]
        self.context_positions = torch.nn.functional.pad(position_ids.expand(batch_size, -1), (missing, 0))
        pending = torch.nn.functional.pad(input_ids, (self.slot_offset, 0))[:, past_length:]
        lengths = input_ids.new_full((batch_size,), prompt_length)
        all_real = torch.ones(batch_size, context_length, dtype=torch.bool, device=input_ids.device)
        self.rows = Rows(
            ids=torch.arange(batch_size, device=input_ids.device),
            tokens=pending,
            counts=torch.full_like(lengths, pending.shape[1]),
            drafts=pending[:, :0],
            draft_counts=torch.zeros_like(lengths),
            lengths=lengths,
            position_offset=self.context_positions[:, -1] - (context_length - 1),
            is_real=all_real if attention_mask is None else attention_mask.bool(),
            is_active=torch.ones_like(lengths, dtype=torch.bool),
        )
        # What the host knows without asking the device: of each row its id, counts, draft counts, cursor and length.
        self.host_ids = torch.arange(batch_size)
        self.host_state = torch.tensor([[pending.shape[1], 0, past_length, prompt_length]]).repeat(batch_size, 1)
        self.has_padding = attention_mask is not None
        self.remaining = max_length - prompt_length  # what the row with the most room may still add
        self.is_aligned, self.is_first, self.is_done = True, True, False

    @property
    def num_unread(self) -> int:
        """Slots of the longest context that [`~MARSDecoder.prefill`] has still to forward."""
        return int(self.host_state[:, 0].max()) - 1

    def prefill(self, length: int) -> None:
        """Forward the next slots of every row's context, at most `length` and all but the last one of each."""
        rows, host_counts = self.rows, (self.host_state[:, 0] - 1).clamp(max=length)
        width, counts = int(host_counts.max()), host_counts.to(rows.counts.device)
        self._forward(self._build_window(rows.tokens[:, :width], counts, num_masks=0), num_logits=1)
        self.host_state[:, 0] -= host_counts
        self.host_state[:, 2] += host_counts
        self.cache.commit(counts, length=int(self.host_state[:, 2].max()))
        rows.tokens = first_columns(rows.tokens, counts, int(self.host_state[:, 0].max()))
        rows.counts = rows.counts - counts
        self.is_aligned = self._has_equal_rows()
        if self.inputs_embeds is not None:
            self.inputs_embeds = self.inputs_embeds[:, width:]

    def step(self) -> Step:
        """Run one forward over the rows that still decode and return what it added."""
        rows, options = self.rows, self.options
        num_drafts = rows.drafts.shape[1]
        thresholds, block_size = options.read_thresholds()
        # No mask where none could be accepted, nor past the budget of every row.
        num_masks = (options.largest_block if self.static else min(block_size, self.remaining)) - 1

        # 1. and 2. Window and forward: the last columns decide
        window = self._build_window(rows.tokens, rows.counts, num_masks)
        logits = self._forward(window, num_drafts + 1 + num_masks)
        raw_logits = logits.clone() if self.logits is not None else None
        # 3. and 4. Tokens and confidences
        logits[..., self.mask_token_id] = -torch.inf
        decision = decide(logits, rows, options, thresholds, self.sequences)
        # A run is the drafts that hold, the next token, and the proposals unless they are held as drafts.
        added = torch.cat([rows.drafts, decision.next_token, decision.proposals], dim=1)
        width = max(options.any_verified * num_drafts, options.any_lossy * num_masks) + 1
        position = torch.arange(width, device=logits.device)
        skipped = (position >= decision.num_agreed[:, None]) * (num_drafts - decision.num_agreed)[:, None]
        runs = added.gather(1, (position + skipped).clamp(max=added.shape[1] - 1))
        draft_counts = decision.num_proposed * options.is_verified
        run_lengths = decision.num_agreed + 1 + decision.num_proposed - draft_counts

        # 5. Cut
        first_column = num_drafts - rows.draft_counts  # where each row's run begins among the logits
        run_lengths, is_finished = cut(
            runs, run_lengths * rows.is_active, options.max_lengths - rows.lengths, options.eos_token_ids
        )
        self._write(runs, run_lengths)
        for record, values in ((self.scores, decision.scores), (self.logits, raw_logits)):
            if record is not None:
                record.add(values, first_column, rows.ids, rows.lengths, run_lengths)
        if self.stopping.others:
            run_lengths, is_finished = self._cut_by_row(run_lengths, is_finished)
            self._write(runs, run_lengths)

        # 6. Commit
        committed = rows.counts - rows.draft_counts + torch.minimum(decision.num_agreed, run_lengths)
        committed = committed * rows.is_active * self.use_cache
        rows.tokens = torch.cat([decision.next_token, decision.proposals], dim=1)
        rows.counts = decision.num_proposed + 1
        rows.drafts, rows.draft_counts = decision.proposals, draft_counts
        rows.draft_probabilities = decision.proposal_probabilities if options.any_verified else None
        rows.lengths = rows.lengths + run_lengths
        rows.is_active = rows.is_active & ~is_finished
        state = [run_lengths, rows.is_active, rows.counts, draft_counts, self.cache.cursors + committed, rows.lengths]
        host = torch.cat([torch.stack(state, dim=1), runs], dim=1).cpu()  # the one copy of the step
        step = Step(ids=self.host_ids, run_lengths=host[:, 0], runs=host[:, len(state) :])
        if self.with_confidences:
            confidences = confidence(decision.scores, options.rows[0].decoding.metric)
            step.confidences = first_columns(confidences, first_column, runs.shape[1]).cpu()
        self._advance(committed, host[:, 1 : len(state)])
        return step

    def _build_window(self, tokens: torch.Tensor, counts: torch.Tensor, num_masks: int) -> Window:
        window = build_window(
            tokens,
            counts,
            self.cache.cursors,
            num_masks,
            self.mask_token_id,
            self.rows.position_offset,
            last_position=self.options.max_lengths + (self.slot_offset - 1),
        )
        if self.is_first or not self.use_cache:
            # Slots of the context have the positions that were passed, which may have gaps.
            slots = window.slots.clamp(max=self.context_length - 1)
            positions = self.context_positions[self.rows.ids].gather(1, slots)
            window.position_ids = positions.where(window.slots < self.context_length, window.position_ids)
        return window

    def _forward(self, window: Window, num_logits: int) -> torch.Tensor:
        """Float32 logits of the last `num_logits` columns of the window."""
        inputs = {"input_ids": window.input_ids}
        if self.inputs_embeds is not None and self.is_first:
            known = self.inputs_embeds[:, : window.input_ids.shape[1]]
            masks = self.model.get_input_embeddings()(window.input_ids[:, known.shape[1] :])
            inputs = {"inputs_embeds": torch.cat([known, masks.to(known)], dim=1)}
        if self.model._supports_logits_to_keep():
            inputs["logits_to_keep"] = num_logits
        # A window of equal rows without padding is plain causal: the model makes its own mask, or needs none.
        attention_mask = None
        if self.static or self.has_padding or not self.is_aligned:
            length = self.cache.get_mask_sizes(window.slots.shape[1], 0)[0]
            attention_mask = create_window_mask(self.config, window.slots, self.rows.is_real, length, self.model.dtype)
        self.cache.open_window(window.slots)
        outputs = (self.model if self.is_first else self.forward)(
            **inputs,
            attention_mask=attention_mask,
            position_ids=window.position_ids,
            cache=self.cache,
            use_cache=True,
            return_dict=True,
            **self.model_kwargs,
        )
        return outputs.logits[:, -num_logits:].to(device=window.slots.device, dtype=torch.float32, copy=True)

    def _write(self, runs: torch.Tensor, run_lengths: torch.Tensor) -> None:
        """Append the runs to the sequences; what follows a row's run is padding until the next run."""
        position = torch.arange(runs.shape[1], device=runs.device)
        tokens = runs.where(position < run_lengths[:, None], self.pad_token_id)
        self.sequences[self.rows.ids[:, None], self.rows.lengths[:, None] + position] = tokens

    def _cut_by_row(self, run_lengths: torch.Tensor, is_finished: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply the stopping criteria that look at the tokens of one row."""
        lengths, finished = run_lengths.tolist(), is_finished.tolist()
        for index, row in enumerate(self.rows.ids.tolist()):
            if lengths[index] > 0:
                lengths[index], is_stopped = self.stopping.cut_row(self.sequences, row, lengths[index], self.scores)
                finished[index] |= is_stopped
        return run_lengths.new_tensor(lengths), is_finished.new_tensor(finished)

    def _advance(self, committed: torch.Tensor, host: torch.Tensor) -> None:
        """Move the cursors, and let rows that are done leave the batch."""
        is_active, self.host_state = host[:, 0].bool(), host[:, 1:]
        self.is_first = False
        self.cache.commit(committed, length=int(self.host_state[:, 2].max()))
        self.keep(is_active)

    def keep(self, is_active: torch.Tensor) -> None:
        """Go on with the active rows. `is_active` is a `torch.BoolTensor` of shape `(rows,)` on the host."""
        self.is_done = not is_active.any()
        if self.is_done:
            return
        if not self.rows_stay and not is_active.all():
            # The last rows move to the places of those that leave, so that the cache copies no others.
            indices = torch.arange(int(is_active.sum()))
            kept = is_active.nonzero().squeeze(1)
            indices[~is_active[: len(indices)]] = kept[kept >= len(indices)]
            self.rows = self.rows.select(indices.to(self.rows.ids.device))
            self.options = self.options.select(indices.tolist())
            self.cache.batch_select_indices(indices)
            self.host_ids, self.host_state = self.host_ids[indices], self.host_state[indices]
            is_active = is_active[indices]
        self.summarize(is_active)

    def _has_equal_rows(self) -> bool:
        """Whether the windows of all rows begin at the same slot and are of the same length."""
        return bool((self.host_state[:, [0, 2]] == self.host_state[0, [0, 2]]).all())

    def summarize(self, is_active: torch.Tensor) -> None:
        """Bring what the host knows of all rows, and the width of their tokens, up to date."""
        counts, draft_counts, cursors, lengths = self.host_state.unbind(1)
        self.cache.set_length(int(cursors.max()))
        self.remaining = int((self.options.host_max_lengths - lengths)[is_active].max())
        self.is_aligned = self._has_equal_rows()
        rows = self.rows
        if not self.use_cache:
            # The next window holds everything: the sequence of each row, then its drafts.
            sequences = self.sequences[rows.ids]
            position = torch.arange(rows.drafts.shape[1], device=sequences.device)
            rows.tokens = sequences.scatter(1, rows.lengths[:, None] + position, rows.drafts)
            rows.counts, counts = rows.lengths + rows.draft_counts, lengths + draft_counts
            self.is_aligned = bool((counts == counts[0]).all())
        num_drafts = int(draft_counts.max())
        if self.static:
            num_drafts = rows.drafts.shape[1] * self.options.any_verified
        else:
            rows.tokens = rows.tokens[:, : int(counts.max())]
        rows.drafts = rows.drafts[:, :num_drafts]
        if rows.draft_probabilities is not None:
            rows.draft_probabilities = rows.draft_probabilities[:, :num_drafts]
