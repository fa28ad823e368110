"""How likely drafts hold: those that are there, and those that the next masks will give."""

from collections.abc import Sequence

import torch

from .sampling import SamplingParams


__all__ = ["DraftForecast", "HoldRates"]

BIN_EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
PRIOR_STRENGTH = 2.0  # drafts that the first guess, a draft holds as often as it is sure, counts for
MAX_COUNT = 400.0  # drafts of a bin, after which older ones count half
ROW_GAIN, SHARED_GAIN = 0.3, 0.05


class HoldRates:
    """
    From the confidence of a draft to the probability that it holds, given that the drafts before it do. Counted while
    decoding, apart for rows that sample and rows that do not.
    """

    def __init__(self):
        edges = torch.tensor((0.0, *BIN_EDGES, 1.0), dtype=torch.float64)
        self._edges = edges[1:-1].float()
        middles = (edges[1:] + edges[:-1]) / 2
        self._held = (PRIOR_STRENGTH * middles).repeat(2, 1)
        self._judged = torch.full_like(self._held, PRIOR_STRENGTH)

    def estimate(self, confidences: torch.Tensor, is_sampled: torch.Tensor) -> torch.Tensor:
        """
        Probabilities that drafts hold.

        Args:
            confidences (`torch.FloatTensor` of shape `(rows, drafts)`): Of the drafts.
            is_sampled (`torch.BoolTensor` of shape `(rows,)`): Which rows sample.
        """
        rates = (self._held / self._judged)[is_sampled.long()]
        return rates.gather(1, torch.bucketize(confidences, self._edges, right=True))

    def observe(
        self,
        confidences: torch.Tensor,
        is_sampled: torch.Tensor,
        num_drafts: torch.Tensor,
        num_accepted: torch.Tensor,
    ) -> None:
        """
        Count the drafts of one step that were judged: those that hold, and the first one that does not.

        Args:
            confidences (`torch.FloatTensor` of shape `(rows, drafts)`): Of the drafts.
            is_sampled (`torch.BoolTensor` of shape `(rows,)`): Which rows sample.
            num_drafts, num_accepted (`torch.LongTensor` of shape `(rows,)`): Drafts that were verified, that held.
        """
        place = torch.arange(confidences.shape[1])
        is_judged = (place < num_drafts[:, None]) & (place <= num_accepted[:, None])
        index = (
            is_sampled.long()[:, None].expand_as(is_judged)[is_judged],
            torch.bucketize(confidences, self._edges, right=True)[is_judged],
        )
        held = (place < num_accepted[:, None])[is_judged].double()
        self._held.index_put_(index, held, accumulate=True)
        self._judged.index_put_(index, torch.ones_like(held), accumulate=True)
        scale = torch.where(self._judged > MAX_COUNT, 0.5, 1.0)
        self._held, self._judged = self._held * scale, self._judged * scale


class DraftForecast:
    """
    For each row, the probability that the first 1, 2, ... drafts of its next group of masks all hold: a moving average
    over its own steps, which begins with that of all rows.

    Args:
        shared (`torch.FloatTensor` of shape `(drafts,)`): The average over all rows, which is moved in place.
    """

    def __init__(self, shared: torch.Tensor):
        self._shared = shared
        self._params: list[SamplingParams] = []
        self.survival = shared.new_zeros(0, len(shared))

    def follow(self, params: Sequence[SamplingParams]) -> None:
        """Have a row for each of these, in this order; rows are known by the identity of their parameters."""
        places = {id(row): place for place, row in enumerate(self._params)}
        known = torch.cat([self.survival, self._shared[None]])
        self.survival = known[[places.get(id(row), len(self._params)) for row in params]]
        self._params = list(params)

    def observe(self, survival: torch.Tensor, num_drafts: torch.Tensor) -> None:
        """
        Learn from the drafts of one step.

        Args:
            survival (`torch.FloatTensor` of shape `(rows, drafts)`): Probability that the first 1, 2, ... hold.
            num_drafts (`torch.LongTensor` of shape `(rows,)`): How many drafts each row got; 0 says nothing.
        """
        is_there = num_drafts > 0
        if not is_there.any():
            return
        width = survival.shape[1]
        last = (num_drafts - 1).clamp(min=0)[:, None]
        # What comes after the last one keeps its share of it.
        ratio = survival.gather(1, last) / self.survival.gather(1, last).clamp(min=1e-6)
        place = torch.arange(self.survival.shape[1])
        padded = torch.nn.functional.pad(survival, (0, len(place) - width))
        target = torch.where(place < num_drafts[:, None], padded, (self.survival * ratio).clamp(max=1))
        target = torch.minimum(target, target.cummin(1).values)
        gains = ROW_GAIN * is_there[:, None]
        self.survival = self.survival + gains * (target - self.survival)
        self._shared += SHARED_GAIN * (target[is_there].mean(0) - self._shared)
