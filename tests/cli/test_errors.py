"""What each command says when it cannot do what was asked: one line that names it, and exit code 2."""

import json
import shutil
import socket

import pytest

from hf_mars.cli import main
from tests.tiny_text import byte_level_tokenizer, counting_examples, save_text_checkpoint, text_model


pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A directory with a checkpoint, a base model and files of all kinds."""
    folder = tmp_path_factory.mktemp("places")
    tokenizer = byte_level_tokenizer()
    text_model(tokenizer).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    save_text_checkpoint(folder / "ckpt")
    for name in ("damaged", "mute", "wordless"):
        shutil.copytree(folder / "ckpt", folder / name)
    (folder / "damaged" / "model.safetensors").write_bytes(b"not weights")
    (folder / "mute" / "chat_template.jinja").unlink()
    (folder / "wordless" / "tokenizer.json").write_text("{}")
    shutil.copytree(folder / "ckpt", folder / "old")
    config = json.loads((folder / "old" / "config.json").read_text())
    del config["pard_token"]
    (folder / "old" / "config.json").write_text(json.dumps(config))
    (folder / "empty").mkdir()
    counting_examples(40).to_json(folder / "train.jsonl")
    counting_examples(5).to_json(folder / "small.jsonl")
    counting_examples(40).rename_columns({"prompt": "p", "completion": "c"}).to_json(folder / "columns.jsonl")
    (folder / "bad.jsonl").write_text('{"a": 1}\n{bad\n')
    (folder / "text.txt").write_text("text\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "roles.txt").write_text('one\n[{"role": 5}]\n')
    (folder / "half.txt").write_text(json.dumps([{"role": "user", "content": "\ud800"}]) + "\n")
    (folder / "blank.txt").write_text("\n")
    (folder / "nothing.jsonl").write_text("")
    (folder / "list.json").write_text('{"results": [3], "environment": {}}')
    (folder / "rate.yaml").write_text("learning_rate: [1]\n")
    (folder / "mixture.yaml").write_text("datasets:\n  - path: data/trian.jsonl\n")
    return folder


PUSH = ["push", "ckpt", "user/name"]
QUICKSTART = ["quickstart", "--model", "base", "--output-dir", "out"]
SFT = ["sft", "--model_name_or_path", "base", "--output_dir", "out"]
TRAINED = [*SFT, "--dataset_name", "train.jsonl", "--report_to", "none"]
GENERATE = ["generate", "ckpt", "--prompt", "a"]

CASES = [
    ([], "command"),
    (["genrate"], "genrate"),
    (["generate", "ckpt"], "--prompt"),
    (["generate", "nowhere/there", "--prompt", "a"], "nowhere/there"),
    (["generate", "./nowhere", "--prompt", "a"], "./nowhere"),
    (["generate", "text.txt", "--prompt", "a"], "text.txt"),
    (["generate", "empty", "--prompt", "a"], "empty"),
    (["generate", "base", "--prompt", "a"], "'base' is no MARS checkpoint"),
    (["generate", "damaged", "--prompt", "a"], "damaged"),
    (["generate", "wordless", "--prompt", "a"], "wordless"),
    (["generate", "mute", "--prompt", "a"], "'mute' has no chat template"),
    ([*GENERATE, "--mars-threshold", "7"], "--mars-threshold.*7"),
    ([*GENERATE, "--mars-block-size", "0"], "--mars-block-size"),
    ([*GENERATE, "--max-new-tokens", "0"], "--max-new-tokens"),
    ([*GENERATE, "--temperature", "nan"], "--temperature.*nan"),
    ([*GENERATE, "--dtype", "int64"], "--dtype.*int64"),
    ([*GENERATE, "--device", "abacus"], "--device.*abacus"),
    ([*GENERATE, "more"], "more"),
    ([*GENERATE, "--mars-block-size", "4"], "Without `mars_threshold`, `mars_block_size` would change nothing"),
    ([*GENERATE, "--mars-verify=exact"], "--mars-verify: takes no value, got 'exact'"),
    (["generate", "ckpt", "--prompt", " "], "--prompt.*empty"),
    (["generate", "ckpt", "--prompt", "caf\udce9"], "--prompt.*not UTF-8"),
    (["generate", "ckpt", "--prompt=\ud800"], "--prompt.*surrogate"),
    (["generate", "ckpt\udce9", "--prompt", "a"], "argument 1.*not UTF-8"),
    (["bench", "base", "--limit", "2"], "'base' is no MARS checkpoint"),
    (["bench", "ckpt", "--draft", "nowhere/there"], "--draft.*nowhere/there"),
    (["bench", "ckpt", "--draft", "text.txt"], "--draft.*text.txt.*a file"),
    (["bench", "ckpt", "--peers", "AR"], "no 'AR'; there are 'AR, static cache', 'prompt.*in quotes.*always measured"),
    (["bench", "ckpt", "--tasks", "GSM8K"], "no task 'GSM8K'; there are 'word_problems', 'gsm8k'"),
    (["bench", "ckpt", "--limit", "5000"], "word problems.*1000, got 5000"),
    (["bench", "ckpt", "--thresholds", "0.5", "7"], "--thresholds.*7"),
    (["bench", "ckpt", "--rounds", "x"], "--rounds.*x"),
    (["bench", "ckpt", "--output-dir", "text.txt/deep"], "--output-dir.*text.txt"),
    (["engines"], "engine"),
    (["engines", "vllm"], "checkpoint"),
    (["engines", "vllm", "base"], "'base' is no MARS checkpoint"),
    (["engines", "vllm", "./nowhere"], "./nowhere"),
    (["engines", "vllm", "empty"], "empty"),
    (["engines", "vllm", "nowhere/there"], "checkpoint 'nowhere/there'"),
    (["engines", "vllm", "ckpt", "--draft-for", "./nowhere"], "--draft-for.*nowhere"),
    (["engines", "vllm", "old", "--draft-for", "base"], "'old' has no `pard_token`.*save"),
    (["tune", "base"], "'base' is no MARS checkpoint"),
    (["tune", "ckpt", "--prompts", "empty"], "empty"),
    (["tune", "ckpt", "--prompts", "latin.txt"], "latin.txt.*not UTF-8 at byte 3"),
    (["tune", "ckpt", "--prompts", "roles.txt"], "roles.txt, line 2"),
    (["tune", "ckpt", "--prompts", "half.txt"], "half.txt, line 1.*surrogate"),
    (["tune", "ckpt", "--prompts", "blank.txt"], "blank.txt.*empty"),
    (["tune", "ckpt", "--prompts", "nowhere.txt"], "--prompts.*nowhere.txt: No such file"),
    (["tune", "ckpt", "--limit", "-1"], "--limit.*-1"),
    (["tune", "ckpt", "--batch-size", "0"], "--batch-size"),
    (["push"], "folder, repo_id"),
    (["push", "base", "user/name"], "'base'.*no MARS checkpoint"),
    (["push", "text.txt", "user/name"], "text.txt"),
    (["push", "ckpt", "bad//id"], "bad//id"),
    ([*PUSH, "--evaluation", "nowhere.json"], "nowhere.json"),
    ([*PUSH, "--evaluation", "list.json"], "results.*list of JSON objects"),
    ([*PUSH, "--endpoint", "localhost"], "--endpoint.*http"),
    (["regenerate", "ckpt", "--output", "out", "--dataset", "nothing.jsonl"], "--dataset.*nothing.jsonl.*no example"),
    (["regenerate", "ckpt", "--output", "out", "--device", "abacus"], "--device.*abacus"),
    (["regenerate", "ckpt", "--output", "out", "--engine", "localhost:1"], "--engine.*http"),
    (["regenerate", "text.txt", "--output", "out"], "text.txt.*a file"),
    (["demo", "base"], "'base' is no MARS checkpoint"),
    (["demo", "./nowhere"], "./nowhere"),
    (["demo", "ckpt", "--port", "99999"], "--port.*99999"),
    (["demo", "ckpt", "--port", "TAKEN"], "--port"),
    (["serve", "ckpt", "--port", "TAKEN"], "--port"),
    (["serve", "base"], "'base' is no MARS checkpoint"),
    (["serve"], "make quickstart"),
    (["serve", "ckpt", "--host", "nowhere.invalid"], "--host.*nowhere to listen: [A-Z]"),
    ([*QUICKSTART, "--minutes", "nan"], "--minutes.*nan"),
    ([*QUICKSTART, "--block-size", "1"], "--block-size"),
    ([*QUICKSTART, "--learning-rate", "-1"], "--learning-rate"),
    ([*QUICKSTART, "--output-dir", "text.txt"], "--output-dir.*text.txt"),
    ([*QUICKSTART, "--model", "./nowhere"], "--model.*nowhere"),
    ([*QUICKSTART, "--model", "nowhere/there"], "nowhere/there"),
    ([*QUICKSTART, "--model", "damaged"], "damaged"),
    ([*QUICKSTART, "--dataset", "data/trian.jsonl"], "--dataset.*data/trian.jsonl"),
    ([*QUICKSTART, "--dataset", "nowhere/there"], "--dataset.*nowhere/there"),
    ([*QUICKSTART, "--dataset", "bad.jsonl"], "--dataset.*bad.jsonl.*JSON"),
    ([*QUICKSTART, "--dataset", "small.jsonl"], "--dataset.*32.*5"),
    ([*QUICKSTART, "--dataset", "columns.jsonl"], "--dataset.*c, p"),
    (["sft"], "model_name_or_path"),
    (SFT, "dataset_name"),
    ([*SFT, "--output_dir", "text.txt"], "output_dir.*text.txt.*a file"),
    ([*SFT, "--dataset_name", "data/trian.jsonl"], "dataset_name.*data/trian.jsonl"),
    ([*SFT, "--dataset_name", "nowhere/there"], "dataset_name.*nowhere/there"),
    ([*SFT, "--dataset_name", "columns.jsonl", "--report_to", "none"], "no column.*p, c"),
    ([*SFT, "--config", "mixture.yaml"], "datasets.*data/trian.jsonl"),
    ([*TRAINED, "--eval_strategy", "steps", "--eval_steps", "1"], "dataset_test_split.*'test', only train"),
    ([*TRAINED, "--dataset_train_split", "trian"], "dataset_train_split.*'trian', only train"),
    ([*TRAINED, "--blocksize", "3"], "--blocksize"),
    ([*TRAINED, "--block_size", "1"], "block_size"),
    ([*TRAINED, "--config"], "--config"),
    ([*TRAINED, "--config", "nowhere.yaml"], "nowhere.yaml"),
    ([*TRAINED, "--config", "rate.yaml"], "learning_rate.*rate.yaml"),
    ([*TRAINED, "--resume_from_checkpoint", "nowhere"], "resume_from_checkpoint.*nowhere"),
    ([*TRAINED, "--model_name_or_path", "nowhere/there"], "nowhere/there"),
]


@pytest.mark.parametrize(("arguments", "words"), CASES, ids=[ascii(" ".join(arguments)) for arguments, _ in CASES])
def test_an_error_is_one_line(places, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(places)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit, match=words) as ended:
            main([port if argument == "TAKEN" else argument for argument in arguments])
    assert ended.value.code == 2
    said = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    assert said == [str(ended.value)]
    command = [argument for argument in arguments[:2] if argument in ("engines", "vllm")] or arguments[:1]
    assert said[0].startswith(" ".join(["hf-mars", *[a for a in command if a != "genrate"]]) + ": error: ")
