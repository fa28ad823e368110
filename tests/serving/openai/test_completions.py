import pytest

from tests.serving.conftest import MODEL_NAME
from tests.tiny_text import byte_level_tokenizer


pytestmark = pytest.mark.integration


def test_text_and_tokens(client):
    response = client.completions.create(model=MODEL_NAME, prompt="Count from 3. 4", max_tokens=20)
    ids = byte_level_tokenizer()("Count from 3. 4")["input_ids"]
    same = client.completions.create(model=MODEL_NAME, prompt=ids, max_tokens=20)
    assert response.object == "text_completion"
    assert response.choices[0].text == same.choices[0].text != ""
    assert response.usage.prompt_tokens == len(ids)


def test_several_prompts(client):
    prompts = ["Count from 3.", "Count from 11. 12"]
    both = client.completions.create(model=MODEL_NAME, prompt=prompts, max_tokens=20)
    for index, prompt in enumerate(prompts):
        alone = client.completions.create(model=MODEL_NAME, prompt=prompt, max_tokens=20)
        assert both.choices[index].text == alone.choices[0].text
        assert both.choices[index].index == index


def test_several_lists_of_tokens(client):
    prompts = ["Count from 3.", "Count from 11. 12"]
    ids = [byte_level_tokenizer()(prompt)["input_ids"] for prompt in prompts]
    texts, tokens = (
        client.completions.create(model=MODEL_NAME, prompt=prompt, max_tokens=20, n=2) for prompt in (prompts, ids)
    )
    assert [choice.text for choice in tokens.choices] == [choice.text for choice in texts.choices]
    assert len(tokens.choices) == 4
    # How many forwards it takes depends on which requests met in time.
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(tokens.usage, name) == getattr(texts.usage, name)


def test_streams(client):
    arguments = {"model": MODEL_NAME, "prompt": "Count from 3.", "max_tokens": 30}
    whole = client.completions.create(**arguments)
    chunks = list(client.completions.create(**arguments, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_logprobs(client):
    response = client.completions.create(model=MODEL_NAME, prompt="Count", max_tokens=8, logprobs=2)
    logprobs = response.choices[0].logprobs
    assert "".join(logprobs.tokens) == response.choices[0].text
    assert logprobs.text_offset[1] == len(logprobs.tokens[0])
    assert all(len(alternatives) <= 2 for alternatives in logprobs.top_logprobs)
