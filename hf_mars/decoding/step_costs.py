"""What a step costs by its rows and columns, learned while decoding."""

import math
from dataclasses import dataclass

import torch


__all__ = ["StepCosts"]

MAX_COLUMNS = 128
TOKENS_FOR_FREE = 64  # first guess: so many columns double the time of a step
OUTLIER = 0.4  # largest error, in log seconds, that one step may show of a number that is known
MEMORY = 20  # steps after which an old one counts less than a new one
REACH = 0.25  # how far a measurement speaks for other widths, in log columns
SIMILAR_ROWS = 0.7  # log2 of the factor by which rows may differ whose costs are alike


@dataclass(frozen=True)
class Curve:
    """
    The steps of one number of rows.

    Args:
        error (`torch.FloatTensor` of shape `(MAX_COLUMNS,)`): Log seconds by columns, less those of the first guess.
        num_steps (`torch.FloatTensor` of shape `(MAX_COLUMNS,)`): Steps that it was learned from.
    """

    error: torch.Tensor
    num_steps: torch.Tensor


class StepCosts:
    """
    Relative times of steps, `t(rows, columns)`.

    Only ratios of times decide what a step should be, and the machine's load and the length of the texts move all
    times alike. So it learns from pairs: of two steps in a row with the same rows and different columns, how much
    longer the wider one took. Every step is timed between the copies to the host that it makes anyway.

    Widths that were not seen are estimated from those near them, and a narrower step never costs more than a wider
    one. A plain step of one column is never estimated from others once it was seen: its kernels may be others.
    """

    def __init__(self):
        self._curves: dict[int, Curve] = {}
        columns = torch.arange(1, MAX_COLUMNS + 1, dtype=torch.float64)
        self._closeness = (-(columns.log()[:, None] - columns.log()).abs() / REACH).exp()
        self._closeness[0, 1:] = self._closeness[1:, 0] = 1e-9
        self._columns = columns

    def observe(self, rows: int, first: tuple[int, float], second: tuple[int, float]) -> None:
        """
        Learn from two steps in a row.

        Args:
            rows (`int`): Rows of both.
            first, second (`tuple[int, float]`): Columns and seconds of each.
        """
        widths = [columns - 1 for columns, _ in (first, second)]
        if widths[0] == widths[1] or max(widths) >= MAX_COLUMNS:
            return
        curve = self._curves.setdefault(rows, self._first_curve(rows))
        log_seconds = self._log_estimate(rows, curve)
        measured = math.log(second[1] / first[1])
        error = measured - float(log_seconds[widths[1]] - log_seconds[widths[0]])
        known = [float(curve.num_steps[width]) for width in widths]
        if min(known) >= 2:
            error = min(max(error, -OUTLIER), OUTLIER)
        gains = [1 / (1 + min(number, MEMORY)) for number in known]
        # The number that is less known moves more.
        share = gains[1] / sum(gains)
        gain = max(gains)
        smooth = self._smooth(curve)
        for width, change in ((widths[1], share * gain * error), (widths[0], -(1 - share) * gain * error)):
            base = curve.error[width] if curve.num_steps[width] > 0 else smooth[width]
            curve.error[width] = base + change
            curve.num_steps[width] += 1

    def is_known(self, rows: int) -> bool:
        """Whether a plain step of about so many rows was measured beside wider ones."""
        nearest = self._nearest(rows)
        return nearest is not None and float(self._curves[nearest].num_steps[0]) >= 2

    def estimate(self, rows: int) -> torch.Tensor:
        """Times of steps of 1, 2, ... columns over that of a plain step, of shape `(MAX_COLUMNS,)`."""
        nearest = self._nearest(rows)
        curve = self._first_curve(rows) if nearest is None else self._curves[nearest]
        log_seconds = self._log_estimate(rows, curve)
        return (log_seconds - log_seconds[0]).exp().cummax(0).values

    def _nearest(self, rows: int) -> int | None:
        def distance(other: int) -> float:
            return abs(math.log2(other / rows))

        nearest = min(self._curves, key=distance, default=None)
        return nearest if nearest is not None and distance(nearest) <= SIMILAR_ROWS else None

    def _first_curve(self, rows: int) -> Curve:
        zeros = torch.zeros(MAX_COLUMNS, dtype=torch.float64)
        return Curve(zeros, zeros.clone())

    def _log_estimate(self, rows: int, curve: Curve) -> torch.Tensor:
        return (1 + rows * self._columns / TOKENS_FOR_FREE).log() + self._smooth(curve)

    def _smooth(self, curve: Curve) -> torch.Tensor:
        weight = self._closeness @ curve.num_steps
        return (self._closeness @ (curve.num_steps * curve.error)) / weight.clamp(min=1e-12)
