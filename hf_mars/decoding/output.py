"""What `generate` returns: tokens, and how many forwards they took."""

from dataclasses import dataclass

import torch
from transformers.generation import GenerateDecoderOnlyOutput


__all__ = ["MARSGenerateOutput", "StepOutput", "TokenRecord"]


@dataclass(frozen=True)
class StepOutput:
    """
    What one forward added, on the host.

    Args:
        ids (`torch.LongTensor` of shape `(rows,)`): Rows of the batch that took part.
        accepted_tokens (`torch.LongTensor` of shape `(rows, width)`): Tokens added to each, left-aligned.
        acceptance_lengths (`torch.LongTensor` of shape `(rows,)`): How many; 0 for a row that was done before.
        num_draft_tokens, num_accepted_tokens (`torch.LongTensor` of shape `(rows,)`):
            Draft tokens of each, and how many of them held, see [`AcceptanceCounts`].
        confidences (`torch.FloatTensor` of shape `(rows, width)`, *optional*): Confidence of each accepted token.
        logits (`torch.FloatTensor` of shape `(rows, width, vocab_size)`, *optional*):
            Logits of each accepted token, without processors; these stay on the device.
    """

    ids: torch.Tensor
    accepted_tokens: torch.Tensor
    acceptance_lengths: torch.Tensor
    num_draft_tokens: torch.Tensor
    num_accepted_tokens: torch.Tensor
    confidences: torch.Tensor | None = None
    logits: torch.Tensor | None = None


@dataclass
class MARSGenerateOutput(GenerateDecoderOnlyOutput):
    """
    Output of `generate(..., mars_threshold=..., return_dict_in_generate=True)`.

    It has the fields of [`~generation.GenerateDecoderOnlyOutput`], and the counts of multi-token decoding. `scores`
    and `logits` hold one tensor for each generated token, from the forward that decided it; what follows the end of a
    row is zero. `cache` holds keys and values that a later call can continue from, as a [`DynamicCache`], for a batch
    of one or where a `cache` was passed: rows of a larger batch leave as they finish. It covers the slots that all
    rows filled with real tokens.

    The counts of drafts have the names and definitions of vLLM, and are taken before a row is cut at its budget or its
    end: see [`AcceptanceCounts`].

    Args:
        num_forward_passes (`int`, *optional*):
            Forward passes that the batch took, the one over the prompt included.
        acceptance_lengths (`list[list[int]]`, *optional*):
            For each row, the number of tokens that each of its forward passes added. They sum to the row's number of
            generated tokens, the end-of-sequence token included and padding excluded.
        num_drafts (`list[int]`, *optional*):
            For each row, the forward passes that had at least one draft token. Verified decoding counts the drafts
            that a forward verified, lossy decoding the masks that it offered.
        num_draft_tokens (`list[int]`, *optional*): For each row, the draft tokens.
        num_accepted_tokens (`list[int]`, *optional*): For each row, the draft tokens that were accepted.
        num_accepted_tokens_per_pos (`list[list[int]]`, *optional*):
            For each row, the same by position in the draft, the first one first.
    """

    num_forward_passes: int | None = None
    acceptance_lengths: list[list[int]] | None = None
    num_drafts: list[int] | None = None
    num_draft_tokens: list[int] | None = None
    num_accepted_tokens: list[int] | None = None
    num_accepted_tokens_per_pos: list[list[int]] | None = None

    @property
    def tokens_per_forward(self) -> float:
        """
        Generated tokens over forward passes, both counted row by row: a row that is done takes no more forwards. Plain
        autoregressive decoding has 1.0.
        """
        lengths = self.acceptance_lengths or []
        return sum(map(sum, lengths)) / sum(map(len, lengths))

    @property
    def acceptance_rate(self) -> float:
        """Accepted over draft tokens, of all rows; 0.0 where nothing was drafted."""
        return sum(self.num_accepted_tokens or []) / max(sum(self.num_draft_tokens or []), 1)

    @property
    def mean_acceptance_length(self) -> float:
        """Mean tokens of a forward with drafts: 1 + accepted tokens over drafts, of all rows; 1.0 without drafts."""
        return 1 + sum(self.num_accepted_tokens or []) / max(sum(self.num_drafts or []), 1)


class TokenRecord:
    """
    Collects one vector for each generated token, although rows advance at their own pace.

    Args:
        batch_size (`int`): Number of rows.
        device (`torch.device`): Where to keep it.
    """

    def __init__(self, batch_size: int, device: torch.device):
        self.values = torch.zeros(batch_size, 0, 0, device=device)
        self.num_tokens = torch.zeros(batch_size, dtype=torch.long, device=device)

    def add(self, values: torch.Tensor, ids: torch.Tensor, acceptance_lengths: torch.Tensor) -> None:
        """
        Add the vectors of the tokens that one forward added.

        Args:
            values (`torch.FloatTensor` of shape `(rows, width, size)`): One vector a token, left-aligned.
            ids (`torch.LongTensor` of shape `(rows,)`): Index of each row in the batch.
            acceptance_lengths (`torch.LongTensor` of shape `(rows,)`): Number of tokens of each row.
        """
        ids, acceptance_lengths = ids.to(values.device), acceptance_lengths.to(values.device)
        start = self.num_tokens[ids]
        self.num_tokens[ids] = start + acceptance_lengths
        missing = int(self.num_tokens.max()) - self.values.shape[1]
        if missing > 0:
            grown = self.values.new_zeros(
                len(self.values), max(2 * self.values.shape[1], missing, 32), values.shape[2]
            )
            grown[:, : self.values.shape[1], : self.values.shape[2]] = self.values
            self.values = grown
        position = torch.arange(values.shape[1], device=values.device)
        row, offset = (position < acceptance_lengths[:, None]).nonzero(as_tuple=True)
        self.values[ids[row], start[row] + offset] = values[row, offset]

    def to_tuple(self, num_tokens: int) -> tuple[torch.Tensor, ...]:
        """One tensor of shape `(batch_size, size)` for each generated token."""
        return self.values[:, :num_tokens].unbind(1)
