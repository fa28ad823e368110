import pytest
from datasets import Dataset

from hf_mars.own_answers import select_prompts


USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}


def test_every_format_of_trl_keeps_its_prompt():
    system = {"role": "system", "content": "Be kind."}
    later = {"role": "user", "content": "And now?"}
    for rows, expected in (
        ([{"prompt": "Hi", "completion": "Hello"}], ["Hi"]),
        ([{"prompt": [USER], "completion": [ANSWER]}], [[USER]]),
        ([{"prompt": [USER]}], [[USER]]),
        ([{"messages": [system, USER, ANSWER, later, ANSWER]}], [[system, USER, ANSWER, later]]),
        ([{"messages": [USER]}], [[USER]]),
    ):
        assert select_prompts(Dataset.from_list(rows)) == expected


def test_what_asks_nothing_is_left_out():
    rows = [{"messages": [ANSWER]}, {"messages": [USER, ANSWER]}, {"messages": []}]
    assert select_prompts(Dataset.from_list(rows)) == [[USER]]
    assert select_prompts(Dataset.from_list([{"prompt": " "}, {"prompt": "a"}, {"prompt": "b"}]), limit=1) == ["a"]


def test_other_columns_are_named():
    with pytest.raises(ValueError, match="`prompt` or `messages`, and has question"):
        select_prompts(Dataset.from_list([{"question": "Hi"}]))
    with pytest.raises(ValueError, match="no prompt"):
        select_prompts(Dataset.from_list([{"prompt": ""}]))
