"""The switch, on a machine whose forwards cost what a test says."""

import random

import pytest

from hf_mars_vllm.costs import ForwardCosts
from hf_mars_vllm.planner import Planner, Progress


class Machine:
    """
    Decodes rows by a planner's choices, on a clock of its own.

    Args:
        seconds: Function of rows and columns: the time of a forward.
        chances: For each row the chance that a draft holds.
    """

    def __init__(self, seconds, chances, seed: int = 0):
        self.now, self.seconds, self.random = 0.0, seconds, random.Random(seed)
        self.planner = Planner(block_size=4, clock=lambda: self.now)
        self.chances = dict(enumerate(chances))
        self.num_tokens = dict.fromkeys(self.chances, 0)
        self.with_masks = dict.fromkeys(self.chances, 0)
        self.drafts = dict.fromkeys(self.chances, (0, False))  # drafts, and whether masks follow

    def run(self, num_forwards: int) -> float:
        """Tokens a second of these forwards, over what they were with one token a forward."""
        start, before = self.now, sum(self.num_tokens.values())
        for _ in range(num_forwards):
            self.step()
        plain = len(self.chances) / self.seconds(len(self.chances), len(self.chances))
        return (sum(self.num_tokens.values()) - before) / (self.now - start) / plain

    def step(self) -> None:
        progress, next_drafts = {}, {}
        for name, chance in self.chances.items():
            num_drafts, has_masks = self.drafts[name]
            held = 0
            while held < num_drafts and self.random.random() < chance:
                held += 1
            self.num_tokens[name] += held + 1
            self.with_masks[name] += has_masks
            progress[str(name)] = Progress(held + 1, 1 + num_drafts + 3 * has_masks, num_drafts)
            next_drafts[name] = 3 if has_masks and held == num_drafts else 0
        self.now += self.seconds(len(progress), sum(each.num_columns for each in progress.values()))
        self.planner.observe(progress)
        chosen = self.planner.choose(set(progress))
        self.drafts = {name: (next_drafts[name], True) if str(name) in chosen else (0, False) for name in self.chances}
        self.planner.forward_starts()


def flat(rows: int, columns: int) -> float:
    return 1.0 + 0.02 * columns


def steep(rows: int, columns: int) -> float:
    return 0.5 + 0.25 * columns


def test_masks_that_pay_are_used():
    assert Machine(flat, [0.95] * 4).run(600) > 2.2


def test_masks_that_do_not_pay_cost_little():
    for chances in ([0.1], [0.1] * 4, [0.3] * 16):
        machine = Machine(steep, chances)
        machine.run(50)
        assert machine.run(1500) > 0.97


def test_the_same_text_pays_with_one_row_and_not_with_many():
    def seconds(rows, columns):
        return max(8.0, columns) + 0.1 * columns

    assert Machine(seconds, [0.7]).run(600) > 1.5
    many = Machine(seconds, [0.5] * 16)
    many.run(50)
    assert many.run(1500) > 0.97


def test_what_one_row_costs_is_not_believed_of_many():
    def seconds(rows, columns):
        return 1.0 if rows == 1 else 0.25 * columns

    machine = Machine(seconds, [0.9])
    machine.run(200)
    machine.chances |= dict.fromkeys(range(1, 16), 0.9)
    for each in (machine.num_tokens, machine.with_masks):
        each |= dict.fromkeys(range(1, 16), 0)
    machine.drafts |= dict.fromkeys(range(1, 16), (0, False))
    machine.run(20)
    before = sum(machine.with_masks.values())
    assert machine.run(100) > 0.95
    assert sum(machine.with_masks.values()) - before < 0.1 * 16 * 100


def test_rows_are_judged_one_by_one():
    machine = Machine(lambda rows, columns: 1.0 + 0.06 * columns, [0.95, 0.95, 0.02, 0.02])
    machine.run(1500)
    good, bad = machine.with_masks[0] + machine.with_masks[1], machine.with_masks[2] + machine.with_masks[3]
    assert good > 2500 and bad < 800


def test_text_that_becomes_easier_is_noticed():
    machine = Machine(steep, [0.05])
    assert machine.run(800) < 1.0
    machine.seconds, machine.chances = flat, {0: 0.95}
    machine.run(3000)
    assert machine.run(500) > 2.0


def test_a_machine_that_is_slow_at_times():
    machine = Machine(steep, [0.3] * 4)
    speeds = []
    for pace in (1.0, 3.0) * 6:
        machine.seconds = lambda rows, columns, pace=pace: pace * steep(rows, columns)
        speeds.append(machine.run(150))
    assert sum(speeds[6:]) / len(speeds[6:]) > 0.95


def test_one_slow_forward_decides_nothing():
    machine = Machine(flat, [0.95])
    machine.run(30)
    machine.seconds = lambda rows, columns: 50.0
    machine.step()
    machine.seconds = flat
    assert machine.run(300) > 2.2


def test_forwards_that_read_prompts_are_not_timed():
    now = [0.0]
    planner = Planner(4, clock=lambda: now[0])
    planner.observe({"a": Progress(1, 1, 0)})
    planner.forward_starts()
    now[0] += 100
    planner.observe({"a": Progress(1, 4, 0), "b": Progress(0, 30, 0)})
    assert planner.seconds == 0
    planner.forward_starts()
    now[0] += 1
    planner.observe({"a": Progress(1, 1, 0), "b": Progress(1, 1, 0)})
    assert planner.seconds == 1
    planner.forget_start()
    now[0] += 100
    planner.observe({"a": Progress(1, 1, 0), "b": Progress(1, 1, 0)})
    assert planner.seconds == 1


def test_rows_that_left_are_forgotten():
    planner = Planner(4, clock=lambda: 0.0)
    for index in range(50):
        planner.observe({str(index): Progress(1, 1, 0)})
        assert planner.choose([str(index)]) == {str(index)}
    assert len(planner.rows) == 1
    assert planner.choose([]) == set()


def test_the_curve_of_costs():
    costs = ForwardCosts()
    for seconds in (9.0, 1.0, 1.0):
        costs.add(4, 4, seconds)
    assert costs.curve(4) is None and costs.num_compared(4) == 0
    for seconds in (3.0, 3.0):
        costs.add(4, 28, seconds)
    for rows in (4, 1, 200):
        curve = costs.curve(rows)
        assert [curve(x) for x in (1, 4, 7, 10)] == pytest.approx([1, 2, 3, 4])
    assert (costs.num_compared(4), costs.num_compared(16)) == (1, 0)
    for columns in (20, 20):
        costs.add(4, columns, 1.2)
    assert costs.curve(4)(5) == pytest.approx(1.2)


def test_only_forwards_that_ran_soon_after_one_another_are_compared():
    costs = ForwardCosts()
    for _ in range(40):
        costs.add(1, 1, 1.0)
    for _ in range(100):
        costs.add(1, 7, 9.0)
    known = costs.curve(1)(7)  # of the chapter with both
    for _ in range(100):
        costs.add(1, 7, 3.0)
    assert costs.curve(1)(7) == known
    for _ in range(3):
        costs.add(1, 1, 1.0)
        for _ in range(40):
            costs.add(1, 7, 3.0)
            costs.add(1, 1, 1.0)
    assert costs.curve(1)(7) == pytest.approx(3)
