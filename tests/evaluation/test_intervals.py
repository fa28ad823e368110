import numpy as np
import pytest

from hf_mars.evaluation.intervals import ratio_interval, share_interval


def test_few_examples_say_little():
    low, high = share_interval([True] * 12 + [False] * 12)
    assert 0.25 < low < 0.35 and 0.65 < high < 0.75
    few, many = (np.ptp(share_interval([True, False] * n)) for n in (8, 200))
    assert many < few / 4


@pytest.mark.parametrize(
    ("outcomes", "ends"), [([False] * 24, (0, 0.142)), ([True] * 24, (0.858, 1)), ([True], (0.025, 1))]
)
def test_examples_that_came_out_alike_are_no_certainty(outcomes, ends):
    assert share_interval(outcomes) == pytest.approx(ends, abs=1e-3)


def test_more_right_answers_never_lower_the_interval():
    ends = np.array([share_interval([True] * right + [False] * (24 - right)) for right in range(25)])
    assert (np.diff(ends, axis=0) > -1e-9).all()


def test_a_ratio_is_resampled_by_example():
    assert ratio_interval([10, 10], [10, 10]) == [1, 1]
    assert ratio_interval([10], [4]) is None
    low, high = ratio_interval([40, 10, 30, 20], [10, 10, 10, 10])
    assert 1 < low < 2.5 < high < 4
    assert [low, high] == ratio_interval([40, 10, 30, 20], [10, 10, 10, 10]), "the same every time"
