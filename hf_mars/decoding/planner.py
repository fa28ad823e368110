"""Choose each step by what it costs and by what it is expected to add."""

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

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
STEPS_BETWEEN_PLAIN_ONES = 128  # wide ones, after which a plain one is timed again
FIRST_PATIENCE, LAST_PATIENCE = 4, 64  # plain steps before a probe


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
        survival (`torch.FloatTensor` of shape `(MAX_DRAFTS,)`): See [`DraftForecast`].
        probing ([`Probing`]): When to try masks again.
    """

    costs: StepCosts = field(default_factory=StepCosts)
    rates: HoldRates = field(default_factory=HoldRates)
    survival: torch.Tensor = field(default_factory=lambda: 0.6 ** torch.arange(1, MAX_DRAFTS + 1, dtype=torch.float64))
    probing: Probing = field(default_factory=Probing)


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

    Rows with a threshold of their own, and lossy ones, keep all their drafts and masks.

    Args:
        model ([`PreTrainedModel`]): The model, whose [`Experience`] is used and added to.
    """

    def __init__(self, model: PreTrainedModel):
        self.experience = get_experience(model)
        self._forecast = DraftForecast(self.experience.survival)
        self._sampling: SamplingTensors | None = None
        self._last: tuple[int, int, float] | None = None  # rows, columns and seconds of the last step
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
        holds = self._hold_probabilities(host, sampling)
        self._forecast.observe(holds, host.num_drafts * sampling.is_planned)
        if most == 0:
            return plan_fixed(torch.zeros_like(host.num_drafts), num_masks=0)
        plan = self._choose(batch, holds, num_masks, most)
        return self._explore(plan, host, num_masks, most)

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
        num_rows = len(host.ids)
        if self._last is not None and self._last[0] == num_rows:
            self.experience.costs.observe(num_rows, self._last[1:], (num_columns, seconds))
        self._last = (num_rows, num_columns, seconds)
        num_drafts = host.num_drafts * sampling.is_planned
        if host.confidences.shape[1] and num_drafts.any():
            self.experience.rates.observe(
                host.confidences, sampling.host_is_sampled, num_drafts, output.num_accepted_tokens
            )

    def _hold_probabilities(self, host: HostRows, sampling: SamplingTensors) -> torch.Tensor:
        """Probability that the first 1, 2, ... drafts of each row hold, of shape `(rows, max_drafts)`."""
        width = max(int(host.num_drafts.max()), 1)
        confidences = host.confidences[:, :width]
        confidences = torch.nn.functional.pad(confidences, (0, width - confidences.shape[1]))
        holds = self.experience.rates.estimate(confidences, sampling.host_is_sampled)
        return (holds * (torch.arange(width) < host.num_drafts[:, None])).cumprod(1)

    def _choose(self, batch: Batch, holds: torch.Tensor, least: int, most: int) -> Plan:
        """The plan with the largest expected gain, of those with at least and at most so many masks a group."""
        host, sampling = batch.host, batch.sampling
        is_free = sampling.is_planned & host.is_active
        weight = is_free.double()
        num_rows = max(int(is_free.sum()), 1)
        remaining = sampling.host_max_lengths - host.length
        survival = self._forecast.survival[:, :most]
        survival = torch.nn.functional.pad(survival, (0, most - survival.shape[1]))
        survival = survival * (torch.arange(1, most + 1) < remaining[:, None])
        costs = self.experience.costs.estimate(len(host.ids))
        rate = self._best_rate(survival[is_free].mean(0), num_rows, costs, max_columns(sampling.largest_block))

        # What drafts add, and how likely each number of them holds, by the number that is verified
        max_drafts = holds.shape[1] if int(host.num_drafts.max()) else 0
        reached = torch.nn.functional.pad(holds[:, :max_drafts], (1, 0), value=1.0)  # (rows, 1 + max_drafts)
        added = reached.cumsum(1) - 1
        place = torch.arange(max_drafts + 1)
        exactly = reached - torch.nn.functional.pad(reached[:, 1:], (0, 1))
        exactly = exactly[:, None] * (place[:, None] > place) + torch.diag_embed(reached)
        kept = host.num_drafts * (~is_free & host.is_active)
        is_possible = place <= torch.minimum(host.num_drafts, remaining - 1)[:, None]
        is_possible = is_possible.where(is_free[:, None], place == kept[:, None])
        # The likeliest groups come first
        order = exactly.argsort(dim=-1, descending=True, stable=True)
        covered = exactly.gather(-1, order).cumsum(-1)  # (rows, verified, groups)
        # What a group of so many masks is worth to each row
        share = (costs[1 : most + 1] - costs[0]) * rate / num_rows
        worth = (survival.cumsum(1) - share).clamp(min=0).cummax(1).values
        worth = torch.nn.functional.pad(worth, (1, 0))  # (rows, masks)

        value = added[:, :, None, None] + covered[..., None] * worth[:, None, None]  # (rows, verified, groups, masks)
        value = value.masked_fill(~is_possible[:, :, None, None], -torch.inf)
        best, verified = value.cummax(1)
        total = (best.nan_to_num(neginf=0.0) * weight[:, None, None, None]).sum(0)
        # Columns, and what they cost
        pending = int(host.num_pending.max())
        fixed = int(kept.max())
        groups, masks = torch.arange(1, max_drafts + 2), torch.arange(most + 1)
        columns = pending + place[:, None, None] + groups[:, None] * masks
        limit = max(max_columns(sampling.largest_block), pending + fixed + least)
        is_allowed = (columns <= limit) & (place[:, None, None] >= fixed) & (masks >= least)
        gain = total - rate * costs[(columns - 1).clamp(max=len(costs) - 1)]
        chosen = gain.masked_fill(~is_allowed, -torch.inf).argmax()
        drafts, group, num_masks = torch.unravel_index(chosen, gain.shape)
        num_drafts = verified[:, drafts, group, num_masks].where(is_free, kept)
        rows = torch.arange(len(num_drafts))
        chosen_groups = torch.minimum(order[rows, num_drafts, : int(group) + 1], num_drafts[:, None])
        chosen_groups = chosen_groups.where(is_free[:, None], num_drafts[:, None])
        return Plan(num_drafts, chosen_groups, int(num_masks))

    def _best_rate(self, survival: torch.Tensor, num_rows: int, costs: torch.Tensor, limit: int) -> float:
        """Tokens within reach in the time of one plain step, if all steps were alike."""
        best, expected = float(num_rows), 1.0
        for masks, holds in enumerate(survival.tolist(), start=1):
            expected += holds
            wide = masks + 1 + (masks + 1) * masks
            if wide <= limit:
                best = max(best, num_rows * expected / float(costs[wide - 1]))
            # One group: a step after a rejection has no drafts.
            with_drafts = 1 / (2 - holds)
            if 2 * masks + 1 <= limit:
                time = with_drafts * costs[2 * masks] + (1 - with_drafts) * costs[masks]
                best = max(best, num_rows * (1 + with_drafts * (expected - 1)) / float(time))
        return best

    def _explore(self, plan: Plan, host: HostRows, least: int, most: int) -> Plan:
        """Now and then another step than the best one, to learn what it costs or whether masks pay again."""
        probing, costs = self.experience.probing, self.experience.costs
        is_plain = plan.num_masks == 0 and not plan.num_drafts.any()
        was_probe, self._is_probe = self._is_probe, False
        if is_plain and most > 0:
            self._num_wide = 0
            if was_probe:
                probing.failed()
            if probing.is_due():
                self._is_probe = True
                return plan_fixed(plan.num_drafts, num_masks=1)
        elif not is_plain and least == 0:
            if was_probe:
                probing.paid()
            self._num_wide += 1
            is_stale = self._num_wide > STEPS_BETWEEN_PLAIN_ONES
            is_new = self._num_wide > 2 and not costs.is_known(len(host.ids))
            if (is_stale or is_new) and (not host.num_drafts.any() or self._num_wide % 4 == 0):
                self._num_wide = 0
                return plan_fixed(torch.zeros_like(plan.num_drafts), num_masks=0)
        return plan
