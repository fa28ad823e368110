"""How many tokens a forward pass gave: a measurement for `evaluate.load`."""

import datasets
import evaluate
from evaluate.utils.file_utils import add_start_docstrings


DESCRIPTION = """
Generated tokens over the forward passes that it took to generate them, counted for each row of a batch until that row
was done. One token at a time gives 1. It is the ratio of the sums, so long answers weigh more than short ones.
"""

INPUTS_DESCRIPTION = """
Args:
    tokens (`list[int]`): Generated tokens of each row.
    forward_passes (`list[int]`): Forward passes of each row.

Returns:
    `dict` with `tokens_per_forward` (`float`).

Examples:

    >>> tokens_per_forward = evaluate.load("tokens_per_forward", module_type="measurement")
    >>> tokens_per_forward.compute(tokens=[60, 20], forward_passes=[20, 20])
    {'tokens_per_forward': 2.0}
"""


@add_start_docstrings(DESCRIPTION, INPUTS_DESCRIPTION)
class TokensPerForward(evaluate.Measurement):
    def _info(self) -> evaluate.MeasurementInfo:
        return evaluate.MeasurementInfo(
            description=DESCRIPTION,
            citation="",
            inputs_description=INPUTS_DESCRIPTION,
            features=datasets.Features({"tokens": datasets.Value("int64"), "forward_passes": datasets.Value("int64")}),
            reference_urls=["https://arxiv.org/abs/2604.07023"],
        )

    def _compute(self, tokens, forward_passes):  # pyrefly: ignore[bad-override]  # called by keyword
        return {"tokens_per_forward": sum(tokens) / sum(forward_passes)}
