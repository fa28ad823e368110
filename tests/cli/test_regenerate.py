import pytest
from datasets import load_dataset

from hf_mars.cli import main
from hf_mars.cli.errors import CommandError
from tests.serving.conftest import MODEL_NAME, serve
from tests.tiny_text import counting_examples, save_text_checkpoint, sharp_text_model


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    counting_examples(5).to_json(path)
    return str(path)


def test_a_checkpoint_answers(tmp_path, prompts, capsys):
    checkpoint = save_text_checkpoint(tmp_path / "checkpoint")
    command = ["regenerate", str(checkpoint), "--dataset", prompts, "--output", str(tmp_path / "answers")]
    command += ["--max-new-tokens", "6", "--batch-size", "2", "--num-answers", "2", "--dtype", "float32"]
    main(command)
    assert "10 answers to 5 prompts" in capsys.readouterr().out
    assert len(load_dataset(str(tmp_path / "answers"), split="train")) == 10
    assert str(tmp_path) not in (tmp_path / "answers" / "README.md").read_text()
    main(command)  # nothing is left to do
    with pytest.raises(CommandError, match="another max_new_tokens"):
        main([*command, "--max-new-tokens", "7"])


def test_a_model_without_mars_and_our_own_prompts(tmp_path):
    model, tokenizer = sharp_text_model()
    del model.config.mars
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    command = ["regenerate", str(tmp_path / "model"), "--output", str(tmp_path / "answers"), "--limit", "3"]
    main([*command, "--max-new-tokens", "4", "--temperature", "0"])
    assert len(load_dataset(str(tmp_path / "answers"), split="train")) == 3


@pytest.mark.integration
def test_a_server_answers(tmp_path, prompts):
    checkpoint = save_text_checkpoint(tmp_path / "checkpoint")
    with serve(checkpoint, dtype="float32") as server:
        command = ["regenerate", MODEL_NAME, "--engine", f"{server.url}/v1", "--dataset", prompts]
        main([*command, "--output", str(tmp_path / "answers"), "--max-new-tokens", "6", "--temperature", "0.8"])
    dataset = load_dataset(str(tmp_path / "answers"), split="train")
    assert len(dataset) == 5 and dataset[0]["completion"][0]["role"] == "assistant"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["model", "--num-answers", "2", "--temperature", "0"], "--num-answers"),
        (["--engine", "http://127.0.0.1:1/v1"], "--engine"),
        (["./nowhere"], "./nowhere"),
        (["tiny", "--engine", "http://127.0.0.1:1/v1", "--limit", "1"], "did not answer"),
    ],
)
@pytest.mark.integration
def test_what_cannot_be_done_is_told_in_one_line(tmp_path, options, message):
    with pytest.raises(CommandError, match=message):
        main(["regenerate", *options, "--output", str(tmp_path / "answers")])
