"""What is refused before a model is loaded, as vLLM tells it."""

import json

import pytest
from engine import MARS, load


@pytest.mark.parametrize(
    ("speculative_config", "mars", "match"),
    [
        ({**MARS, "num_speculative_tokens": 1}, {}, "num_speculative_tokens.*6 is best"),
        (MARS, {"threshold": 3}, "`threshold`"),
        (MARS, {"treshold": 0.5}, "'treshold'"),
    ],
)
def test_wrong_options_of_the_engine(tiny, speculative_config, mars, match):
    with pytest.raises(RuntimeError, match=match):
        load(tiny.path, speculative_config, mars=mars)


def test_a_checkpoint_of_another_kind(tiny, tmp_path):
    for path in tiny.path.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    del config["mars"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RuntimeError, match="no `mars` entry"):
        load(tmp_path, MARS)


def test_another_version_of_vllm(tiny, monkeypatch):
    monkeypatch.setattr("vllm.__version__", "0.99.1")
    with pytest.raises(RuntimeError, match="0.32.x, but this is vLLM 0.99.1"):
        load(tiny.path, MARS)
