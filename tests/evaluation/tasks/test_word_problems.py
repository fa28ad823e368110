import re

from hf_mars.evaluation.metrics.stated_answer.stated_answer import extract_answer
from hf_mars.evaluation.tasks.word_problems import make_word_problems


def test_the_same_seed_draws_the_same_problems():
    assert make_word_problems(20, seed=3).to_list() == make_word_problems(20, seed=3).to_list()
    assert make_word_problems(20, seed=3).to_list() != make_word_problems(20, seed=4).to_list()


def test_training_and_held_out_problems_are_disjoint():
    held_out = make_word_problems(200, seed=1)
    train = make_word_problems(2000, seed=0, exclude=held_out)
    questions = [{messages[0]["content"] for messages in dataset["prompt"]} for dataset in (held_out, train)]
    assert (len(questions[0]), len(questions[1])) == (200, 2000)
    assert not questions[0] & questions[1]


def test_every_solution_is_right():
    for example in make_word_problems(300):
        solution = example["completion"][0]["content"]
        for left, operator, right, result in re.findall(r"(\d+) ([*+-]) (\d+) = (\d+)", solution):
            assert {"*": int(left) * int(right), "+": int(left) + int(right), "-": int(left) - int(right)}[
                operator
            ] == int(result)
        assert extract_answer(solution) == re.findall(r"= (\d+)", solution)[-1]
