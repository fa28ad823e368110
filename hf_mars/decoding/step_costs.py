"""What a step costs by its rows and columns, learned while decoding."""

import math

import numpy as np


__all__ = ["StepCosts"]

MAX_COLUMNS = 128
TOKENS_FOR_DOUBLE = 64  # first guess: so many tokens double the time of a step
NOISE = 0.02  # variance of the log ratio of two times
OUTLIER = 0.2  # largest error of it that counts
DRIFT = np.array([0.0, 1e-7, 1e-9, 1e-6, 1e-7])  # variance that the weights gain from pair to pair
KNOWN_STEPS, KNOWN_FACTOR = 3, 2.0  # plain steps, of up to so many times as many rows, that make their time known


class StepCosts:
    """
    Relative times of steps, `t(rows, columns)`: only their ratios decide what a step should be.

    Every step is timed between the copies to the host that it makes anyway. A time is the sum of a part for the
    weights that every step reads, one for each row, one for each token, and one for having more than one column, which
    other kernels serve. What else goes on slows all steps alike, and longer texts do. So a Kalman filter learns these
    parts from the ratio of the times of two steps in a row, if they have different sizes.
    """

    def __init__(self):
        self._weights = np.array([1.0, 0.0, 1 / TOKENS_FOR_DOUBLE, 0.0, 0.0])
        self._covariance = np.diag([0.0, 0.01, 1e-3, 0.05, 0.01])  # the first one only sets the unit
        self._last: tuple[int, int, float] | None = None
        self._num_plain: dict[int, int] = {}

    def observe(self, rows: int, columns: int, seconds: float) -> None:
        """
        Learn from a step.

        Args:
            rows (`int`), columns (`int`): Size of its window.
            seconds (`float`): What it took.
        """
        last, self._last = self._last, (rows, columns, seconds)
        if columns == 1:
            self._num_plain[rows] = self._num_plain.get(rows, 0) + 1
        if last is None or last[:2] == (rows, columns) or max(last[1], columns) > MAX_COLUMNS:
            return
        features = make_features(np.array([last[0], rows]), np.array([last[1], columns]))
        times = self._predict(features)
        error = math.log(seconds / last[2]) - math.log(times[1] / times[0])
        slope = features[1] / times[1] - features[0] / times[0]  # of the log ratio, by weight
        spread = self._covariance @ slope
        gain = spread / (NOISE + slope @ spread)
        self._weights = self._weights + gain * min(max(error, -OUTLIER), OUTLIER)
        self._covariance = self._covariance - np.outer(gain, spread) + np.diag(DRIFT)

    def is_known(self, rows: int) -> bool:
        """Whether plain steps of about so many rows were timed."""
        similar = (n for other, n in self._num_plain.items() if 1 / KNOWN_FACTOR <= other / rows <= KNOWN_FACTOR)
        return sum(similar) >= KNOWN_STEPS

    def rows_share(self, rows: int) -> float:
        """The part of a plain step that would be saved without rows."""
        (time,) = self._predict(make_features(np.array([rows]), np.array([1])))
        return min(max(1 - float(self._weights[0] / time), 0.0), 1.0)

    def estimate(self, rows: int) -> np.ndarray:
        """Times of steps of 1, 2, ... columns over that of a plain step, of shape `(MAX_COLUMNS,)`."""
        columns = np.arange(1, MAX_COLUMNS + 1)
        times = self._predict(make_features(np.full_like(columns, rows), columns))
        return np.maximum.accumulate(times / times[0])

    def _predict(self, features: np.ndarray) -> np.ndarray:
        return np.maximum(features @ self._weights, 1e-3)


def make_features(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """What the times of steps of these sizes are linear in, of shape `(num_steps, 5)`."""
    is_wide = columns > 1
    return np.stack([np.ones(len(rows)), rows, rows * columns, is_wide, rows * is_wide], axis=1)
