"""Planned steps: no plan changes what is generated, and the plan follows what steps cost and what drafts are worth."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import GenerationMixin, MistralConfig

from hf_mars.decoding import prepare
from hf_mars.decoding.plan import Plan, max_columns
from hf_mars.decoding.planner import Planner, Probing, get_experience
from tests.tiny import ragged_prompts, tiny_config, tiny_model


BLOCK = 6


class RandomPlanner:
    """Any widths and groups of masks, drawn anew for each step."""

    def __init__(self, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.widest, self.num_groups = 0, set()

    def draw(self, highest):
        return int(torch.randint(int(highest) + 1, (), generator=self.generator))

    def plan(self, batch, num_masks):
        host, sampling = batch.host, batch.sampling
        most = max(num_masks, min(sampling.largest_block, batch.remaining) - 1)
        masks, num_groups = num_masks + self.draw(most - num_masks), 1 + self.draw(3)
        is_free = (sampling.is_planned & host.is_active).tolist()
        num_drafts = [
            self.draw(n) if free else n * active
            for n, free, active in zip(host.num_drafts.tolist(), is_free, host.is_active.tolist(), strict=True)
        ]
        groups = [
            [self.draw(n) if free else n for _ in range(num_groups)]
            for n, free in zip(num_drafts, is_free, strict=True)
        ]
        self.num_groups.add(num_groups)
        self.widest = max(self.widest, num_groups * masks)
        return Plan(torch.tensor(num_drafts), torch.tensor(groups), masks)

    def observe(self, *args):
        pass


@pytest.fixture
def random_plans(monkeypatch):
    planner = RandomPlanner()
    monkeypatch.setattr("hf_mars.decoding.decoder.Planner", lambda model: planner)
    yield planner
    assert planner.widest > BLOCK and planner.num_groups == {1, 2, 3, 4}, "the plans were of all kinds"


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=10.0, similarity=2.0, block_size=BLOCK)


PROCESSED = {
    "none": {},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "min_new_tokens": {"min_new_tokens": 20},
    "suppress_tokens": {"suppress_tokens": [3, 4, 5]},
    "prefix_allowed_tokens_fn": {"prefix_allowed_tokens_fn": lambda row, ids: list(range(row + len(ids) % 2, 40))},
    "stop at a time": {"max_time": 1000.0},
}


@pytest.mark.parametrize("name", PROCESSED)
@pytest.mark.integration
def test_greedy_text_is_that_of_plain_decoding_whatever_the_plan(model, random_plans, name):
    for seed in range(4):
        prompts = ragged_prompts([5, 9, 3, 7], seed=seed)
        settings = {"max_new_tokens": 40, **PROCESSED[name]}
        expected = GenerationMixin.generate(model, **prompts, **settings)
        output = model.generate(**prompts, **settings, mars_verify=True, return_dict_in_generate=True)
        assert output.sequences.tolist() == expected.tolist()
        assert output.tokens_per_forward > 1.1


@pytest.mark.integration
def test_sampled_text_is_that_of_a_fixed_width_whatever_the_plan(model, random_plans):
    sampled = {"do_sample": True, "temperature": 0.7, "max_new_tokens": 40}
    for seed in range(4):
        prompts = ragged_prompts([5, 9, 3, 7], seed=seed)
        torch.manual_seed(seed)
        expected = model.generate(**prompts, **sampled, mars_verify=True, mars_threshold=0.5)
        torch.manual_seed(seed)
        assert model.generate(**prompts, **sampled, mars_verify=True).tolist() == expected.tolist()


@pytest.mark.parametrize(("attention", "window"), [("eager", None), ("eager", 7), ("sdpa", 7)])
@pytest.mark.integration
def test_groups_of_masks_with_other_attention(random_plans, attention, window):
    plain, model = (
        tiny_model(
            tiny_config(MistralConfig, sliding_window=window),
            sharpness=10.0,
            similarity=2.0,
            block_size=BLOCK,
            attn_implementation=name,
        )
        for name in ("sdpa", attention)
    )
    for seed in range(3):
        prompts = ragged_prompts([5, 9, 3], seed=seed)
        expected = GenerationMixin.generate(plain, **prompts, max_new_tokens=40)
        assert model.generate(**prompts, max_new_tokens=40, mars_verify=True).tolist() == expected.tolist()


def test_rows_with_other_options_join_and_leave(model, random_plans):
    """Planned rows beside lossy, plain and verified ones with a threshold: each generates what it would alone."""
    ways = [
        {"mars_verify": True},
        {"mars_threshold": 0.4},
        {"mars_verify": True, "mars_threshold": 0.3},
        {"mars_threshold": 1.0},
        {"mars_verify": True, "mars_block_size": 3},
    ]

    def start(number):
        prompt = ragged_prompts([4 + number], seed=number)["input_ids"]
        decoder = prepare(model, prompt, ways[number % len(ways)], max_new_tokens=24 + number)
        while decoder.batch.num_unread > 0:
            decoder.prefill(1000)
        return decoder

    def finish(decoder, joining=()):
        tokens, waiting, names = {}, list(joining), {row: row for row in decoder.batch.host.ids.tolist()}
        with torch.no_grad():
            while not decoder.batch.is_done:
                if waiting:
                    number, newcomer = waiting.pop(0)
                    (row,) = decoder.batch.add(newcomer.batch)
                    names[row] = number
                output = decoder.step()
                for row, length, added in zip(
                    output.ids.tolist(),
                    output.acceptance_lengths.tolist(),
                    output.accepted_tokens.tolist(),
                    strict=True,
                ):
                    tokens.setdefault(names[row], []).extend(added[:length])
        return tokens

    alone = {number: finish(start(number))[0] for number in range(8)}
    together = finish(start(0), [(number, start(number)) for number in range(1, 8)])
    assert together == alone


def teach(model, seconds, holds):
    """Let the model's experience be that steps take so long by columns, and that drafts hold so often."""
    experience = get_experience(model)
    for _ in range(20):
        for columns in (1, 7, 2, 13, 4, 20):
            experience.costs.observe(1, columns, seconds(columns))
    greedy, one = np.zeros(100, dtype=bool), np.ones(100, dtype=int)
    for confidence in np.linspace(0, 0.9999, 40):
        held = (np.arange(100) < 100 * holds).astype(int)
        experience.rates.observe(np.full((100, 1), confidence), greedy, one, held)


class TestWhatIsPlanned:
    def plans_of(self, monkeypatch, model, prompts):
        plans, plan = [], Planner.plan

        def record(self, batch, num_masks):
            plans.append(plan(self, batch, num_masks))
            return plans[-1]

        monkeypatch.setattr(Planner, "plan", record)
        monkeypatch.setattr(Planner, "observe", lambda *args: None)
        model.generate(**prompts, max_new_tokens=48, mars_verify=True)
        return plans[1:]

    def test_expensive_columns_that_never_pay_are_not_run(self, monkeypatch):
        model = tiny_model(sharpness=10.0, similarity=2.0, block_size=BLOCK)
        teach(model, lambda columns: columns, holds=0.02)
        plans = self.plans_of(monkeypatch, model, ragged_prompts([5]))
        plain = [plan for plan in plans if plan.num_masks == 0 and not plan.num_drafts.any()]
        probes = [plan for plan in plans if plan.num_masks == 1]
        assert len(plain) + len(probes) == len(plans) and 1 <= len(probes) < len(plans) / 6

    def test_free_columns_and_drafts_that_often_fail_get_groups_of_masks(self, monkeypatch):
        model = tiny_model(sharpness=10.0, similarity=2.0, block_size=BLOCK)
        teach(model, lambda columns: 1 + columns / 1000, holds=0.5)
        plans = self.plans_of(monkeypatch, model, ragged_prompts([5]))
        assert max(plan.groups.shape[1] for plan in plans) > 2
        assert all(int(plan.num_drafts.max()) + 1 + plan.num_mask_columns <= max_columns(BLOCK) for plan in plans)

    def test_cheap_columns_and_sure_drafts_are_run_wide(self, monkeypatch):
        model = tiny_model(sharpness=10.0, similarity=2.0, block_size=BLOCK)
        teach(model, lambda columns: 1 + columns / 50, holds=0.97)
        plans = self.plans_of(monkeypatch, model, ragged_prompts([5]))
        assert sum(plan.num_masks >= BLOCK - 2 for plan in plans) > len(plans) / 2


class TestRowsThatEndLate:
    """A batch that no row joins takes as long as its last row."""

    def weigh(self, is_open, num_steps, is_free=(True, True, True)):
        planner = Planner(tiny_model(sharpness=10.0, similarity=2.0, block_size=BLOCK))
        return planner._weigh(SimpleNamespace(is_open=is_open), np.array(is_free), np.array(num_steps))

    def test_their_tokens_count_more(self):
        weights = self.weigh(False, [40.0, 20.0, 4.0])
        assert weights[0] > 2 * weights[1] > 2 * weights[2] and np.isclose(weights.mean(), 1)

    def test_where_rows_join_all_count_the_same(self):
        np.testing.assert_allclose(self.weigh(True, [40.0, 20.0, 4.0]), 1)

    def test_rows_that_are_not_planned_count_nothing(self):
        weights = self.weigh(False, [40.0, 20.0, 4.0], is_free=[False, True, True])
        assert weights[0] == 0 and np.isclose(weights[1:].mean(), 1)

    def test_a_row_that_is_done_and_had_room_for_far_more_does_no_harm(self):
        with np.errstate(all="raise"):
            assert self.weigh(False, [4000.0, 2.0, 2.0], is_free=[False, True, True]).tolist() == [0, 1, 1]


def test_probes_get_rarer_until_one_pays():
    probing, gaps, gap = Probing(), [], 0
    for _ in range(400):
        gap += 1
        if probing.is_due():
            gaps.append(gap)
            gap = 0
            probing.failed()
    assert gaps[:4] == [9, 17, 33, 65] and set(gaps[4:]) == {65}
    probing.paid()
    assert [probing.is_due() for _ in range(9)] == [False] * 8 + [True]
