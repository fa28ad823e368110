import json

import pytest
import torch

from hf_mars import enable_mars, save_pretrained
from hf_mars.cli import main
from hf_mars.modeling import add_mask_token
from tests.tiny_text import byte_level_tokenizer, text_model


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer)
    enable_mars(model, mask_token_id=add_mask_token(model, tokenizer), block_size=4)
    save_pretrained(model, tmp_path / "checkpoint", tokenizer)
    return tmp_path / "checkpoint"


def test_prints_the_arguments_of_the_fastest_way(tmp_path, checkpoint, capsys):
    messages = [{"role": "user", "content": "two"}]
    (tmp_path / "prompts.txt").write_text(f"one\n{json.dumps(messages)}\n\nthree\n")
    options = ["tune", str(checkpoint), "--prompts", str(tmp_path / "prompts.txt"), "--max-new-tokens", "6"]
    main([*options, "--device", "cpu"])
    printed = capsys.readouterr().out
    assert "| 1 | AR | yes | 3 |" in printed
    assert "model.generate(**inputs, mars_threshold=" in printed or "Nothing is faster" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--max-loss", "-1"], "max_loss"), (["--task", "x"], "no task"), (["--prompts", "nowhere.txt"], "nowhere.txt")],
)
def test_bad_options_are_named(checkpoint, options, message):
    with pytest.raises(SystemExit, match=message):
        main(["tune", str(checkpoint), *options])
