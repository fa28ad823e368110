import pytest

from hf_mars.evaluation.tasks import TASKS, load_task
from hf_mars.evaluation.tasks.ifeval import LEFT_OUT


def test_instructions_that_need_a_network_are_left_out():
    pytest.importorskip("eval_framework")
    task = load_task("ifeval")
    assert len(task.prompts) == 477 and "64 of 541" in task.note
    assert len(LEFT_OUT) == 2
    assert task.score([""] * 40) == [False] * 40


def test_unknown_tasks_and_limits_are_named():
    with pytest.raises(ValueError, match="no task 'gsm9k'.*gsm8k"):
        load_task("gsm9k")
    for limit in (0, 1001):
        with pytest.raises(ValueError, match="limit"):
            load_task("word_problems", limit=limit)
    assert set(TASKS) == {"word_problems", "gsm8k", "gsm_symbolic", "humaneval", "ifeval"}


def test_word_problems_are_scored():
    task = load_task("word_problems", limit=3)
    assert len(task.prompts) == 3
    assert task.score(task.references) == [True] * 3
    assert task.score(task.references[::-1]) == [False, True, False]
    assert task.score(["42"]) == [False], "the answers to the first prompts are enough"


def test_gsm_symbolic_is_scored():
    pytest.importorskip("reasoning_gym")
    task = load_task("gsm_symbolic", limit=4)
    assert [message["role"] for prompt in task.prompts for message in prompt] == ["user"] * 4
    assert task.score(["nothing"] * 4) == [False] * 4
    assert task.score(task.references) == [True] * 4
    assert load_task("gsm_symbolic", limit=4).prompts == task.prompts
