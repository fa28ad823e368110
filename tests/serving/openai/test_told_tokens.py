"""Log-probabilities: tokens and bytes join to the text, names differ, and offsets point into the text."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_mars.serving.openai.answer import Answer
from hf_mars.serving.openai.responses import ChatFormat, CompletionFormat
from hf_mars.serving.openai.stop_strings import StoppingTextStream
from hf_mars.serving.request import RequestOutput, TokenLogprob
from tests.tiny_text import byte_level_tokenizer


PIECES = ["<unk>", "</s>", "▁yes", "yes", "▁no", "▁", "▁▁", "é", "A", *(f"<0x{byte:02X}>" for byte in range(256))]
IDS = {piece: index for index, piece in enumerate(PIECES)}
TEXT = "Grüße 👩‍🚀, it 's . a b\n  two  spaces 你好 \n\n!"


def wrap(backend):
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def llama_2(scheme="first"):
    """As Llama 2, Mistral and Phi-3: a word's first piece carries the space, and the very first one is stripped."""
    backend = Tokenizer(models.BPE(IDS, [], unk_token="<unk>", byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    return wrap(backend)


def unigram():
    backend = Tokenizer(models.Unigram([(piece, -1.0) for piece in PIECES], unk_id=0, byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    return wrap(backend)


def word_piece():
    backend = Tokenizer(models.WordPiece({"<unk>": 0, "</s>": 1, "yes": 2, "##no": 3, "é": 4}, unk_token="<unk>"))
    backend.decoder = decoders.WordPiece()
    return wrap(backend)


def answer_of(tokenizer, token_ids, width=1, stop=(), alternatives=()):
    answer = Answer(0, StoppingTextStream(tokenizer, stop))
    for start in range(0, len(token_ids), width):
        ids = token_ids[start : start + width]
        logprobs = [TokenLogprob(-1.0, [(other, -2.0) for other in (token, *alternatives)]) for token in ids]
        finish_reason = "length" if start + width >= len(token_ids) else None
        answer.add(RequestOutput(ids, 0.5, finish_reason, logprobs))
    return answer


def told(answer):
    chat = ChatFormat("m", False, False).choice(answer).logprobs.content
    return chat, CompletionFormat("m", False, False).choice(answer).logprobs


def pieces(*names):
    return [IDS[name] for name in names]


def fallback(text):
    return [IDS[f"<0x{byte:02X}>"] for byte in text.encode()]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(
    "tokenizer, token_ids",
    [
        (llama_2(), pieces("yes", "▁no", "▁yes")),
        (llama_2(), pieces("▁yes", "▁no", "yes")),
        (llama_2(), pieces("▁", "▁yes", "▁▁", "é")),
        (llama_2(), pieces("▁▁", "yes")),
        (llama_2(), [*fallback("🙂"), *pieces("▁yes", "yes"), *fallback("é"), *pieces("▁no")]),
        (llama_2("always"), pieces("</s>", "▁yes", "é", "▁no")),
        (unigram(), [*pieces("▁yes", "▁no"), *fallback("你"), *pieces("▁yes")]),
        (word_piece(), [2, 3, 2, 4, 2]),
        (byte_level_tokenizer(), byte_level_tokenizer()(TEXT)["input_ids"]),
    ],
)
def test_tokens_and_bytes_join_to_the_text(tokenizer, token_ids, width):
    answer = answer_of(tokenizer, token_ids, width)
    chat, completion = told(answer)
    special = set(tokenizer.all_special_tokens)
    assert answer.text == tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert len(chat) == len(token_ids)
    assert b"".join(bytes(entry.bytes) for entry in chat).decode() == answer.text
    names = [entry.token for entry in chat]
    assert names == completion.tokens
    if not any(name.startswith("bytes:") for name in names):
        assert "".join(name for name in names if name not in special) == answer.text
    for entry, offset in zip(chat, completion.text_offset, strict=True):
        if not entry.token.startswith("bytes:") and entry.token not in special:
            assert answer.text[offset:].startswith(entry.token)
    assert completion.text_offset == sorted(completion.text_offset)


def test_a_first_space_is_left_out_once():
    answer = answer_of(llama_2(), pieces("▁yes", "▁yes", "▁no"))
    chat, completion = told(answer)
    assert [entry.token for entry in chat] == ["yes", " yes", " no"]
    assert completion.text_offset == [0, 3, 7]


@pytest.mark.parametrize(
    "tokenizer, ids",
    [(llama_2(), fallback("🙂é")), (byte_level_tokenizer(), byte_level_tokenizer()("🙂é")["input_ids"])],
)
def test_parts_of_a_character_are_named_by_their_bytes(tokenizer, ids):
    chat, completion = told(answer_of(tokenizer, ids))
    assert b"".join(bytes(entry.bytes) for entry in chat) == "🙂é".encode()
    assert set(completion.text_offset) == {0, 1}, "characters, not bytes"
    if len(ids) == 6:
        assert [entry.token for entry in chat][:2] == [r"bytes:\xf0", r"bytes:\x9f"]
        assert completion.text_offset == [0, 0, 0, 0, 1, 1]


def test_a_character_that_stays_incomplete_keeps_its_bytes():
    answer = answer_of(llama_2(), [*pieces("yes"), *fallback("🙂")[:2]])
    chat, completion = told(answer)
    assert [entry.bytes for entry in chat] == [list(b"yes"), [0xF0], [0x9F]]
    assert all(offset <= len(answer.text) for offset in completion.text_offset)


@pytest.mark.parametrize("position", [0, 1])
def test_distinct_tokens_have_distinct_names(position):
    others = pieces("▁yes", "yes", "A", "</s>", "<unk>") + [IDS["<0x41>"], IDS["<0xF0>"], IDS["<0x9F>"]]
    chat, completion = told(answer_of(llama_2(), pieces("▁no", "▁yes"), alternatives=others))
    assert len(completion.top_logprobs[position]) == len(set([IDS["▁no"], *others][position:]))
    names = [entry.token for entry in chat[position].top_logprobs]
    assert dict(zip(names, [None] * len(names), strict=True)).keys() == completion.top_logprobs[position].keys()
    assert f"token_id:{IDS['<0x41>']}" in names and "</s>" in names
    assert ("yes" in names and " yes" in names) == (position == 1)


@pytest.mark.parametrize("width", [1, 4])
def test_nothing_is_told_of_a_stop_string(width):
    answer = answer_of(llama_2(), pieces("yes", "▁no", "A", "▁yes"), width, stop=[" noA"])
    chat, completion = told(answer)
    assert answer.text == "yes"
    assert [entry.token for entry in chat] == ["yes"] and completion.text_offset == [0]


def test_chunks_tell_each_token_once():
    tokenizer = llama_2()
    ids = [*pieces("▁yes"), *fallback("🙂"), *pieces("▁no", "</s>")]
    whole, _ = told(answer_of(tokenizer, ids))
    answer, format_, sent, entries = Answer(0, StoppingTextStream(tokenizer)), ChatFormat("m", False, False), 0, []
    for token in ids:
        reason = "stop" if token == IDS["</s>"] else None
        text = answer.add(RequestOutput([token], 0.5, reason, [TokenLogprob(-1.0, [(token, -1.0)])]))
        chunk = format_.text_chunk(answer, text, sent)
        new = chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else []
        entries, sent = [*entries, *new], len(answer.told)
    assert entries == whole
    assert entries[-1].token == "</s>" and entries[-1].bytes == []
