import pytest


pytest.importorskip("eval_framework")

from hf_mars.evaluation.metrics.instruction_following.instruction_following import follows_all  # noqa: E402


def ifeval(*pairs):
    return {
        "prompt": "Repeat me.",
        "instruction_id_list": [name for name, _ in pairs],
        "kwargs": [arguments for _, arguments in pairs],
    }


@pytest.mark.parametrize(
    ("pairs", "right", "wrong"),
    [
        ([("punctuation:no_comma", {})], "No comma here", "One, two"),
        ([("change_case:english_lowercase", {})], "all is lower case", "Not All"),
        ([("change_case:english_capital", {})], "ALL IS UPPER CASE", "Not all"),
        ([("length_constraints:number_words", {"relation": "at least", "num_words": 3})], "one two three", "one two"),
        ([("keywords:existence", {"keywords": ["river", "stone"]})], "A river and a stone", "A river"),
        ([("keywords:forbidden_words", {"forbidden_words": ["never"]})], "Always", "I never do"),
        (
            [("keywords:frequency", {"relation": "at least", "keyword": "go", "frequency": 2})],
            "go and go",
            "go on",
        ),
        ([("detectable_format:number_bullet_lists", {"num_bullets": 2})], "* one\n* two", "* one"),
        ([("detectable_format:title", {})], "<<A title>>\ntext", "A title"),
        ([("detectable_format:json_format", {})], '{"a": 1}', "a: 1"),
        ([("startend:end_checker", {"end_phrase": "The end."})], "A story. The end.", "The end. Or not"),
        ([("startend:quotation", {})], '"quoted"', "not quoted"),
        ([("detectable_content:number_placeholders", {"num_placeholders": 1})], "Dear [name]", "Dear name"),
        ([("combination:repeat_prompt", {"prompt_to_repeat": "Repeat me."})], "Repeat me. Done", "Done"),
        ([("punctuation:no_comma", {}), ("startend:quotation", {})], '"fine"', '"not, fine"'),
    ],
    ids=lambda value: value[0][0] if isinstance(value, list) else "",
)
def test_instructions_are_checked_by_rule(pairs, right, wrong):
    assert follows_all(ifeval(*pairs), right)
    assert not follows_all(ifeval(*pairs), wrong)
    assert not follows_all(ifeval(*pairs), "   ")
