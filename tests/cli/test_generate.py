import io
import re

import pytest

from hf_mars import save_pretrained
from hf_mars.cli import main
from tests.tiny_text import sharp_text_model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("generate") / "checkpoint"
    model, tokenizer = sharp_text_model()
    save_pretrained(model, directory, tokenizer)
    return str(directory)


def generate(capsys, checkpoint, *options):
    more = ["--max-new-tokens", "24", "--dtype", "float64", "--device", "cpu"]
    main(["generate", checkpoint, "--prompt", "Count from 3.", *more, *options])
    output = capsys.readouterr()
    tokens, forwards = map(int, re.match(r"(\d+) tokens, (\d+) forward passes", output.err.splitlines()[-1]).groups())
    return output.out, tokens, forwards


def test_one_answer_and_its_counts(capsys, checkpoint):
    plain, tokens, forwards = generate(capsys, checkpoint)
    assert plain.strip() and tokens == forwards
    lossy, tokens, forwards = generate(capsys, checkpoint, "--mars-threshold", "0")
    assert forwards < tokens and lossy != plain
    verified, tokens, _ = generate(capsys, checkpoint, "--mars-threshold", "0", "--mars-verify")
    assert verified == plain


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("text", [b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80"])
def test_standard_input_that_is_no_text_is_one_line(monkeypatch, checkpoint, errors, text):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", errors=errors))
    with pytest.raises(SystemExit, match="hf-mars generate: error: `standard input`.* UTF-8 at") as ended:
        main(["generate", checkpoint, "--prompt", "-"])
    assert ended.value.code == 2


def test_a_prompt_from_standard_input(monkeypatch, capsys, checkpoint):
    monkeypatch.setattr("sys.stdin", io.StringIO("Count from 3."))
    assert generate(capsys, checkpoint, "--prompt", "-") == generate(capsys, checkpoint)
