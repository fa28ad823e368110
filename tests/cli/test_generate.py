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


def test_bad_arguments_are_one_line(checkpoint):
    with pytest.raises(SystemExit, match="mars_threshold"):
        main(["generate", checkpoint, "--prompt", "a", "--mars-threshold", "7"])
    with pytest.raises(SystemExit, match="hf-mars generate: error"):
        main(["generate", "nowhere/there", "--prompt", "a"])
