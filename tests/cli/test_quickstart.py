import json
import textwrap

import pytest

from hf_mars.cli import main, quickstart
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model


pytestmark = pytest.mark.integration


@pytest.fixture
def base_model(tmp_path):
    tokenizer = byte_level_tokenizer()
    text_model(tokenizer).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def few_problems(monkeypatch):
    """Held-out problems: a model that is not trained never comes to its end."""
    for name, value in {"NUM_HELD_OUT": 4, "NUM_SINGLE": 2, "LOSSY_THRESHOLDS": (0.5,)}.items():
        monkeypatch.setattr(quickstart, name, value)


def test_trains_saves_reloads_and_reports(tmp_path, base_model, capsys):
    counting_examples(80).to_json(tmp_path / "data.jsonl")
    main(
        ["quickstart", "--model", str(base_model), "--dataset", str(tmp_path / "data.jsonl"), "--minutes", "0.1"]
        + ["--learning-rate", "5e-3", "--dtype", "float32", "--output-dir", str(tmp_path / "run")]
    )
    record = json.loads((tmp_path / "run" / "results.json").read_text())
    results = record["results"]
    assert results[0]["mode"] == "AR" and results[0]["tokens_per_forward"] == 1.0
    assert {result["mode"] for result in results} == {"AR", "lossy", "verify"}
    assert {result["batch_size"] for result in results} == {1, 8}
    for result in results:
        if result["mode"] == "verify":
            assert result["identical"] == 1.0
            assert result["tokens_per_forward"] > 1.0 or result["threshold"] is None, "planned steps may be plain ones"
    assert record["environment"]["transformers"] and record["environment"]["dtype"] == "float32"
    assert record["training"][0]["mask_accuracy"] < record["training"][-1]["mask_accuracy"]
    assert (tmp_path / "run" / "frontier.png").stat().st_size > 10_000
    assert (tmp_path / "run" / "checkpoint" / "custom_generate" / "generate.py").exists()
    printed = capsys.readouterr().out
    assert "| 1 | float32 | verify 0.5 |" in printed
    assert "held-out problems, batch size 8, 7 ways to decode: 28 of 28 batches, " in printed
    checkpoint = (tmp_path / "run" / "checkpoint").as_posix()
    usage = textwrap.indent(quickstart.USAGE.format(checkpoint=checkpoint), "    ")
    assert printed.endswith(
        f"The picture of the table: {tmp_path}/run/frontier.png\n\nTo use the checkpoint:\n\n{usage}"
    )


def test_trains_and_decodes_in_bfloat16(tmp_path, base_model, few_problems, capsys):
    counting_examples(40).to_json(tmp_path / "data.jsonl")
    main(
        ["quickstart", "--model", str(base_model), "--dataset", str(tmp_path / "data.jsonl"), "--minutes", "0.02"]
        + ["--dtype", "bfloat16", "--output-dir", str(tmp_path / "run")]
    )
    record = json.loads((tmp_path / "run" / "results.json").read_text())
    assert record["environment"]["dtype"] == "bfloat16" and record["training"]
    assert "minutes in bfloat16" in capsys.readouterr().out


def test_gated_leaves_the_model_as_it_is(tmp_path, base_model, few_problems, capsys):
    counting_examples(20).to_json(tmp_path / "data.jsonl")
    main(
        ["quickstart", "--gated", "--model", str(base_model), "--dataset", str(tmp_path / "data.jsonl")]
        + ["--minutes", "0.1", "--dtype", "float32", "--output-dir", str(tmp_path / "run")]
    )
    answers = [json.loads(line) for line in (tmp_path / "run" / "answers" / "train.jsonl").read_text().splitlines()]
    assert len(answers) == 16, "one for each problem that is not held out"
    record = json.loads((tmp_path / "run" / "results.json").read_text())
    assert record["training"][0]["mask_accuracy"] < record["training"][-1]["mask_accuracy"]
    assert all(result["identical"] == 1.0 for result in record["results"] if result["mode"] == "verify")
    checkpoint = tmp_path / "run" / "checkpoint"
    assert (checkpoint / "adapter_config.json").exists() and not (checkpoint / "model.safetensors").exists()
    assert "stays as it is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "0"], "--minutes"),
        (["--dtype", "float16"], "--dtype"),
        (["--dataset", "data.txt"], "data.txt"),
    ],
)
def test_bad_arguments_are_named(tmp_path, base_model, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("text")
    with pytest.raises(SystemExit, match=message):
        main(["quickstart", "--model", str(base_model), "--output-dir", str(tmp_path / "run"), *arguments])
