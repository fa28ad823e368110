"""The rows of a batch: their state, and how it changes."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from transformers import Cache

from .acceptance import first_columns
from .cache import MARSCache
from .context import Context
from .deciding import AcceptedTokens, Decision
from .output import StepOutput
from .plan import Plan
from .rows import HostRows, Rows
from .sampling import SamplingParams, draw_uniforms, make_sampling_tensors
from .stopping import StoppingRule
from .window import Window, build_window


__all__ = ["Batch"]

CONFIDENCE_STEPS = 2**24  # confidences travel to the host as integers, with all else that it is told of a step


class Batch:
    """
    All that is known of the rows that decode together. Its methods alone change it.

    Between two steps, rows of another batch can be added and rows can be removed. What a row generates does not depend
    on the rows around it.

    Args:
        context ([`Context`]): What the rows start from.
        params (`Sequence[SamplingParams]`): How each row decodes.
        num_layers (`int`): Attention layers of the model.
        pad_token_id (`int`, *optional*, defaults to 0): Fills rows that ended earlier than others.
        use_cache (`bool`, *optional*, defaults to `True`): Whether to keep keys and values from step to step.
        static (`bool`, *optional*, defaults to `False`): Whether all steps after the first have the same shapes.
        stopping ([`StoppingRule`], *optional*): Criteria beside the length and the end-of-sequence tokens.
        keeps_rows (`bool`, *optional*, defaults to `False`): Whether rows that are done stay until all are.

    Attributes:
        rows ([`Rows`]), host ([`HostRows`]): State of the rows, on the device and on the host.
        sampling ([`SamplingTensors`]): How they decode.
        sequences (`torch.LongTensor` of shape `(batch_size, capacity)`): All tokens, by id of the row.
        uniforms (`torch.FloatTensor` of shape `(batch_size, capacity)`): The random number of each of them.
        cache ([`MARSCache`]): Their keys and values.
        is_first (`bool`): Whether no step was made yet.
        is_done (`bool`): Whether no row decodes any more.
        is_fixed (`bool`): Whether rows that are done stay until all are.
        is_open (`bool`): Whether rows of another batch have joined.
    """

    def __init__(
        self,
        context: Context,
        params: Sequence[SamplingParams],
        num_layers: int,
        pad_token_id: int = 0,
        use_cache: bool = True,
        static: bool = False,
        stopping: StoppingRule | None = None,
        keeps_rows: bool = False,
    ):
        input_ids = context.input_ids
        (batch_size, prompt_length), device = input_ids.shape, input_ids.device
        self.context, self.pad_token_id, self.stopping = context, pad_token_id, stopping
        self.use_cache, self.static = use_cache, static
        # The storage of a static cache, or of an earlier turn's, is not the batch's own.
        self.is_fixed = keeps_rows or static or context.past is not None
        self.has_padding = context.attention_mask is not None
        self.sampling = make_sampling_tensors(params, device)

        max_length, block_size = self.sampling.max_length, self.sampling.largest_block
        capacity = max_length + context.slot_offset + 2 * block_size
        self.cache = MARSCache(num_layers, batch_size, device, capacity=capacity if static else None)

        # One block of room past the end, as tokens are written before they are cut.
        self.sequences = torch.nn.functional.pad(
            input_ids, (0, max_length - prompt_length + block_size), value=pad_token_id
        )
        self.uniforms = draw_uniforms(self.sampling, prompt_length, self.sequences.shape[1])
        missing = context.length - context.position_ids.shape[1]
        self._context_positions = torch.nn.functional.pad(context.position_ids.expand(batch_size, -1), (missing, 0))
        pending = torch.nn.functional.pad(input_ids, (context.slot_offset, 0))
        lengths = input_ids.new_full((batch_size,), prompt_length)
        all_real = torch.ones(batch_size, context.length, dtype=torch.bool, device=device)
        self.rows = Rows(
            ids=torch.arange(batch_size, device=device),
            tokens=pending,
            num_pending=torch.full_like(lengths, pending.shape[1]),
            drafts=pending[:, :0],
            num_drafts=torch.zeros_like(lengths),
            lengths=lengths,
            position_offset=self._context_positions[:, -1] - (context.length - 1),
            is_real=all_real if context.attention_mask is None else context.attention_mask.bool(),
            is_active=torch.ones_like(lengths, dtype=torch.bool),
        )
        self.host = HostRows.without_drafts(batch_size, pending.shape[1], prompt_length)
        if context.past is not None:
            self.take_context(context.past)
        self.is_first, self.is_done, self.is_open = True, False, False

    @property
    def is_aligned(self) -> bool:
        """Whether the windows of all rows begin at the same slot and are of the same length."""
        num_tokens = self.host.num_pending + self.host.num_drafts
        is_equal = (num_tokens == num_tokens[0]) & (self.host.cursor == self.host.cursor[0])
        return bool(is_equal.all())

    @property
    def num_unread(self) -> int:
        """Slots of the longest context that are still to be forwarded, but for the last one."""
        return int(self.host.num_pending.max()) - 1

    @property
    def remaining(self) -> int:
        """What the row with the most room may still add."""
        return int((self.sampling.host_max_lengths - self.host.length)[self.host.is_active].max())

    def follow(self, plan: Plan) -> None:
        """Drop the drafts that the next step does not verify."""
        if torch.equal(plan.num_drafts, self.host.num_drafts):
            return
        self.host = replace(self.host, num_drafts=plan.num_drafts)
        self.rows = replace(self.rows, num_drafts=plan.num_drafts.to(self.sequences.device))
        self._fit()

    def read_uniforms(self, width: int) -> torch.Tensor | None:
        """Random numbers of the next `width` tokens of each row, of shape `(rows, width)`; `None` if none samples."""
        if not self.sampling.any_sampled:
            return None
        positions = self.rows.lengths[:, None] + torch.arange(width, device=self.uniforms.device)
        return self.uniforms[self.rows.ids[:, None], positions.clamp(max=self.uniforms.shape[1] - 1)]

    def build_window(self, groups: torch.Tensor, num_masks: int) -> Window:
        """
        The next window: pending tokens and drafts of every row, then masks.

        Args:
            groups (`torch.LongTensor` of shape `(rows, num_groups)`): After how many drafts each group follows.
            num_masks (`int`): Masks of a group.
        """
        rows = self.rows
        ends = rows.num_pending[:, None] + groups
        return self._build_window(rows.tokens, rows.num_pending + rows.num_drafts, ends, num_masks)

    def build_context_window(self, length: int) -> Window:
        """The next slots of every row's context, at most `length` and all but the last one of each."""
        num_read = self._num_read(length)
        counts = num_read.to(self.sequences.device)
        return self._build_window(self.rows.tokens[:, : int(num_read.max())], counts, counts[:, None], num_masks=0)

    def advance_context(self, length: int) -> None:
        """Commit what [`~Batch.build_context_window`] has built, once it is forwarded."""
        num_read = self._num_read(length)
        self.cache.commit(num_read.to(self.sequences.device), length=int((self.host.cursor + num_read).max()))
        self._drop_context(num_read)

    def take_context(self, past: Cache) -> None:
        """Take the beginning of every row's context from a cache that holds it, instead of forwarding it."""
        self.cache.load(past)
        self._drop_context(self._num_read(past.get_seq_length()))

    def _drop_context(self, num_read: torch.Tensor) -> None:
        rows, counts = self.rows, num_read.to(self.sequences.device)
        num_pending, cursor = self.host.num_pending - num_read, self.host.cursor + num_read
        self.host = replace(self.host, num_pending=num_pending, cursor=cursor)
        tokens = first_columns(rows.tokens, counts, int(num_pending.max()))
        self.rows = replace(rows, tokens=tokens, num_pending=rows.num_pending - counts)

    def write(self, accepted: AcceptedTokens) -> None:
        """Append tokens to the sequences; what follows them is padding until the next ones are written."""
        position = torch.arange(accepted.tokens.shape[1], device=self.sequences.device)
        tokens = accepted.tokens.where(position < accepted.lengths[:, None], self.pad_token_id)
        self.sequences[self.rows.ids[:, None], self.rows.lengths[:, None] + position] = tokens

    def advance(self, decision: Decision, accepted: AcceptedTokens, is_finished: torch.Tensor) -> StepOutput:
        """
        Commit a step: the cursor of each row moves over what was read of real tokens, what was decided is pending or a
        draft, and rows that are done are let go. This makes the step's one copy to the host.

        Args:
            decision ([`Decision`]): What the forward said.
            accepted ([`AcceptedTokens`]): What it adds, as it was written to the sequences.
            is_finished (`torch.BoolTensor` of shape `(rows,)`): Rows that end with it.
        """
        rows, is_verified = self.rows, self.sampling.is_verified
        num_drafts = decision.num_confident * is_verified
        num_read = rows.num_pending + torch.minimum(decision.num_accepted, accepted.lengths)
        num_read = num_read * rows.is_active * self.use_cache
        num_draft_tokens = torch.where(is_verified, rows.num_drafts, decision.num_offered) * rows.is_active
        num_accepted_tokens = torch.where(is_verified, decision.num_accepted, decision.num_confident) * rows.is_active
        self.rows = replace(
            rows,
            tokens=torch.cat([decision.bonus_token, decision.mask_tokens], dim=1),
            num_pending=decision.num_confident + 1 - num_drafts,
            drafts=decision.mask_tokens,
            num_drafts=num_drafts,
            lengths=rows.lengths + accepted.lengths,
            is_active=rows.is_active & ~is_finished,
        )
        counts = torch.stack([accepted.lengths, num_draft_tokens, num_accepted_tokens], dim=1)
        rows, cursors = self.rows, self.cache.cursors + num_read
        state = torch.stack([rows.num_pending, rows.num_drafts, cursors, rows.lengths, rows.is_active], dim=1)
        confidences = decision.confidences[:, : decision.mask_tokens.shape[1] * self.sampling.any_planned]
        confidences = (confidences * CONFIDENCE_STEPS).long()
        values = torch.cat([counts, state, confidences, accepted.tokens], dim=1).cpu()
        counts, state, confidences, tokens = split_columns(values, 3, 5, confidences.shape[1])
        output = StepOutput(self.host.ids, tokens, *counts.unbind(1))
        num_pending, num_drafts, cursor, length, is_active = state.unbind(1)
        self.host = HostRows(
            self.host.ids, num_pending, num_drafts, cursor, length, is_active.bool(), confidences / CONFIDENCE_STEPS
        )
        self.cache.commit(num_read, length=int(cursor.max()))
        self.is_first = False
        self._let_go()
        return output

    def add(self, other: "Batch") -> list[int]:
        """
        Let the rows of another batch take part in the next step. Nothing is copied but those rows.

        Args:
            other ([`Batch`]):
                The other one, not to be used any more. What of its context is not in its cache yet makes the next
                forward wide for all rows: see [`MARSDecoder.prefill`].

        Returns:
            `list[int]`: The ids of the new rows, which the outputs of the steps tell.

        Raises:
            `ValueError`: If one of them uses what only a batch of its own can: a static cache, a cache of an earlier
                turn, embeddings, `use_cache=False`, or stopping criteria that look at the text.
        """
        for batch in (self, other):
            if batch.is_fixed or not batch.use_cache or batch.context.slot_offset or batch.stopping is not None:
                raise ValueError(
                    "A row can join another batch only with a dynamic cache of its own, a prompt of tokens, and no "
                    "stopping criteria but the length and the end-of-sequence tokens."
                )
        if self.is_done:
            raise ValueError("The batch is done: go on with the newcomers alone.")
        self.cache.join(other.cache)
        self.sampling = make_sampling_tensors([*self.sampling.params, *other.sampling.params], self.sequences.device)
        taken, num_rows = set(self.host.ids.tolist()), len(other.host.ids)
        free = [row for row in range(len(self.sequences) + num_rows) if row not in taken][:num_rows]
        ids = torch.tensor(free)
        self._reserve_sequences(max(free) + 1)
        self.sequences[ids] = self.pad_token_id  # nothing is left of a row that had this place before
        width = min(other.sequences.shape[1], self.sequences.shape[1])
        self.sequences[ids, :width] = other.sequences[other.host.ids, :width]
        self.uniforms[ids, :width] = other.uniforms[other.host.ids, :width]
        self.rows = self.rows.concat(replace(other.rows, ids=ids.to(self.sequences.device)))
        self.host = self.host.concat(replace(other.host, ids=ids))
        self.has_padding |= other.has_padding
        self.is_first, self.is_open = False, True
        self._fit()
        return free

    def remove(self, ids: Collection[int]) -> None:
        """
        Take rows out before they are done.

        Args:
            ids (`Collection[int]`): Ids of the rows. The batch is done if no other is left.

        Raises:
            `ValueError`: If rows cannot leave: with a static cache, one of an earlier turn, or an adapter a row.
        """
        if self.is_fixed:
            raise ValueError(
                "Rows cannot leave a batch with a static cache, a cache of an earlier turn, or an adapter a row."
            )
        is_kept = ~torch.isin(self.host.ids, torch.tensor(sorted(ids)))
        self.host = replace(self.host, is_active=self.host.is_active & is_kept)
        self._let_go()

    def select(self, indices: torch.Tensor) -> None:
        """
        Go on with the given rows, in the given order.

        Args:
            indices (`torch.LongTensor` of shape `(rows,)`): Their places among the rows, on the host.
        """
        self.rows = self.rows.select(indices.to(self.sequences.device))
        self.host = self.host.select(indices)
        params = [self.sampling.params[index] for index in indices.tolist()]
        self.sampling = make_sampling_tensors(params, self.sequences.device)
        self.cache.batch_select_indices(indices)

    def _num_read(self, length: int) -> torch.Tensor:
        return (self.host.num_pending - 1).clamp(max=length)

    def _build_window(self, tokens: torch.Tensor, counts: torch.Tensor, ends: torch.Tensor, num_masks: int) -> Window:
        window = build_window(
            tokens,
            counts,
            self.cache.cursors,
            ends,
            num_masks,
            self.sampling.mask_token_id,
            self.rows.position_offset,
            last_position=self.sampling.max_lengths + (self.context.slot_offset - 1),
        )
        if self.is_first or not self.use_cache:
            # Slots of the context have the positions that were passed, which may have gaps.
            places = window.positions.clamp(max=self.context.length - 1)
            position_ids = self._context_positions[self.rows.ids].gather(1, places)
            is_context = window.positions < self.context.length
            window = replace(window, position_ids=position_ids.where(is_context, window.position_ids))
        return window

    def _reserve_sequences(self, num_rows: int) -> None:
        """Grow the sequences until they hold so many rows, and the longest one with a block past its end."""
        longest = self.sampling.max_length + self.sampling.largest_block
        missing, growth = (max(n, 0) for n in (num_rows - len(self.sequences), longest - self.sequences.shape[1]))
        if missing or growth:
            padding = (0, growth, 0, missing)
            self.sequences = torch.nn.functional.pad(self.sequences, padding, value=self.pad_token_id)
            self.uniforms = torch.nn.functional.pad(self.uniforms, padding)

    def _let_go(self) -> None:
        """Go on without the rows that are done."""
        is_active = self.host.is_active
        self.is_done = not is_active.any()
        if self.is_done:
            return
        if not self.is_fixed and not is_active.all():
            # The last rows move to the places of those that leave, so that the cache copies no others.
            indices = torch.arange(int(is_active.sum()))
            kept = is_active.nonzero().squeeze(1)
            indices[~is_active[: len(indices)]] = kept[kept >= len(indices)]
            self.select(indices)
        self._fit()

    def _fit(self) -> None:
        """Bring the cache's length and the width of the tokens up to what the longest row has."""
        self.cache.set_length(int(self.host.cursor.max()))
        rows, host = self.rows, self.host
        if not self.use_cache:
            # The next window holds everything: the sequence of each row, then its drafts.
            sequences = self.sequences[rows.ids]
            position = torch.arange(rows.drafts.shape[1], device=sequences.device)
            tokens = sequences.scatter(1, rows.lengths[:, None] + position, rows.drafts)
            rows, host = replace(rows, tokens=tokens, num_pending=rows.lengths), replace(host, num_pending=host.length)
        max_tokens = int((host.num_pending + host.num_drafts).max())
        max_drafts = int(host.num_drafts.max())
        if self.static:  # as wide as the masks allow
            max_tokens, max_drafts = rows.tokens.shape[1], rows.drafts.shape[1] * self.sampling.any_verified
        self.host = host
        self.rows = replace(rows, tokens=rows.tokens[:, :max_tokens], drafts=rows.drafts[:, :max_drafts])


def split_columns(values: torch.Tensor, *widths: int) -> tuple[torch.Tensor, ...]:
    """Columns in groups of the given widths, and the rest."""
    return values.split([*widths, values.shape[1] - sum(widths)], dim=1)
