"""Log-probabilities of generated tokens, for the rows that want them."""

import torch

from ..decoding import MARSDecoder
from .request import TokenLogprob


__all__ = ["LogprobRecord"]


class LogprobRecord:
    """
    Stands in the place of a decoder's record of logits, and keeps of each run what OpenAI's `logprobs` asks for.

    Args:
        decoder ([`MARSDecoder`]): The decoder.
        wanted (`dict[int, int]`): For each row that wants them, how many alternatives.
    """

    def __init__(self, decoder: MARSDecoder, wanted: dict[int, int]):
        self.decoder, self.wanted = decoder, wanted
        self.by_row: dict[int, list[TokenLogprob]] = {}

    def add(
        self,
        values: torch.Tensor,
        first_column: torch.Tensor,
        ids: torch.Tensor,
        lengths: torch.Tensor,
        run_lengths: torch.Tensor,
    ) -> None:
        """See [`TokenRecord.add`]; `values` are logits of shape `(rows, columns, vocab_size)`."""
        for index, row in enumerate(ids.tolist()):
            if row not in self.wanted:
                continue
            num_tokens, column, length = (int(column[index]) for column in (run_lengths, first_column, lengths))
            logits = values[index, column : column + num_tokens]
            logits[:, self.decoder.mask_token_id] = -torch.inf
            logprobs = logits.log_softmax(-1)
            tokens = self.decoder.sequences[row, length : length + num_tokens]
            chosen = logprobs.gather(1, tokens[:, None]).squeeze(1).tolist()
            best = logprobs.topk(self.wanted[row], dim=-1)
            alternatives = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            self.by_row[row] = [
                TokenLogprob(logprob, list(zip(token_ids, others, strict=True)))
                for logprob, (token_ids, others) in zip(chosen, alternatives, strict=True)
            ]
