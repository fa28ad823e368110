import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from hf_mars.text_stream import TextStream
from tests.tiny_text import byte_level_tokenizer


TEXT = "Grüße 👩‍🚀, it 's . a b\n  two  spaces 你好 \n\n!"


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_tokenizer()


def stream(tokenizer, ids, width=1):
    text_stream = TextStream(tokenizer)
    pieces = [text_stream.push(ids[start : start + width]) for start in range(0, len(ids), width)]
    assert text_stream.token_ids == ids
    return [*pieces, text_stream.finish()]


@pytest.mark.parametrize("width", [1, 2, 5])
def test_pieces_are_whole_characters_and_add_up(tokenizer, width):
    pieces = stream(tokenizer, tokenizer(TEXT, add_special_tokens=False)["input_ids"], width)
    assert "".join(pieces) == TEXT
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert sum(map(bool, pieces)) > 5


def test_what_stays_incomplete_comes_at_the_end(tokenizer):
    ids = tokenizer("👩")["input_ids"][:2]
    assert stream(tokenizer, ids, width=2) == ["", tokenizer.decode(ids)]


def test_special_tokens_are_left_out(tokenizer):
    assert "".join(stream(tokenizer, tokenizer("a<|im_end|>b")["input_ids"])) == "ab"


class TestSentencePiece:
    """A decoder that drops the first space, and reads bytes that follow one another together."""

    @pytest.fixture
    def tokenizer(self):
        tokens = ["<unk>", "<s>", "▁one", "▁two", "s", "<0x41>", "<0xE4>", "<0xBD>", "<0xA0>"]
        tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, [], byte_fallback=True))
        tokenizer.add_special_tokens(["<s>"])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")

    def test_spaces_between_words_stay(self, tokenizer):
        ids = [1, 2, 1, 3, 4, 2]
        assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids, skip_special_tokens=True) == "one twos one"

    def test_bytes_that_are_no_character_break_nothing(self, tokenizer):
        assert stream(tokenizer, [2, 6, 7, 8, 3]) == ["one", "", "", "你", " two", ""]
        pieces = stream(tokenizer, [2, 5, 6, 3])
        assert pieces[0] == "one" and pieces[-2].endswith(" two")
