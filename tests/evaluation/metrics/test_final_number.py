import pytest

from hf_mars.evaluation.metrics.final_number.final_number import extract_number, is_same_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 18", 18),
        ("She makes 9 * 2 = $18 every day.", 18),
        ("The answer is 1,200. I checked it 2 times.", 1200),
        ("the answer is: **-3.5**", -3.5),
        ("It costs $1,234.50", 1234.5),
        ("#### 5\nThen more: #### 6", 6),
        ("The answer is 3 * 5 = 15 apples.", 15),
        ("So the answer is 18 dollars for 3 days. Done.", 18),
        ("I do not know.", None),
        ("", None),
    ],
)
def test_the_number_that_an_answer_ends_on(text, number):
    assert extract_number(text) == number


def test_numbers_are_compared_as_numbers():
    assert is_same_number("That is 18.0 dollars", "18")
    assert is_same_number("$2,000", "2000")
    assert not is_same_number("The answer is 19", "18")
    assert not is_same_number("none", "18")
