"""How likely drafts hold: those that are there, and those that the next masks will give."""

from collections.abc import Sequence

import numpy as np

from .sampling import SamplingParams


__all__ = ["DraftForecast", "HoldRates"]

BIN_EDGES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995])
PRIOR_STRENGTH = 2.0  # drafts that the first guess, a draft holds as often as it is sure, counts for
MAX_COUNT = 400.0  # drafts of a bin, after which older ones count half
RECENT = 40.0  # drafts that tell how the text at hand differs from all before,
LEAST_CORRECTION, MOST_CORRECTION = 0.5, 1.5  # within limits, as drafts that are not tried correct nothing
ROW_GAIN, SHARED_GAIN = 0.15, 0.05


class HoldRates:
    """
    From the confidence of a draft to the probability that it holds, given that the drafts before it do. Counted while
    decoding, apart for rows that sample and rows that do not. On one text a model is surer than it should be, on
    another not sure enough: what held of late, over what was expected, corrects all.
    """

    def __init__(self):
        edges = np.array([0.0, *BIN_EDGES, 1.0])
        self._held = np.tile(PRIOR_STRENGTH * (edges[1:] + edges[:-1]) / 2, (2, 1))
        self._judged = np.full_like(self._held, PRIOR_STRENGTH)
        self._recent = np.zeros((2, 2))  # how many held, and how many were expected to

    def estimate(self, confidences: np.ndarray, is_sampled: np.ndarray) -> np.ndarray:
        """
        Probabilities that drafts hold, of the shape of `confidences`.

        Args:
            confidences (`np.ndarray` of shape `(rows, drafts)`): Of the drafts.
            is_sampled (`np.ndarray` of shape `(rows,)`): Which rows sample.
        """
        held, expected = self._recent.T + PRIOR_STRENGTH
        correction = np.clip(held / expected, LEAST_CORRECTION, MOST_CORRECTION)
        kind = is_sampled.astype(int)[:, None]
        bins = np.searchsorted(BIN_EDGES, confidences, side="right")
        return np.minimum((self._held / self._judged)[kind, bins] * correction[kind], 1)

    def observe(
        self, confidences: np.ndarray, is_sampled: np.ndarray, num_drafts: np.ndarray, num_accepted: np.ndarray
    ) -> None:
        """
        Count the drafts of one step that were judged: those that hold, and the first one that does not.

        Args:
            confidences (`np.ndarray` of shape `(rows, drafts)`): Of the drafts.
            is_sampled (`np.ndarray` of shape `(rows,)`): Which rows sample.
            num_drafts, num_accepted (`np.ndarray` of shape `(rows,)`): Drafts that were verified, and that held.
        """
        place = np.arange(confidences.shape[1])
        is_judged = (place < num_drafts[:, None]) & (place <= num_accepted[:, None])
        rows, columns = is_judged.nonzero()
        kind, held = is_sampled.astype(int)[rows], columns < num_accepted[rows]
        index = kind, np.searchsorted(BIN_EDGES, confidences[is_judged], side="right")
        self._recent *= ((1 - 1 / RECENT) ** np.bincount(kind, minlength=2))[:, None]
        np.add.at(self._recent, kind, np.stack([held, (self._held / self._judged)[index]], axis=1))
        np.add.at(self._held, index, held)
        np.add.at(self._judged, index, 1.0)
        scale = np.where(self._judged > MAX_COUNT, 0.5, 1.0)
        self._held *= scale
        self._judged *= scale


class DraftForecast:
    """
    For each row, the probability that the first 1, 2, ... drafts of its next group of masks all hold: a moving average
    over its own steps, which begins with that of all rows.

    Args:
        shared (`np.ndarray` of shape `(drafts,)`): The average over all rows, which is moved in place.
    """

    def __init__(self, shared: np.ndarray):
        self._shared = shared
        self._params: list[SamplingParams] = []
        self.survival = np.zeros((0, len(shared)))

    def follow(self, params: Sequence[SamplingParams]) -> None:
        """Have a row for each of these, in this order; rows are known by the identity of their parameters."""
        places = {id(row): place for place, row in enumerate(self._params)}
        known = np.concatenate([self.survival, self._shared[None]])
        self.survival = known[[places.get(id(row), len(self._params)) for row in params]]
        self._params = list(params)

    def observe(self, survival: np.ndarray, num_drafts: np.ndarray) -> None:
        """
        Learn from the drafts of one step.

        Args:
            survival (`np.ndarray` of shape `(rows, drafts)`): Probability that the first 1, 2, ... hold.
            num_drafts (`np.ndarray` of shape `(rows,)`): How many drafts each row got; 0 says nothing.
        """
        is_there = num_drafts > 0
        if not is_there.any():
            return
        rows, last = np.arange(len(num_drafts)), np.maximum(num_drafts - 1, 0)
        # What comes after the last one keeps its share of it.
        ratio = survival[rows, last] / np.maximum(self.survival[rows, last], 1e-6)
        target = np.minimum(self.survival * ratio[:, None], 1)
        width = survival.shape[1]
        is_seen = np.arange(width) < num_drafts[:, None]
        target[:, :width] = np.where(is_seen, survival, target[:, :width])
        target = np.minimum.accumulate(target, axis=1)
        self.survival = self.survival + ROW_GAIN * is_there[:, None] * (target - self.survival)
        self._shared += SHARED_GAIN * (target[is_there].mean(0) - self._shared)
