"""What a step costs by its rows and columns, learned while decoding."""

import math
from collections import deque
from statistics import median

import numpy as np


__all__ = ["StepCosts"]

MAX_COLUMNS = 128
TOKENS_FOR_DOUBLE = 64  # first guess: so many tokens double the time of a step
LEVEL_MEMORY = 7  # steps that tell how fast the machine is now
OUTLIER = 0.1  # relative error beyond which a step counts for less
FORGETTING = 0.995  # weight of a step after each further one
NOISE = 0.01  # variance of the relative error of one step
KNOWN_STEPS, KNOWN_FACTOR = 3, 2.0  # plain steps, of up to so many times as many rows, that make their time known


class StepCosts:
    """
    Relative times of steps, `t(rows, columns)`: only their ratios decide what a step should be.

    Every step is timed between the copies to the host that it makes anyway. Recursive least squares of the relative
    errors fit the times to a part for the weights that every step reads, one for each row, one for each token, and one
    for having more than one column, which other kernels serve. What slows all steps alike (other processes, longer
    texts) is the level, the median of how much longer than fitted the last steps took. It is taken out, so the fit
    learns from changes of width.
    """

    def __init__(self):
        self._weights = np.array([1.0, 0.0, 1 / TOKENS_FOR_DOUBLE, 0.0, 0.0])
        self._covariance = np.diag([1.0, 0.01, 1e-3, 0.1, 0.01])
        self._levels: deque[float] = deque(maxlen=LEVEL_MEMORY)
        self._num_plain: dict[int, int] = {}

    def observe(self, rows: int, columns: int, seconds: float) -> None:
        """
        Learn from a step.

        Args:
            rows (`int`), columns (`int`): Size of its window.
            seconds (`float`): What it took.
        """
        if columns > MAX_COLUMNS:
            return
        features = make_features(rows, np.array([columns]))[0]
        fitted = max(float(features @ self._weights), 1e-3)
        level = median(self._levels) if self._levels else math.log(seconds / fitted)
        error = seconds / math.exp(level) / fitted - 1
        self._levels.append(math.log(seconds / fitted))
        if columns == 1:
            self._num_plain[rows] = self._num_plain.get(rows, 0) + 1
        # Relative errors, of which large ones count as if they were smaller
        features = features / fitted
        error = min(max(error, -OUTLIER), OUTLIER)
        spread = self._covariance @ features
        gain = spread / (NOISE + features @ spread)
        self._weights = self._weights + gain * error
        covariance = (self._covariance - np.outer(gain, spread)) / FORGETTING
        self._covariance = np.minimum(np.maximum(covariance, -1.0), 1.0)

    def is_known(self, rows: int) -> bool:
        """Whether plain steps of about so many rows were timed."""
        similar = (n for other, n in self._num_plain.items() if 1 / KNOWN_FACTOR <= other / rows <= KNOWN_FACTOR)
        return sum(similar) >= KNOWN_STEPS

    def estimate(self, rows: int) -> np.ndarray:
        """Times of steps of 1, 2, ... columns over that of a plain step, of shape `(MAX_COLUMNS,)`."""
        times = np.maximum(make_features(rows, np.arange(1, MAX_COLUMNS + 1)) @ self._weights, 1e-3)
        return np.maximum.accumulate(times / times[0])


def make_features(rows: int, columns: np.ndarray) -> np.ndarray:
    """What the time of a step is linear in, of shape `(len(columns), 5)`."""
    is_wide = columns > 1
    ones = np.ones(len(columns))
    return np.stack([ones, rows * ones, rows * columns, is_wide, rows * is_wide], axis=1)
