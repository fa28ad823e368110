"""What `generate` returns: tokens, and how many forwards they took."""

from dataclasses import dataclass

import torch
from transformers.generation import GenerateDecoderOnlyOutput


__all__ = ["MARSGenerateOutput", "TokenRecord"]


@dataclass
class MARSGenerateOutput(GenerateDecoderOnlyOutput):
    """
    Output of `generate(..., mars_threshold=..., return_dict_in_generate=True)`.

    It has the fields of [`~generation.GenerateDecoderOnlyOutput`], and the counts of multi-token decoding. `scores`
    and `logits` hold one tensor for each generated token, from the forward that decided it; what follows the end of a
    row is zero. `cache` holds keys and values that a later call can continue from, as a [`DynamicCache`], for a batch
    of one or where a `cache` was passed: rows of a larger batch leave as they finish. It covers the slots that all
    rows filled with real tokens.

    Args:
        num_forward_passes (`int`, *optional*):
            Forward passes that the batch took, the one over the prompt included.
        run_lengths (`list[list[int]]`, *optional*):
            For each row, the number of tokens that each of its forward passes added. They sum to the row's number of
            generated tokens, the end-of-sequence token included and padding excluded.
    """

    num_forward_passes: int | None = None
    run_lengths: list[list[int]] | None = None

    @property
    def tokens_per_forward(self) -> float:
        """
        Generated tokens over forward passes, both counted row by row: a row that is done takes no more forwards. Plain
        autoregressive decoding has 1.0.
        """
        return sum(map(sum, self.run_lengths)) / sum(map(len, self.run_lengths))


class TokenRecord:
    """
    Collects one vector for each generated token, although rows advance at their own pace.

    Args:
        batch_size (`int`): Number of rows.
        prompt_length (`int`): Length of the sequences before the first token.
        device (`torch.device`): Where to keep it.
    """

    def __init__(self, batch_size: int, prompt_length: int, device: torch.device):
        self.prompt_length = prompt_length
        self.values = torch.zeros(batch_size, 0, 0, device=device)

    def add(
        self,
        values: torch.Tensor,
        first_column: torch.Tensor,
        ids: torch.Tensor,
        lengths: torch.Tensor,
        run_lengths: torch.Tensor,
    ) -> None:
        """
        Add the vectors of one run for each row.

        Args:
            values (`torch.FloatTensor` of shape `(rows, columns, size)`): One vector a column.
            first_column (`torch.LongTensor` of shape `(rows,)`): Column of each run's first token.
            ids (`torch.LongTensor` of shape `(rows,)`): Index of each row in the batch.
            lengths (`torch.LongTensor` of shape `(rows,)`): Length of each sequence before the run.
            run_lengths (`torch.LongTensor` of shape `(rows,)`): Length of each run.
        """
        missing = int((lengths + run_lengths).max()) - self.prompt_length - self.values.shape[1]
        if missing > 0:
            grown = self.values.new_zeros(
                len(self.values), max(2 * self.values.shape[1], missing, 32), values.shape[2]
            )
            grown[:, : self.values.shape[1], : self.values.shape[2]] = self.values
            self.values = grown
        position = torch.arange(int(run_lengths.max()), device=values.device)
        row, offset = (position < run_lengths[:, None]).nonzero(as_tuple=True)
        index = lengths[row] - self.prompt_length + offset
        self.values[ids[row], index] = values[row, first_column[row] + offset]

    def to_tuple(self, num_tokens: int) -> tuple[torch.Tensor, ...]:
        """One tensor of shape `(batch_size, size)` for each generated token."""
        return self.values[:, :num_tokens].unbind(1)
