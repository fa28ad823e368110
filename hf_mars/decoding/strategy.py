"""The decoding loop: window, forward, accept, commit."""

from dataclasses import dataclass, fields

import torch
from transformers import GenerationConfig, PreTrainedModel

from .acceptance import accepts, confidence, first_columns, leading_run
from .cache import MARSCache
from .masks import create_attention_mask
from .options import DecodingOptions
from .output import MARSGenerateOutput
from .support import check_supported
from .window import Window, build_window


__all__ = ["MARSDecoder", "decode"]


@dataclass
class Rows:
    """
    The rows that still decode, each a sequence at its own length. Every field is a tensor whose first dimension is the
    row.

    Args:
        ids (`torch.LongTensor` of shape `(rows,)`): Index of the row in the batch that `generate` was given.
        tokens (`torch.LongTensor` of shape `(rows, length)`): Pending tokens, then drafts, left-aligned.
        counts (`torch.LongTensor` of shape `(rows,)`): Number of pending tokens and drafts.
        draft_counts (`torch.LongTensor` of shape `(rows,)`): How many of them are drafts, 0 in lossy mode.
        lengths (`torch.LongTensor` of shape `(rows,)`): Length of the sequence so far, padding and prompt included.
        position_offset (`torch.LongTensor` of shape `(rows,)`): Position id of a slot minus its number.
        padding (`torch.BoolTensor` of shape `(rows, prompt_length)`): `False` where the prompt is padding.
    """

    ids: torch.Tensor
    tokens: torch.Tensor
    counts: torch.Tensor
    draft_counts: torch.Tensor
    lengths: torch.Tensor
    position_offset: torch.Tensor
    padding: torch.Tensor

    def select(self, indices: torch.Tensor) -> "Rows":
        return Rows(**{field.name: getattr(self, field.name)[indices] for field in fields(self)})


@dataclass
class Step:
    """
    What one forward added, on the host.

    Args:
        ids (`torch.LongTensor` of shape `(rows,)`): Rows of the batch that took part.
        run_lengths (`torch.LongTensor` of shape `(rows,)`): Tokens added to each.
        runs (`torch.LongTensor` of shape `(rows, width)`): Those tokens; row `i` has `run_lengths[i]`.
    """

    ids: torch.Tensor
    run_lengths: torch.Tensor
    runs: torch.Tensor


class MARSDecoder:
    """
    Decodes a batch of rows, several tokens a forward, each row at its own pace.

    One call of [`~MARSDecoder.step`] is one forward pass and one device-to-host copy:

    1. Build the window of every row: pending tokens, drafts, masks.
    2. Forward all rows. A query sees the slots of its own row, up to its own.
    3. Exclude the mask token, then choose a token and a confidence for every wanted column.
    4. Keep the drafts that the autoregressive choice agrees with, add that choice's next token, and, where all drafts
       held, take the leading masks whose confidence passes the threshold: as tokens (lossy) or as drafts (verify).
    5. Cut each run at the row's budget and at its first end-of-sequence token.
    6. Commit: the cursor moves over the real tokens of the window. Rows that are done leave the batch.

    Args:
        model ([`PreTrainedModel`]): The model.
        options ([`DecodingOptions`]): How to decode.
        input_ids (`torch.LongTensor` of shape `(batch_size, prompt_length)`): Left-padded prompts.
        attention_mask (`torch.LongTensor` of shape `(batch_size, prompt_length)`, *optional*): 0 where padded.
        position_ids (`torch.LongTensor` of shape `(batch_size, prompt_length)`): Positions of the prompt.
        max_length (`int`): Length at which every row ends, prompt included.
        eos_token_ids (`torch.LongTensor` of shape `(num_ids,)`, *optional*): Tokens that end a row.
        pad_token_id (`int`): Fills rows that ended earlier than others.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        options: DecodingOptions,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor,
        max_length: int,
        eos_token_ids: torch.Tensor | None = None,
        pad_token_id: int = 0,
        **model_kwargs,
    ):
        batch_size, prompt_length = input_ids.shape
        device = input_ids.device
        self.model, self.options, self.model_kwargs = model, options, model_kwargs
        self.config = model.config.get_text_config()
        self.max_length = max_length
        self.eos_token_ids, self.pad_token_id = eos_token_ids, pad_token_id
        self.cache = MARSCache(self.config.num_hidden_layers, batch_size, device)
        # One block of room past the end, so that a run is written before it is cut.
        self.sequences = torch.nn.functional.pad(
            input_ids, (0, max_length - prompt_length + options.block_size), value=pad_token_id
        )
        full = input_ids.new_full((batch_size,), prompt_length)
        padding = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        self.rows = Rows(
            ids=torch.arange(batch_size, device=device),
            tokens=input_ids,
            counts=full,
            draft_counts=torch.zeros_like(full),
            lengths=full,
            position_offset=position_ids[:, -1].expand(batch_size) - (prompt_length - 1),
            padding=padding.bool(),
        )
        # What the host knows without asking the device.
        self.host_ids = torch.arange(batch_size)
        self.has_padding = attention_mask is not None
        self.max_drafts = 0
        self.shortest = prompt_length
        self.is_aligned = True

    @property
    def is_done(self) -> bool:
        return len(self.host_ids) == 0

    def step(self) -> Step:
        """Run one forward over the rows that still decode and return what it added."""
        rows, options = self.rows, self.options
        num_drafts = self.max_drafts
        # A mask past every row's budget could not be used.
        num_masks = min(options.block_size, self.max_length - self.shortest) - 1

        # 1. Window
        window = build_window(
            rows.tokens,
            rows.counts,
            self.cache.cursors,
            num_masks,
            options.mask_token_id,
            rows.position_offset,
            last_position=self.max_length - 1,
        )
        # 2. Forward: the last `num_drafts + 1 + num_masks` columns decide
        logits = self._forward(window, num_drafts + 1 + num_masks)
        # 3. Choice and confidence
        logits[..., options.mask_token_id] = -torch.inf
        choice = logits.argmax(-1)
        threshold = logits.new_full((len(self.host_ids), 1), options.threshold)
        confident = accepts(confidence(logits[:, num_drafts + 1 :]), threshold)

        # 4. Drafts that held, the token after them, and new proposals from the masks
        candidates = first_columns(choice, num_drafts - rows.draft_counts, num_drafts + 1)
        drafts = rows.tokens[:, 1 : num_drafts + 1]
        is_draft = torch.arange(num_drafts, device=drafts.device) < rows.draft_counts[:, None]
        num_agreed = leading_run((candidates[:, :num_drafts] == drafts) & is_draft)
        next_token = candidates.gather(1, num_agreed[:, None])
        proposals = choice[:, num_drafts + 1 :]
        num_proposed = leading_run(confident) * (num_agreed == rows.draft_counts)
        if options.verify:
            runs, run_lengths, draft_counts = candidates, num_agreed + 1, num_proposed
        else:
            runs, run_lengths = torch.cat([next_token, proposals], dim=1), num_proposed + 1
            draft_counts = torch.zeros_like(num_proposed)

        # 5. Cut
        run_lengths, is_finished = self._cut(runs, run_lengths)
        self._write(runs, run_lengths)

        # 6. Commit
        committed = rows.counts - rows.draft_counts + num_agreed
        rows.tokens = torch.cat([next_token, proposals], dim=1)
        rows.counts, rows.draft_counts = num_proposed + 1, draft_counts
        rows.lengths = rows.lengths + run_lengths
        state = torch.stack(
            [run_lengths, is_finished, rows.counts, rows.draft_counts, self.cache.cursors + committed, rows.lengths]
        )
        host = torch.cat([state.T, runs], dim=1).cpu()  # the one copy of the step
        ids = self.host_ids
        self._advance(committed, host)
        return Step(ids=ids, run_lengths=host[:, 0], runs=host[:, 6:])

    def _forward(self, window: Window, num_logits: int) -> torch.Tensor:
        """Float32 logits of the last `num_logits` columns of the window."""
        self.cache.open_window(window.slots)
        if self.model._supports_logits_to_keep():
            self.model_kwargs["logits_to_keep"] = num_logits
        outputs = self.model(
            input_ids=window.input_ids,
            attention_mask=self._attention_mask(window),
            position_ids=window.position_ids,
            cache=self.cache,
            use_cache=True,
            return_dict=True,
            **self.model_kwargs,
        )
        return outputs.logits[:, -num_logits:].to(dtype=torch.float32, copy=True)

    def _attention_mask(self, window: Window):
        """Who sees whom: a query sees the slots of its own row, from the left padding up to its own slot."""
        if self.is_aligned and not self.has_padding:
            return None  # the model's own causal mask says the same
        rows, width = window.slots.shape
        length, _ = self.cache.get_mask_sizes(width, 0)
        padding = self.rows.padding
        is_real = torch.nn.functional.pad(padding, (0, length - padding.shape[1]), value=True)

        def up_to_own_slot(batch_idx, head_idx, q_idx, kv_idx):
            slot = window.slots[batch_idx, q_idx]
            # Padding sees itself, as a query that sees nothing would give NaN.
            return (kv_idx <= slot) & (is_real[batch_idx, kv_idx] | (kv_idx == slot))

        return create_attention_mask(
            self.config,
            up_to_own_slot,
            query_positions=window.slots,
            key_positions=torch.arange(length, device=window.slots.device).expand(rows, -1),
            dtype=self.model.dtype,
        )

    def _cut(self, runs: torch.Tensor, run_lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Shorten every run to the row's budget and to its first end-of-sequence token; say which rows are done."""
        remaining = self.max_length - self.rows.lengths
        run_lengths = torch.minimum(run_lengths, remaining)
        is_finished = run_lengths == remaining
        if self.eos_token_ids is not None:
            position = torch.arange(runs.shape[1], device=runs.device)
            is_eos = torch.isin(runs, self.eos_token_ids) & (position < run_lengths[:, None])
            before_eos = leading_run(~is_eos)
            is_finished = is_finished | is_eos.any(-1)
            run_lengths = torch.minimum(run_lengths, before_eos + 1)
        return run_lengths, is_finished

    def _write(self, runs: torch.Tensor, run_lengths: torch.Tensor) -> None:
        """Append the runs to the sequences; what follows a row's run is padding until the next run."""
        position = torch.arange(runs.shape[1], device=runs.device)
        tokens = runs.where(position < run_lengths[:, None], self.pad_token_id)
        self.sequences[self.rows.ids[:, None], self.rows.lengths[:, None] + position] = tokens

    def _advance(self, committed: torch.Tensor, host: torch.Tensor) -> None:
        """Move the cursors, and let rows that are done leave the batch."""
        keep = (host[:, 1] == 0).nonzero().squeeze(1)
        state = host[keep]
        if self.is_done or len(keep) == 0:
            self.host_ids = self.host_ids[:0]
            return
        _, _, counts, draft_counts, cursors, lengths = state[:, :6].unbind(1)
        self.cache.commit(committed, length=int(cursors.max()))
        if len(keep) < len(host):
            indices = keep.to(committed.device)
            self.rows = self.rows.select(indices)
            self.cache.batch_select_indices(indices)
            self.host_ids = self.host_ids[keep]
        self.rows.tokens = self.rows.tokens[:, : int(counts.max())]
        self.max_drafts = int(draft_counts.max())
        self.shortest = int(lengths.min())
        self.is_aligned = bool((counts == counts[0]).all() and (cursors == cursors[0]).all())


def decode(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor,
    stopping_criteria,
    generation_config: GenerationConfig,
    *,
    options: DecodingOptions,
    streamer=None,
    **model_kwargs,
) -> MARSGenerateOutput | torch.Tensor:
    """
    The decoding method that [`~generation.GenerationMixin.generate`] calls after it has prepared its inputs.

    Args:
        model ([`PreTrainedModel`]): The model.
        input_ids (`torch.LongTensor` of shape `(batch_size, prompt_length)`): The prompts.
        logits_processor, stopping_criteria, generation_config: As prepared by `generate`.
        options ([`DecodingOptions`]): How to decode.
        streamer ([`~generation.BaseStreamer`], *optional*): Receives each run of tokens as soon as it is accepted.

    Returns:
        [`MARSGenerateOutput`] if `generation_config.return_dict_in_generate`, else the sequences, a `torch.LongTensor`
        of shape `(batch_size, sequence_length)`.
    """
    check_supported(generation_config, logits_processor, stopping_criteria, len(input_ids), streamer is not None)
    for name in ("cache", "use_cache", "logits_to_keep"):
        model_kwargs.pop(name, None)
    pad_token = generation_config._pad_token_tensor
    decoder = MARSDecoder(
        model,
        options,
        input_ids,
        attention_mask=model_kwargs.pop("attention_mask", None),
        position_ids=model_kwargs.pop("position_ids"),
        max_length=generation_config.max_length,
        eos_token_ids=generation_config._eos_token_tensor,
        pad_token_id=0 if pad_token is None else int(pad_token),
        **model_kwargs,
    )
    steps = []
    while not decoder.is_done:
        steps.append(decoder.step())
        if streamer is not None:
            streamer.put(steps[-1].runs[0, : steps[-1].run_lengths[0]])
    if streamer is not None:
        streamer.end()

    run_lengths = [[] for _ in range(input_ids.shape[0])]
    for step in steps:
        for row, run_length in zip(step.ids.tolist(), step.run_lengths.tolist(), strict=True):
            run_lengths[row].append(run_length)
    sequences = decoder.sequences[:, : input_ids.shape[1] + max(map(sum, run_lengths))]
    if not generation_config.return_dict_in_generate:
        return sequences
    return MARSGenerateOutput(sequences=sequences, num_forward_passes=len(steps), run_lengths=run_lengths)
