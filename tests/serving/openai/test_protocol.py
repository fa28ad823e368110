"""What the bodies of requests accept, and that a refusal says it."""

import asyncio
import json

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from hf_mars.serving.openai.errors import explain
from hf_mars.serving.openai.protocol import ChatCompletionRequest, CompletionRequest, ThresholdRequest


CHAT = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:" + "a" * 500}}
PARTS = 'a text, or a list of parts like {"type": "text", "text": "..."}: only text parts are read here'


def user(content):
    return [{"role": "user", "content": content}]


def refuse(request_class, body):
    """The message and the field of the answer to a body."""
    with pytest.raises(ValidationError) as refused:
        request_class(**body)
    errors = [{**error, "loc": ("body", *error["loc"])} for error in refused.value.errors()]
    answer = asyncio.run(explain(None, RequestValidationError(errors, body=body)))
    error = json.loads(answer.body)["error"]
    return error["message"], error["param"]


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("temperature", "hot", "`temperature` must be a number from 0 to 2, got 'hot'."),
        ("n", 1.5, "`n` must be a whole number of at least 1, got 1.5."),
        ("stop", [""], "`stop` must not hold an empty string."),
        ("stop", ["a", 3], "`stop` must be a text, or a list of texts, got ['a', 3]."),
        ("stream_options", {}, "`stream_options` needs `stream`."),
        ("tools", ["f"], "`tools` must be an empty list: there are no tools here, got ['f']."),
        ("modalities", ["audio"], "`modalities` must be [\"text\"]: answers are text, got 'audio'."),
        ("messages", "Count", "`messages` must be a list of at least one message, got 'Count'."),
        ("messages", [{"role": "user"}], f"`messages.0.content` is missing: it must be {PARTS}."),
        (
            "messages",
            [{"role": "tool", "content": "a"}],
            "`messages.0.role` must be 'system', 'developer', 'user' or 'assistant', got 'tool'.",
        ),
        (
            "messages",
            user("a\ud800b"),
            "`messages.0.content` has half of a surrogate pair or a byte that is not UTF-8 at character 1: remove it.",
        ),
    ],
)
def test_a_refusal_says_what_is_accepted(field, value, message):
    assert refuse(ChatCompletionRequest, {**CHAT, field: value}) == (message, message.split("`")[1])


def test_an_image_part_is_told_that_only_text_is_read():
    message, param = refuse(ChatCompletionRequest, {**CHAT, "messages": user([IMAGE])})
    assert message.startswith(f"`messages.0.content` must be {PARTS}, got [") and len(message) < 250
    assert param == "messages.0.content"


def test_an_unknown_field_is_told_which_ones_there_are():
    message, param = refuse(ChatCompletionRequest, {**CHAT, "mars_treshold": 0.5})
    assert param == "mars_treshold" and message.startswith("`mars_treshold` is not known here: there are `model`, ")
    assert all(f"`{name}`" in message for name in ChatCompletionRequest.model_fields)
    message, param = refuse(ChatCompletionRequest, {**CHAT, "messages": [{**user("a")[0], "x{y}": 1}]})
    assert param == "messages.0.x{y}" and "`role`, `content`" in message


@pytest.mark.parametrize("request_class", [ChatCompletionRequest, CompletionRequest, ThresholdRequest])
def test_every_field_says_what_it_accepts(request_class):
    assert all(field.description for field in request_class.model_fields.values())


@pytest.mark.parametrize(
    "field, value",
    [
        ("tools", []),
        ("functions", []),
        ("tool_choice", "none"),
        ("tool_choice", "auto"),
        ("function_call", "auto"),
        ("parallel_tool_calls", False),
        ("store", False),
        ("metadata", {"a": "b"}),
        ("service_tier", "auto"),
        ("modalities", ["text"]),
        ("prediction", None),
        ("reasoning_effort", "none"),
        ("verbosity", "medium"),
        ("user", "ana"),
        ("safety_identifier", "ana"),
        ("prompt_cache_key", "ana"),
        ("prompt_cache_retention", "24h"),
        ("frequency_penalty", 0.0),
        ("presence_penalty", 0),
        ("logit_bias", {}),
        ("response_format", {"type": "text"}),
        ("messages", [{"role": "assistant", "content": "a", "tool_calls": [], "refusal": None, "annotations": []}]),
    ],
)
def test_what_changes_nothing_is_accepted(field, value):
    plain, request = ChatCompletionRequest(**CHAT), ChatCompletionRequest(**{**CHAT, field: value})
    assert (request.sampling, request.mars_arguments, request.limit) == (plain.sampling, plain.mars_arguments, None)


@pytest.mark.parametrize("field, value", [("suffix", ""), ("echo", False), ("best_of", 1), ("user", "ana")])
def test_so_is_it_in_text_completions(field, value):
    assert CompletionRequest(model="m", prompt="a", **{field: value}).prompts == ["a"]


@pytest.mark.parametrize(
    "prompt, prompts",
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([5, 6], [[5, 6]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
def test_the_four_forms_of_a_prompt(prompt, prompts):
    request = CompletionRequest(model="m", prompt=prompt)
    assert request.prompt == prompt and request.prompts == prompts


@pytest.mark.parametrize("prompt", [None, [], [[]], [[5], []], [5, -1], [[5, -1]], [5.0], [True], ["a", 5], [["a"]]])
def test_other_prompts_are_refused_by_name(prompt):
    message, param = refuse(CompletionRequest, {"model": "m", "prompt": prompt})
    assert param == "prompt" and "a list of texts or of lists of tokens, none of them empty" in message
