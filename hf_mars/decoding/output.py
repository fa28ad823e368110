"""What `generate` returns: tokens, and how many forwards they took."""

from dataclasses import dataclass

from transformers.generation import GenerateDecoderOnlyOutput


__all__ = ["MARSGenerateOutput"]


@dataclass
class MARSGenerateOutput(GenerateDecoderOnlyOutput):
    """
    Output of `generate(..., mars_threshold=..., return_dict_in_generate=True)`.

    It has every field of [`~generation.GenerateDecoderOnlyOutput`], and the counts of multi-token decoding.

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
