"""What forwards cost, by how much they read."""

import math
import statistics
from collections import deque
from collections.abc import Callable


__all__ = ["ForwardCosts"]

BANDS_PER_DOUBLING = 4
CHAPTER = 16  # forwards whose times are compared with each other
ENOUGH = 2  # the first forward of a new shape is often slower
NUM_RATIOS = 5

Point = tuple[float, float]  # columns a row, and how much longer than with one


class ForwardCosts:
    """
    How much longer a forward takes with several columns a row than with one, by the number of rows, in bands a fifth
    wide. For a number of rows that was not measured both ways, the nearest one that was stands in.

    A machine that others use is slower at times. So only forwards that ran soon after one another are compared: each
    chapter of a few forwards, if there were some of both kinds, gives a ratio, and the last few of these count.
    """

    def __init__(self):
        self._num_forwards = 0
        self._starts: dict[int, int] = {}
        self._chapters: dict[int, list[Point]] = {}  # by band: columns a row, and seconds a row
        self._ratios: dict[int, dict[int, deque[Point]]] = {}  # by band and columns a row

    def add(self, num_rows: int, num_columns: int, seconds: float) -> None:
        """
        Record a forward.

        Args:
            num_rows (`int`): Its rows.
            num_columns (`int`): Its columns, those of all rows together.
            seconds (`float`): The time from the one before it.
        """
        here = band(num_rows)
        self._num_forwards += 1
        if here not in self._chapters or self._num_forwards >= self._starts[here] + CHAPTER:
            for width, point in compare(self._chapters.get(here, [])).items():
                self._ratios.setdefault(here, {}).setdefault(width, deque(maxlen=NUM_RATIOS)).append(point)
            self._starts[here], self._chapters[here] = self._num_forwards, []
        self._chapters[here].append((num_columns / num_rows, seconds / num_rows))

    def num_compared(self, num_rows: int) -> int:
        """
        How often both kinds of forwards were compared with so many rows, or within a factor of two; no more than are
        remembered.
        """
        wanted = band(num_rows)
        near = [each for each in self._chapters if abs(each - wanted) < BANDS_PER_DOUBLING]
        return max(map(self._num_compared, near), default=0)

    def _num_compared(self, band: int) -> int:
        earlier = max(map(len, self._ratios.get(band, {}).values()), default=0)
        return earlier + bool(compare(self._chapters.get(band, [])))

    def curve(self, num_rows: int) -> Callable[[float], float] | None:
        """
        A function from columns a row to how much longer a forward takes than with one; `None` while nothing was
        measured.
        """
        wanted = band(num_rows)
        for nearest in sorted(self._chapters, key=lambda each: abs(each - wanted)):
            points = self._points(nearest)
            if len(points) > 1:
                return lambda columns: interpolate(points, columns)  # noqa: B023 it returns
        return None

    def _points(self, band: int) -> list[Point]:
        """What is known of a band, the chapter included that is being written."""
        ratios = {width: list(points) for width, points in self._ratios.get(band, {}).items()}
        for width, point in compare(self._chapters.get(band, [])).items():
            ratios.setdefault(width, []).append(point)
        points = [middle(points) for _, points in sorted(ratios.items())]
        return [(1.0, 1.0), *points]


def band(num_rows: int) -> int:
    return round(BANDS_PER_DOUBLING * math.log2(num_rows))


def compare(chapter: list[Point]) -> dict[int, Point]:
    """For each width of some forwards, how much longer they took than those of one column a row."""
    by_width: dict[int, list[Point]] = {}
    for columns, seconds in chapter:
        by_width.setdefault(math.ceil(columns), []).append((columns, seconds))
    measured = {width: middle(points) for width, points in by_width.items() if len(points) >= ENOUGH}
    if 1 not in measured:
        return {}
    _, plain = measured.pop(1)
    return {width: (columns, max(1.0, seconds / plain)) for width, (columns, seconds) in measured.items()}


def middle(points: list[Point]) -> Point:
    return statistics.fmean(x for x, _ in points), statistics.median_low([y for _, y in points])


def interpolate(points: list[Point], x: float) -> float:
    """The piecewise linear function through two points or more, its ends prolonged."""
    index = next((index for index, (right, _) in enumerate(points[1:-1]) if x <= right), len(points) - 2)
    (left, low), (right, high) = points[index : index + 2]
    return low + (high - low) * (x - left) / (right - left)
