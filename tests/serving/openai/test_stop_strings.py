import pytest

from hf_mars.serving.openai.stop_strings import StoppingTextStream
from tests.tiny_text import byte_level_tokenizer


TEXT = "Grüße 👩‍🚀, it 's . a b\n  two  spaces 你好 \n\n!"


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_tokenizer()


def stream(tokenizer, text, stop=(), width=1):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    text_stream = StoppingTextStream(tokenizer, stop)
    pieces = [text_stream.push(ids[start : start + width]) for start in range(0, len(ids), width)]
    return [*pieces, text_stream.finish()], text_stream, ids


@pytest.mark.parametrize("width", [1, 2, 5])
def test_pieces_are_whole_characters_and_add_up(tokenizer, width):
    pieces, text_stream, ids = stream(tokenizer, TEXT, width=width)
    assert "".join(pieces) == TEXT
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert text_stream.num_tokens == len(ids)
    assert sum(map(bool, pieces)) > 5


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("stop", [["two  sp"], ["spaces", "two"], ["xx", "好 \n\n"], ["G"]])
def test_nothing_of_a_stop_string_is_shown(tokenizer, stop, width):
    pieces, text_stream, ids = stream(tokenizer, TEXT, stop, width)
    first = min(place for place in map(TEXT.find, stop) if place >= 0)
    assert "".join(pieces) == TEXT[:first]
    assert text_stream.is_stopped and text_stream.num_tokens < len(ids)
    assert tokenizer.decode(ids[: text_stream.num_tokens]).endswith(tuple(stop))


def test_a_beginning_that_leads_nowhere_is_shown_late(tokenizer):
    pieces, text_stream, _ = stream(tokenizer, "aab ab abx", ["aby"])
    assert "".join(pieces) == "aab ab abx"
    assert not text_stream.is_stopped


def test_what_stays_incomplete_comes_at_the_end(tokenizer):
    ids = tokenizer("👩")["input_ids"]
    text_stream = StoppingTextStream(tokenizer)
    assert text_stream.push(ids[:2]) == ""
    assert text_stream.finish() == tokenizer.decode(ids[:2])


def test_special_tokens_are_left_out(tokenizer):
    assert "".join(stream(tokenizer, "a<|im_end|>b")[0]) == "ab"
