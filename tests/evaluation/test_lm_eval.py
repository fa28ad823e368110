"""lm-eval on a MARS checkpoint: its own `hf` model as it is, and the one that counts."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.tiny_text import save_text_checkpoint


pytest.importorskip("lm_eval")


pytestmark = pytest.mark.integration

TASK = """
task: counting
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["stop"]
  max_gen_toks: 12
metric_list:
  - metric: exact_match
"""


@pytest.fixture
def workspace(tmp_path):
    save_text_checkpoint(tmp_path / "checkpoint")
    lines = [json.dumps({"question": f"Count from {start}.", "answer": "1"}) for start in range(4)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "counting.yaml").write_text(TASK.format(data=tmp_path / "data.jsonl"))
    return tmp_path


def evaluate(workspace, module, model, model_args, *options):
    command = [
        sys.executable,
        "-m",
        module,
        "run",
        "--model",
        model,
        "--model_args",
        model_args,
        "--tasks",
        "counting",
    ]
    command += ["--include_path", str(workspace / "tasks"), "--device", "cpu", "--batch_size", "2", "--log_samples"]
    result = subprocess.run(
        [*command, "--output_path", str(workspace / f"out-{model}"), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HOME": str(workspace / "home"), "HF_DATASETS_OFFLINE": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    samples = next((workspace / f"out-{model}").rglob("samples_*.jsonl"))
    return result.stdout, [json.loads(line)["resps"] for line in samples.read_text().splitlines()]


def test_the_own_model_of_lm_eval_takes_mars_arguments_and_ours_counts(workspace):
    path = workspace / "checkpoint"
    options = ["--gen_kwargs", "mars_threshold=0.0,mars_verify=True"]
    arguments = f"pretrained={path},trust_remote_code=True,dtype=float32"
    _, theirs = evaluate(workspace, "lm_eval", "hf", arguments, *options)
    printed, ours = evaluate(
        workspace, "hf_mars.evaluation.lm_eval", "hf-mars", f"pretrained={path},dtype=float32", *options
    )
    assert theirs == ours
    tokens, forwards = map(int, re.search(r"(\d+) tokens in (\d+) forward passes", printed).groups())
    assert tokens == 4 * 12 and forwards <= tokens
