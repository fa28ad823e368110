import json
import runpy
from pathlib import Path

import pytest

from hf_mars import AutoMARSModelForCausalLM
from hf_mars.cli import main
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model


pytestmark = pytest.mark.integration


ROOT = Path(__file__).parents[2]


@pytest.fixture
def paths(tmp_path):
    tokenizer = byte_level_tokenizer()
    text_model(tokenizer).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    (tmp_path / "data").mkdir()
    counting_examples(32).to_json(tmp_path / "data" / "train.jsonl")
    counting_examples(8).to_json(tmp_path / "data" / "test.jsonl")
    return tmp_path


def test_trains_with_lora_and_packing(paths, capsys):
    main(
        ["sft", "--model_name_or_path", str(paths / "base"), "--dataset_name", str(paths / "data")]
        + ["--output_dir", str(paths / "out"), "--max_steps", "3", "--logging_steps", "1", "--report_to", "none"]
        + ["--packing", "--max_length", "64", "--use_peft", "--lora_target_modules", "q_proj", "v_proj"]
        + ["--block_size", "3", "--eval_strategy", "steps", "--eval_steps", "3", "--dtype", "float32"]
    )
    loaded = AutoMARSModelForCausalLM.from_pretrained(paths / "out")
    assert loaded.config.mars["block_size"] == 3
    assert "eval_expected_tokens_per_forward" in capsys.readouterr().out


def test_trains_a_gated_adapter(paths):
    main(
        ["sft", "--model_name_or_path", str(paths / "base"), "--dataset_name", str(paths / "data")]
        + ["--output_dir", str(paths / "out"), "--max_steps", "2", "--report_to", "none", "--dtype", "float32"]
        + ["--mask_gated", "--mask_loss", "kl", "--mask_phases", "1"]
    )
    config = json.loads((paths / "out" / "adapter_config.json").read_text())
    assert config["alora_invocation_tokens"] == [config["mars"]["mask_token_id"]] and config["r"] == 64
    assert "| `mask_loss` | kl |" in (paths / "out" / "README.md").read_text()


def test_the_two_stages_name_what_is_missing(paths, monkeypatch, capsys):
    script = ROOT / "examples" / "two_stage.py"
    monkeypatch.setattr("sys.argv", [script.name, "--model", str(paths / "base"), "--dataset", "data/trian.jsonl"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("two_stage.py: error: `--dataset` is 'data/trian.jsonl'")
