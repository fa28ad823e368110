import json

import pytest

from hf_mars.cli import main
from tests.tiny_text import save_text_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    return save_text_checkpoint(tmp_path / "checkpoint")


@pytest.mark.integration
def test_prints_the_arguments_of_the_fastest_way(tmp_path, checkpoint, capsys):
    messages = [{"role": "user", "content": "two"}]
    (tmp_path / "prompts.txt").write_text(f"one\n{json.dumps(messages)}\n\nthree\n")
    options = ["tune", str(checkpoint), "--prompts", str(tmp_path / "prompts.txt"), "--max-new-tokens", "6"]
    main([*options, "--device", "cpu", "--dtype", "float32"])
    printed = capsys.readouterr().out
    assert "| 1 | float32 | AR | yes | 3 |" in printed
    assert "model.generate(**inputs, mars_threshold=" in printed or "Nothing is faster" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-loss", "-1"], "--max-loss"),
        (["--task", "x"], "no task"),
        (["--prompts", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_options_are_named(checkpoint, options, message):
    with pytest.raises(SystemExit, match=message):
        main(["tune", str(checkpoint), *options])
