"""The proposer between a runner and its sampler, both made up: what it proposes, and what becomes of it."""

from types import SimpleNamespace

import pytest
import torch

from hf_mars_vllm import MARSProposer
from tests.engines.vllm.fake_vllm import MASK, Model, Runner, engine_config, install


MASKS = [MASK] * 3


def always(**options):
    return engine_config(automatic=False, **options)


def counted(tokens: list[int]) -> bool:
    return all(after == (before + 1) % 10 for before, after in zip(tokens, tokens[1:], strict=False))


def test_several_tokens_a_forward_and_no_other_tokens():
    runner = Runner(always())
    runner.add("a", 3)
    assert runner.step() == [MASKS]
    assert runner.step() == [[6, 7, 8, *MASKS]]
    for _ in range(5):
        runner.step()
    assert runner.tokens["a"] == [3, 4, *[(5 + index) % 10 for index in range(len(runner.tokens["a"]) - 2)]]
    assert len(runner.tokens["a"]) == 1 + 1 + 1 + 5 * 4


def test_wrong_drafts_change_speed_alone():
    runner = Runner(always(), is_right=False)
    runner.add("a", 3)
    for _ in range(6):
        runner.step()
    assert counted(runner.tokens["a"]) and len(runner.tokens["a"]) == 1 + 6
    assert runner.num_columns == [1, 4, 7, 4, 7, 4]


def test_rows_join_leave_and_read_their_prompts():
    runner = Runner(always())
    for name, first_token in (("a", 1), ("b", 5)):
        runner.add(name, first_token)
    assert runner.step(reading=("b",)) == [MASKS, []]
    assert runner.step() == [[4, 5, 6, *MASKS], MASKS]
    runner.remove("a")
    runner.add("c", 8)
    runner.drafts["c"] = []
    assert runner.step() == [[8, 9, 0, *MASKS], MASKS]
    for _ in range(3):
        runner.step()
    assert all(counted(tokens) for tokens in runner.tokens.values())


def test_windows_that_the_scheduler_cut():
    runner = Runner(always())
    runner.add("a", 3)
    for cut in (None, None, 4, 2, 0, 1, None, None):
        runner.step(cut=cut)
    assert counted(runner.tokens["a"]) and len(runner.tokens["a"]) > 12


def test_a_request_switches_masks_off_and_sets_a_threshold():
    runner = Runner(always(threshold=0.5), probability=0.6)
    runner.add("a", 3, {"mars": False})
    runner.add("b", 3, {"mars_threshold": 0.7})
    runner.add("c", 3, {"mars": 1, "other": "x"})
    runner.add("d", 3, {"mars_threshold": 0})
    runner.step()
    assert runner.step() == [[], MASKS, [6, 7, 8, *MASKS], [6, 7, 8, *MASKS]]


def test_off_above_a_number_of_rows():
    runner = Runner(always(max_batch_size=2))
    for name in "abc":
        runner.add(name, 1)
    assert runner.step() == [[], [], []]
    runner.remove("c")
    assert runner.step() == [MASKS, MASKS]


@pytest.mark.parametrize(("budget", "expected"), [(2048, 6), (14, 3), (6, 1), (4, 0), (1, 0)])
def test_windows_leave_half_of_the_token_budget_to_prompts(budget, expected):
    runner = Runner(always(token_budget=budget))
    for name in "ab":
        runner.add(name, 1)
    for _ in range(4):
        lengths = {len(proposal) for proposal in runner.step()}
    assert max(lengths) <= expected
    assert all(counted(tokens) for tokens in runner.tokens.values())


def test_fewer_speculative_tokens_than_the_block_needs():
    runner = Runner(always(num_speculative_tokens=3))
    runner.add("a", 1)
    assert [runner.step() for _ in range(2)] == [[[MASK]], [[4, MASK]]]
    with pytest.raises(ValueError, match="num_speculative_tokens.*6 is best"):
        Runner(always(num_speculative_tokens=1))


def test_a_dry_run_of_the_sampler_is_passed_over():
    runner = Runner(always())
    runner.rejection_sampler(*dummy_arguments())
    assert runner.drafter.seen is None


def dummy_arguments():
    metadata = SimpleNamespace(num_draft_tokens=[2], draft_token_ids=torch.tensor([MASK, MASK]))
    return metadata, None, torch.zeros(1, 12), None


def test_what_is_refused_at_start(monkeypatch):
    for options, error, match in (
        ({"threshold": 1.5}, ValueError, "`threshold`.*1.5"),
        ({"threshold": "high"}, TypeError, "`threshold`.*'high'"),
        ({"max_batch_size": -1}, ValueError, "`max_batch_size`"),
        ({"automatic": 2}, TypeError, "`automatic`"),
        ({"treshold": 0.5}, ValueError, "'treshold'.*threshold"),
    ):
        with pytest.raises(error, match=match):
            Runner(engine_config(**options))
    with pytest.raises(ValueError, match="no `mars` entry"):
        Runner(engine_config(mars=False))
    install(monkeypatch, "0.33.1")
    with pytest.raises(RuntimeError, match="0.32.x, but this is vLLM 0.33.1"):
        Runner(engine_config())
    Runner(engine_config(allow_untested_version=True))


def test_a_proposer_that_no_runner_loads_says_so():
    with pytest.raises(RuntimeError, match="no model runner"):
        MARSProposer(engine_config()).load_model(Model())


def test_a_request_with_wrong_options_never_ends_the_engine(caplog):
    runner = Runner(always())
    runner.add("a", 1, {"mars_threshold": 7})
    assert runner.step() == [MASKS]
