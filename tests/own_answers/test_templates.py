"""Prompts made by templates: distinct, varied, and none that an evaluation asks."""

import re

import pytest

from hf_mars.evaluation.tasks import load_task
from hf_mars.evaluation.tasks.word_problems import HELD_OUT_SEED, NUM_RESERVED, make_word_problems
from hf_mars.own_answers import make_prompts


NUM_WORDS = 10  # in a row that a prompt may share with no item of an evaluation


@pytest.fixture(scope="module")
def prompts():
    return make_prompts()


def texts(prompts):
    return [messages[-1]["content"] for messages in prompts]


def test_they_are_distinct_varied_and_the_same_every_time(prompts):
    assert len(prompts) == 2000 and len(set(texts(prompts["prompt"]))) == 2000
    assert set(prompts["kind"]) == {"chat", "conditions", "problems", "code", "rewriting", "word_problems"}
    assert make_prompts(50, seed=3).to_list() == make_prompts(50, seed=3).to_list()
    assert make_prompts(50, seed=3).to_list() != make_prompts(50, seed=4).to_list()
    for kind, text in zip(prompts["kind"], texts(prompts["prompt"]), strict=True):
        assert kind == "code" or not re.search("[{}]", text)


def test_the_problems_that_are_held_out_are_not_among_them(prompts):
    held_out = make_word_problems(NUM_RESERVED, seed=HELD_OUT_SEED)
    assert not set(texts(prompts["prompt"])) & set(texts(held_out["prompt"]))


def runs_of_words(text):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + NUM_WORDS]) for start in range(len(words) - NUM_WORDS + 1)}


@pytest.mark.parametrize("name", ["gsm8k", "humaneval", "ifeval", "gsm_symbolic"])
def test_nothing_is_an_item_of_an_evaluation_task(prompts, name):
    try:
        task = load_task(name)
    except (ImportError, RuntimeError) as error:  # not installed, or no package index
        pytest.skip(str(error))
    # What every request of a task has in common is no item.
    shared = set.intersection(*(runs_of_words(text) for text in texts(task.prompts)))
    asked = set().union(*(runs_of_words(text) for text in texts(task.prompts))) - shared
    found = [text for text in texts(prompts["prompt"]) if runs_of_words(text) & asked]
    assert not found
    assert not set(texts(prompts["prompt"])) & set(texts(task.prompts))


@pytest.mark.parametrize("num_prompts", [0, 10**5])
def test_numbers_that_cannot_be_made_are_refused(num_prompts):
    with pytest.raises(ValueError, match="num_prompts"):
        make_prompts(num_prompts)
