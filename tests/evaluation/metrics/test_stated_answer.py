from hf_mars.evaluation.metrics.stated_answer.stated_answer import extract_answer, is_same_answer


def test_only_the_stated_answer_counts():
    assert is_same_answer("3 * 7 = 21. The answer is 21.", "The answer is 21.")
    assert not is_same_answer("3 * 7 = 21.", "The answer is 21.")
    assert not is_same_answer("The answer is -21.", "The answer is 21.")
    assert extract_answer("I do not know.") is None


def test_a_solution_that_states_none_makes_every_answer_wrong():
    assert not is_same_answer("21", "21")
