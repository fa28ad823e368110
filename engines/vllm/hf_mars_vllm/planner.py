"""Which rows get masks: those for which they are expected to pay."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from .acceptance import Acceptance
from .costs import ForwardCosts


__all__ = ["Planner", "Progress"]

PRIOR_WEIGHT = 4.0  # forwards of its own after which a request is judged by itself as much as by the others
REQUEST_MEMORY, SHARED_MEMORY = 0.95, 0.99
LEAST = 1.03  # times the tokens a second of plain decoding that masks must promise
STAY = 1.05  # a row that has masks is counted so much better, so that rows at the margin do not come and go
FIRST_LOOK, NEXT_LOOK = 4, 32  # forwards with masks before some without are timed, at first and later
MUST_COMPARE = 3  # times that they are timed whatever it costs: one alone may have been at a bad moment
PROBE_LENGTH, TRIAL_LENGTH = 2, 4  # forwards without any masks, to time them; with masks, to see what they bring
EXPLORATION = 0.01  # share of the time that both may cost
MOST_SAVED = 32  # forwards' time that may be saved up for them


@dataclass(frozen=True)
class Progress:
    """
    What one forward did for one row.

    Args:
        num_gained (`int`): Tokens that it added; 0 while the prompt is being read.
        num_columns (`int`): Positions that it read: the last token, drafts and masks.
        num_drafts (`int`): Drafts among them.
    """

    num_gained: int
    num_columns: int
    num_drafts: int


@dataclass
class Row:
    """A request that is running."""

    acceptance: Acceptance = field(default_factory=lambda: Acceptance(REQUEST_MEMORY))
    has_masks: bool = False
    trial: int = 0  # forwards left in which it has masks whatever is expected of them
    num_trials: int = 0


class Planner:
    """
    Decides before each forward which rows get masks, so that tokens a second are the most.

    1. Every forward is timed, if it only decoded; every row's gain from masks is averaged, starting from what other
       requests gained.
    2. Rows are taken in the order of what they gain for a column, as many as make
       `(rows + gains) / time of a forward with these columns` the largest.
    3. What was not seen for long is tried again: a few forwards without masks, to know their time, or masks for a row
       that has none, to know their gain. Both together may cost 1% of the time.

    Args:
        block_size (`int`): Most tokens that a forward adds to a row.
        clock (`Callable`, *optional*): Tells seconds; for tests.
    """

    def __init__(self, block_size: int, clock: Callable[[], float] = time.perf_counter):
        num_masks = block_size - 1
        self.clock, self.costs = clock, ForwardCosts()
        # Good masks until it is known better: they are tried first.
        self.shared = Acceptance(SHARED_MEMORY, num_forwards=1, num_tokens=num_masks, num_columns=2 * num_masks)
        self.rows: dict[str, Row] = {}
        self.start: float | None = None
        self.seconds = 0.0  # of the last forward that was timed
        self.speed = 1.0  # that is expected of what was chosen last, over plain decoding's
        self.allowance = 0.0  # seconds that may go into trying
        self.num_looks = 0  # forwards with masks since the last ones without
        self.probe = 0  # forwards left that go without masks, to time them

    def observe(self, progress: Mapping[str, Progress]) -> None:
        """
        Take in the forward that has just ended.

        Args:
            progress (`Mapping[str, Progress]`): By request, in the order of the rows.
        """
        has_only_decoded = all(name in self.rows and each.num_gained for name, each in progress.items())
        if self.start is not None and has_only_decoded:
            self.seconds = self.clock() - self.start
            self.costs.add(len(progress), sum(each.num_columns for each in progress.values()), self.seconds)
            self.allowance = min(self.allowance + EXPLORATION * self.seconds, MOST_SAVED * self.seconds)
            self.num_looks += any(each.num_columns > 1 for each in progress.values())
        self.rows = {name: self.rows.get(name) or Row() for name in progress}
        for name, each in progress.items():
            # The first masks after a pause follow no drafts, and say nothing of how it goes on.
            is_start = not each.num_drafts and not self.rows[name].has_masks
            if each.num_columns > 1 and each.num_gained and not is_start:
                self.rows[name].acceptance.add(each.num_gained - 1, each.num_columns - 1)
                self.shared.add(each.num_gained - 1, each.num_columns - 1)
            self.rows[name].has_masks = each.num_columns > 1

    def choose(self, candidates: Collection[str]) -> set[str]:
        """
        The rows that get masks in the next forward.

        Args:
            candidates (`Collection[str]`): Rows that may have them, all of them observed just before.
        """
        if not candidates:
            return set()
        chosen = self._best(candidates)
        if not self.probe and self._needs_probe(bool(chosen)):
            self.probe, self.num_looks = PROBE_LENGTH, 0
        if self.probe:
            self.probe -= 1
            return set()
        self._start_trial([name for name in candidates if name not in chosen])
        for name in candidates:
            row = self.rows[name]
            if row.trial:
                row.trial -= 1
                chosen.add(name)
        return chosen

    def forward_starts(self) -> None:
        """The next forward begins now, as far as a proposer can tell."""
        self.start = self.clock()

    def forget_start(self) -> None:
        """The forward that runs is none that can be timed."""
        self.start = None

    def _best(self, candidates: Collection[str]) -> set[str]:
        num_rows = len(self.rows)
        expected = []
        for name in candidates:
            tokens, columns = self.rows[name].acceptance.means(self.shared, PRIOR_WEIGHT)
            tokens *= STAY if self.rows[name].has_masks else 1.0
            expected.append((tokens / columns, tokens, columns, name))
        expected.sort(reverse=True)
        curve = self.costs.curve(num_rows)
        best, best_length, tokens, columns = LEAST, 0, 0.0, 0.0
        for length, (_, more_tokens, more_columns, _) in enumerate(expected, start=1):
            tokens, columns = tokens + more_tokens, columns + more_columns
            speed = (1 + tokens / num_rows) / (curve(1 + columns / num_rows) if curve else 1.0)
            if speed > best:
                best, best_length = speed, length
        self.speed = best
        return {name for *_, name in expected[:best_length]}

    def _needs_probe(self, has_masks: bool) -> bool:
        """Whether the next forwards go without masks, to time them."""
        num_compared = self.costs.num_compared(len(self.rows))
        if not has_masks or self.num_looks < (NEXT_LOOK if num_compared else FIRST_LOOK):
            return False
        if num_compared < MUST_COMPARE:  # what fewer rows cost says little of more
            return True
        # What masks win is lost, for these forwards and for the one after them, whose masks follow no drafts.
        return self._spend((PROBE_LENGTH + 1) * self.seconds * (1 - 1 / self.speed))

    def _start_trial(self, names: list[str]) -> None:
        """Give masks for a while to the row that was tried least."""
        curve = self.costs.curve(len(self.rows))
        if not names or curve is None or any(row.trial for row in self.rows.values()):
            return
        columns = 1 + self.shared.num_columns / self.shared.num_forwards / len(self.rows)
        if self._spend(TRIAL_LENGTH * self.seconds * max(curve(columns) - 1, 0.05)):
            row = self.rows[min(names, key=lambda name: self.rows[name].num_trials)]
            row.trial, row.num_trials = TRIAL_LENGTH, row.num_trials + 1

    def _spend(self, seconds: float) -> bool:
        if self.allowance < seconds:
            return False
        self.allowance -= seconds
        return True
