"""What forwards cost, by how much they read."""

import math
import statistics
from collections import deque
from collections.abc import Callable


__all__ = ["ForwardCosts"]

NUM_RECENT = 9
ENOUGH = 2  # the first forward of a new shape is often slower
BANDS_PER_DOUBLING = 4


class ForwardCosts:
    """
    Recent times of forwards, kept apart by the number of rows, in bands a fifth wide, and by columns a row.

    What is asked of it is a curve: how much longer a forward takes with several columns a row than with one. For a
    number of rows that was not measured both ways, the curve of the nearest number that was stands in.
    """

    def __init__(self):
        self._bands: dict[int, dict[int, deque[tuple[float, float]]]] = {}

    def add(self, num_rows: int, num_columns: int, seconds: float) -> None:
        """
        Record a forward.

        Args:
            num_rows (`int`): Its rows.
            num_columns (`int`): Its columns, those of all rows together.
            seconds (`float`): The time from the one before it.
        """
        widths = self._bands.setdefault(band(num_rows), {})
        recent = widths.setdefault(math.ceil(num_columns / num_rows), deque(maxlen=NUM_RECENT))
        recent.append((num_columns / num_rows, seconds / num_rows))

    def seconds(self, num_rows: int) -> float | None:
        """Seconds of a forward of about so many rows and one column a row; `None` if it was not measured."""
        measured = self._measured(band(num_rows), 1)
        return None if measured is None else measured[1] * num_rows

    def curve(self, num_rows: int) -> Callable[[float], float] | None:
        """
        A function from columns a row to how much longer a forward takes than with one; `None` while too little was
        measured.
        """
        wanted = band(num_rows)
        for nearest in sorted(self._bands, key=lambda each: abs(each - wanted)):
            measured = [self._measured(nearest, width) for width in sorted(self._bands[nearest])]
            points = [point for point in measured if point is not None]
            if len(points) > 1 and points[0][0] == 1:
                return lambda columns: interpolate(points, columns) / points[0][1]  # noqa: B023 it returns
        return None

    def _measured(self, band: int, width: int) -> tuple[float, float] | None:
        """Columns a row and seconds a row of the recent forwards; `None` if they are too few."""
        recent = self._bands.get(band, {}).get(width, ())
        if len(recent) < ENOUGH:
            return None
        return statistics.fmean(columns for columns, _ in recent), statistics.median_low([time for _, time in recent])


def band(num_rows: int) -> int:
    return round(BANDS_PER_DOUBLING * math.log2(num_rows))


def interpolate(points: list[tuple[float, float]], x: float) -> float:
    """The piecewise linear function through the points, its ends prolonged."""
    index = next((index for index, (right, _) in enumerate(points[1:-1]) if x <= right), len(points) - 2)
    (left, low), (right, high) = points[index : index + 2]
    return low + (high - low) * (x - left) / (right - left)
