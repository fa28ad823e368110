"""What forwards cost, by how much they read."""

import math
import statistics
from collections import deque
from collections.abc import Callable


__all__ = ["ForwardCosts"]

NUM_RECENT = 9
ENOUGH = 2  # the first forward of a new shape is often slower
NUM_PACES = 5
BANDS_PER_DOUBLING = 4


class ForwardCosts:
    """
    Recent times of forwards, kept apart by the number of rows, in bands a fifth wide, and by columns a row.

    What is asked of it is a curve: how much longer a forward takes with several columns a row than with one. For a
    number of rows that was not measured both ways, the curve of the nearest number that was stands in.

    A machine that others use runs slower at times, and what is compared was measured at different times. So times are
    kept as multiples of a pace: how much longer the last few forwards took than what is on record for their kind.
    """

    def __init__(self):
        self._bands: dict[int, dict[int, deque[tuple[float, float]]]] = {}
        self._paces: deque[float] = deque([1.0], maxlen=NUM_PACES)

    def add(self, num_rows: int, num_columns: int, seconds: float) -> None:
        """
        Record a forward.

        Args:
            num_rows (`int`): Its rows.
            num_columns (`int`): Its columns, those of all rows together.
            seconds (`float`): The time from the one before it.
        """
        columns_per_row, width = num_columns / num_rows, math.ceil(num_columns / num_rows)
        if self._measured(band(num_rows), width) is not None:
            expected = interpolate(self._points(band(num_rows)), columns_per_row)
            self._paces.append(seconds / num_rows / expected)
        recent = self._bands.setdefault(band(num_rows), {}).setdefault(width, deque(maxlen=NUM_RECENT))
        recent.append((columns_per_row, seconds / num_rows / statistics.median_low(self._paces)))

    def is_known(self, num_rows: int) -> bool:
        """Whether forwards of about so many rows and one column a row were measured."""
        return self._measured(band(num_rows), 1) is not None

    def curve(self, num_rows: int) -> Callable[[float], float] | None:
        """
        A function from columns a row to how much longer a forward takes than with one; `None` while too little was
        measured.
        """
        wanted = band(num_rows)
        for nearest in sorted(self._bands, key=lambda each: abs(each - wanted)):
            points = self._points(nearest)
            if len(points) > 1 and points[0][0] == 1:
                return lambda columns: interpolate(points, columns) / points[0][1]  # noqa: B023 it returns
        return None

    def _points(self, band: int) -> list[tuple[float, float]]:
        """Columns a row and time a row, of every width that was measured with these numbers of rows."""
        measured = [self._measured(band, width) for width in sorted(self._bands.get(band, ()))]
        return [point for point in measured if point is not None]

    def _measured(self, band: int, width: int) -> tuple[float, float] | None:
        """Columns a row and time a row of the recent forwards; `None` if they are too few."""
        recent = self._bands.get(band, {}).get(width, ())
        if len(recent) < ENOUGH:
            return None
        return statistics.fmean(columns for columns, _ in recent), statistics.median_low([time for _, time in recent])


def band(num_rows: int) -> int:
    return round(BANDS_PER_DOUBLING * math.log2(num_rows))


def interpolate(points: list[tuple[float, float]], x: float) -> float:
    """The piecewise linear function through the points, its ends prolonged; of one point, its value."""
    if len(points) == 1:
        return points[0][1]
    index = next((index for index, (right, _) in enumerate(points[1:-1]) if x <= right), len(points) - 2)
    (left, low), (right, high) = points[index : index + 2]
    return low + (high - low) * (x - left) / (right - left)
