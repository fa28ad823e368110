"""lm-eval on a MARS checkpoint: its own `hf` model as it is, and the one that counts."""

import json
import re
import runpy
import sys
from functools import partial

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


def answers_of_their_model(workspace, model_args, generation):
    """In this process, without all the tasks that lm-eval knows."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    tasks = TaskManager(include_path=str(workspace / "tasks"), include_defaults=False)
    results = simple_evaluate(
        "hf", model_args, ["counting"], batch_size=2, device="cpu", gen_kwargs=generation, task_manager=tasks
    )
    return [sample["resps"] for sample in results["samples"]["counting"]]


def answers_of_our_command(workspace, model_args, generation, monkeypatch):
    """As `python -m hf_mars.evaluation.lm_eval` with these arguments, also without all those tasks."""
    from lm_eval import tasks

    command = ["lm_eval", "run", "--model", "hf-mars", "--model_args", model_args, "--tasks", "counting"]
    command += ["--include_path", str(workspace / "tasks"), "--output_path", str(workspace / "out")]
    command += ["--device", "cpu", "--batch_size", "2", "--log_samples", "--gen_kwargs", generation]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(tasks, "TaskManager", partial(tasks.TaskManager, include_defaults=False))
    runpy.run_module("hf_mars.evaluation.lm_eval", run_name="__main__")
    samples = next((workspace / "out").rglob("samples_*.jsonl"))
    return [json.loads(line)["resps"] for line in samples.read_text().splitlines()]


def test_the_own_model_of_lm_eval_takes_mars_arguments_and_ours_counts(workspace, monkeypatch, capsys):
    path, generation = workspace / "checkpoint", "mars_threshold=0.0,mars_verify=True"
    theirs = answers_of_their_model(workspace, f"pretrained={path},trust_remote_code=True,dtype=float32", generation)
    ours = answers_of_our_command(workspace, f"pretrained={path},dtype=float32", generation, monkeypatch)
    assert theirs == ours
    printed = capsys.readouterr().out
    tokens, forwards = map(int, re.search(r"(\d+) tokens in (\d+) forward passes", printed).groups())
    assert tokens == 4 * 12 and forwards <= tokens
