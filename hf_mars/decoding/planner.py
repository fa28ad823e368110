"""Choose each step by what it costs and by what it is expected to add."""

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers import PreTrainedModel

from .batch import Batch
from .draft_forecast import DraftForecast, HoldRates
from .output import StepOutput
from .plan import Plan, max_columns, plan_fixed
from .rows import HostRows
from .sampling import SamplingTensors
from .step_costs import StepCosts


__all__ = ["Planner", "get_experience"]

MAX_DRAFTS = 63
STEPS_BETWEEN_PLAIN_ONES = 8, 64  # wide ones, after which a plain one is timed again: more if it costs more tokens
LARGE_ADVANTAGE = 0.5  # tokens a row over a plain step, from which it is the larger number
MARGIN = 0.04  # tokens a row by which a plan must be better than a plain step, as times are never known exactly
FIRST_PATIENCE, LAST_PATIENCE = 8, 64  # plain steps before a probe
UNSURE_END = 0.25  # share of what a row has left within which nobody knows which of two rows ends last


class Probing:
    """When to try masks again after they did not pay: rarer the longer they fail."""

    def __init__(self):
        self._patience, self._num_plain = FIRST_PATIENCE, 0

    def is_due(self) -> bool:
        """Count a plain step. Whether it should be a probe instead."""
        self._num_plain += 1
        return self._num_plain > self._patience

    def failed(self) -> None:
        """A probe was made, and masks do not pay yet."""
        self._patience, self._num_plain = min(2 * self._patience, LAST_PATIENCE), 0

    def paid(self) -> None:
        """Masks pay again."""
        self._patience, self._num_plain = FIRST_PATIENCE, 0


@dataclass(frozen=True)
class Experience:
    """
    What all calls on one model have learned.

    Args:
        costs ([`StepCosts`]): What steps cost.
        rates ([`HoldRates`]): How often drafts hold.
        survival (`np.ndarray` of shape `(MAX_DRAFTS,)`): See [`DraftForecast`].
        probing ([`Probing`]): When to try masks again.
    """

    costs: StepCosts = field(default_factory=StepCosts)
    rates: HoldRates = field(default_factory=HoldRates)
    survival: np.ndarray = field(default_factory=lambda: 0.6 ** np.arange(1.0, MAX_DRAFTS + 1))
    probing: Probing = field(default_factory=Probing)


@dataclass(frozen=True)
class Limits:
    """
    What a plan must keep to.

    Args:
        least, most (`int`): Masks of a group.
        columns (`int`): Columns at most.
    """

    least: int
    most: int
    columns: int


_experiences: "WeakKeyDictionary[PreTrainedModel, Experience]" = WeakKeyDictionary()


def get_experience(model: PreTrainedModel) -> Experience:
    """What was learned of a model's steps; it lives as long as the model."""
    return _experiences.setdefault(model, Experience())


class Planner:
    """
    Plans the steps of a batch for the most expected tokens a second.

    A draft is worth the probability that it and all before it hold. A group of masks is worth what its drafts will add
    to the next step beyond their cost there, times the probability that it is the group that follows. A column costs
    what it lengthens the step, times the tokens a second that are within reach. The plan with the largest difference
    is taken, as in the admission of drafts by confidence and cost of DSpark; it may be the plain step.

    A batch that no row joins takes as long as its last row. There a token counts more in rows that will end late.

    Rows with a threshold of their own, and lossy ones, keep all their drafts and masks.

    Args:
        model ([`PreTrainedModel`]): The model.
        experience ([`Experience`], *optional*): What is used and added to; by default the model's own.
        max_groups (`int`, *optional*): Groups of masks in a step at most.
    """

    def __init__(self, model: PreTrainedModel, experience: Experience | None = None, max_groups: int | None = None):
        self.experience, self.max_groups = experience or get_experience(model), max_groups
        self._forecast = DraftForecast(self.experience.survival)
        self._sampling: SamplingTensors | None = None
        self._num_wide = 0
        self._is_probe = False

    def plan(self, batch: Batch, num_masks: int) -> Plan:
        """
        The next step.

        Args:
            batch ([`Batch`]): The rows.
            num_masks (`int`): Masks that rows with a fixed threshold need.
        """
        host, sampling = batch.host, batch.sampling
        if self._sampling is not sampling:
            self._forecast.follow(sampling.params)
            self._sampling = sampling
        most = max(num_masks, min(sampling.largest_block, batch.remaining) - 1)
        if batch.is_first:  # beside a prompt they cost little, and they tell how sure the model is
            return plan_fixed(host.num_drafts, most)
        is_free = (sampling.is_planned & host.is_active).numpy()
        holds = self._hold_probabilities(host, sampling)
        self._forecast.observe(holds, host.num_drafts.numpy() * is_free)
        if most == 0:
            return plan_fixed(torch.zeros_like(host.num_drafts), num_masks=0)
        limits = Limits(num_masks, most, max_columns(sampling.largest_block))
        plan, advantage = self._choose(batch, is_free, holds, limits)
        return self._explore(plan, advantage, host, num_masks)

    def observe(
        self, host: HostRows, sampling: SamplingTensors, output: StepOutput, num_columns: int, seconds: float
    ) -> None:
        """
        Learn from a step.

        Args:
            host ([`HostRows`]): The rows as they were before it.
            sampling ([`SamplingTensors`]): How they decode.
            output ([`StepOutput`]): What it added.
            num_columns (`int`): Columns of its window.
            seconds (`float`): What it took.
        """
        self.experience.costs.observe(len(host.ids), num_columns, seconds)
        num_drafts = (host.num_drafts * sampling.is_planned).numpy()
        if host.confidences.shape[1] and num_drafts.any():
            self.experience.rates.observe(
                host.confidences.numpy(),
                sampling.host_is_sampled.numpy(),
                num_drafts,
                output.num_accepted_tokens.numpy(),
            )

    def _hold_probabilities(self, host: HostRows, sampling: SamplingTensors) -> np.ndarray:
        """Probability that the first 1, 2, ... drafts of each row hold, of shape `(rows, max_drafts)`, 1 at least."""
        num_drafts, confidences = host.num_drafts.numpy(), host.confidences.numpy()
        width = max(int(num_drafts.max()), 1)
        holds = np.zeros((len(num_drafts), width))
        known = confidences[:, :width]
        holds[:, : known.shape[1]] = self.experience.rates.estimate(known, sampling.host_is_sampled.numpy())
        return (holds * (np.arange(width) < num_drafts[:, None])).cumprod(1)

    def _choose(self, batch: Batch, is_free: np.ndarray, holds: np.ndarray, limits: Limits) -> tuple[Plan, float]:
        """The plan with the largest expected gain, and by how many tokens a row it is better than a plain step."""
        host, num_rows = batch.host, max(int(is_free.sum()), 1)
        num_drafts, rows = host.num_drafts.numpy(), np.arange(len(is_free))
        remaining = (batch.sampling.host_max_lengths - host.length).numpy()
        kept = num_drafts * (~is_free & host.is_active.numpy())
        survival = np.zeros((len(rows), limits.most))
        survival[:, :MAX_DRAFTS] = self._forecast.survival[:, : limits.most]
        survival *= np.arange(1, limits.most + 1) < remaining[:, None]
        costs = self.experience.costs.estimate(len(rows))
        weights = self._weigh(batch, is_free, remaining / (1 + survival.sum(1)))
        rate = self._best_rate((weights[:, None] * survival).sum(0) / num_rows, num_rows, costs, limits.columns)

        # What verified drafts add, and how likely each number of them holds, by how many are verified
        max_drafts = int(num_drafts.max())
        places = np.arange(max_drafts + 1)
        reached = np.concatenate([np.ones((len(rows), 1)), holds[:, :max_drafts]], axis=1)
        added = reached.cumsum(1) - 1
        exactly = reached - np.concatenate([reached[:, 1:], np.zeros((len(rows), 1))], axis=1)
        exactly = np.where(places == places[:, None], reached[:, None], exactly[:, None] * (places < places[:, None]))
        order = np.argsort(-exactly, axis=-1, kind="stable")  # the likeliest groups come first
        covered = np.take_along_axis(exactly, order, -1).cumsum(-1)  # (rows, verified, groups)
        is_possible = np.where(
            is_free[:, None],
            places <= np.minimum(num_drafts, remaining - 1)[:, None],
            places == kept[:, None],
        )
        # What a group of so many masks is worth to each row
        share = (costs[1 : limits.most + 1] - costs[0]) * rate / num_rows
        worth = np.zeros((len(rows), limits.most + 1))
        expected = weights[:, None] * survival.cumsum(1)
        worth[:, 1:] = np.maximum.accumulate(np.maximum(expected - share, 0), axis=1)

        added *= weights[:, None]
        value = added[:, :, None, None] + covered[..., None] * worth[:, None, None]  # (rows, verified, groups, masks)
        value = np.where(is_possible[:, :, None, None], value, -np.inf)
        best = np.maximum.accumulate(value, axis=1)
        total = best[is_free].sum(0)
        # Columns, and what they cost
        groups, masks = places + 1, np.arange(limits.most + 1)
        pending = int(host.num_pending.max())
        columns = pending + places[:, None, None] + groups[:, None] * masks
        is_allowed = (columns <= max(limits.columns, pending + kept.max() + limits.least)) & (masks >= limits.least)
        is_allowed &= (places >= kept.max())[:, None, None] & (groups <= (self.max_groups or len(groups)))[:, None]
        gain = np.where(is_allowed, total - rate * costs[np.minimum(columns, len(costs)) - 1], -np.inf)
        gain[0, 0, 0] += MARGIN * num_rows
        verified, group, mask = np.unravel_index(gain.argmax(), gain.shape)
        chosen = np.where(is_free, value[:, : verified + 1, group, mask].argmax(1), kept)
        chosen_groups = np.minimum(order[rows, chosen, : group + 1], chosen[:, None])
        chosen_groups = np.where(is_free[:, None], chosen_groups, chosen[:, None])
        advantage = float(gain.max() - gain[0, 0, 0]) / num_rows
        return Plan(torch.from_numpy(chosen), torch.from_numpy(chosen_groups), int(mask)), advantage

    def _weigh(self, batch: Batch, is_free: np.ndarray, num_steps: np.ndarray) -> np.ndarray:
        """What a token counts in each row, of shape `(rows,)`, on average 1; `num_steps` are those it still needs."""
        if batch.is_open or not is_free.any():
            return is_free.astype(float)
        lead = np.maximum(1 - num_steps / num_steps[is_free].max(), 0)  # below 0: rows that are done or not planned
        weights = is_free * np.exp(-lead / UNSURE_END)
        weights *= is_free.sum() / weights.sum()
        # A row that leaves makes the steps of the others cheaper, too.
        share = self.experience.costs.rows_share(len(is_free))
        return is_free * (share + (1 - share) * weights)

    def _best_rate(self, survival: np.ndarray, num_rows: int, costs: np.ndarray, limit: int) -> float:
        """Tokens within reach in the time of one plain step, if all steps were alike."""
        best, expected = float(num_rows), 1.0
        for masks, holds in enumerate(survival.tolist(), start=1):
            expected += holds
            wide = masks + 1 + (masks + 1) * masks
            if wide <= limit and (self.max_groups is None or masks < self.max_groups):
                best = max(best, num_rows * expected / float(costs[wide - 1]))
            # One group: a step after a rejection has no drafts.
            with_drafts = 1 / (2 - holds)
            if 2 * masks + 1 <= limit:
                time = with_drafts * costs[2 * masks] + (1 - with_drafts) * costs[masks]
                best = max(best, num_rows * (1 + with_drafts * (expected - 1)) / float(time))
        return best

    def _explore(self, plan: Plan, advantage: float, host: HostRows, least: int) -> Plan:
        """Now and then another step than the best one, to learn what it costs or whether masks pay again."""
        probing, costs = self.experience.probing, self.experience.costs
        is_plain = plan.num_masks == 0 and not plan.num_drafts.any()
        was_probe, self._is_probe = self._is_probe, False
        if is_plain:
            self._num_wide = 0
            if was_probe:
                probing.failed()
            if probing.is_due():
                self._is_probe = True
                return plan_fixed(plan.num_drafts, num_masks=1)
        elif least == 0:
            if was_probe:
                probing.paid()
            self._num_wide += 1
            fewest, most = STEPS_BETWEEN_PLAIN_ONES
            is_stale = self._num_wide > fewest + (most - fewest) * min(advantage / LARGE_ADVANTAGE, 1)
            is_new = self._num_wide > 3 and not costs.is_known(len(host.ids))
            if is_stale or is_new:
                self._num_wide = 0
                return plan_fixed(torch.zeros_like(plan.num_drafts), num_masks=0)
        return plan
