"""The modules as others use them: copied elsewhere by `evaluate`, without hf_mars and without a network."""

import shutil
import socket
import sys
from pathlib import Path

import evaluate
import pytest

from hf_mars.evaluation import metrics
from hf_mars.evaluation.metrics import are_correct, load_metric


pytestmark = pytest.mark.integration  # some modules start processes

FOLDER = Path(metrics.__file__).parent
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
PROBLEM = {"task_id": "x/1", "prompt": "def double(x):\n", "entry_point": "double"}
PROBLEM["test"] = "def check(candidate):\n    assert candidate(2) == 4\n"
ROW = {"key": 1, "prompt": "Use no comma.", "instruction_id_list": ["punctuation:no_comma"]}
ROW["kwargs"] = [{"language": None}]  # as on the Hub, where a row has the arguments of all instructions
SCORED = {  # a right answer, a wrong one, and what both are compared with
    "code_tests": ("    return 2 * x", "    return x", PROBLEM),
    "final_number": ("It is $1,200.", "#### 12", "1200"),
    "instruction_following": ("None here", "One, two", ROW),
    "stated_answer": ("The answer is 5.", "5", "So: The answer is 5."),
}


def test_every_module_is_tested():
    assert NAMES == sorted([*SCORED, "tokens_per_forward"])


@pytest.mark.parametrize("name", SCORED)
def test_scorers_give_the_share_of_right_answers_or_each_of_them(name):
    if name == "instruction_following":
        pytest.importorskip("eval_framework")
    right, wrong, reference = SCORED[name]
    metric = load_metric(name)
    assert (metric.name, metric.module_type) == (name, "metric")
    assert metric.compute(predictions=[right, wrong, wrong, wrong], references=[reference] * 4) == {"accuracy": 0.25}
    assert are_correct(name, [wrong, right], [reference] * 2) == [False, True]


def test_tokens_per_forward_is_a_ratio_of_sums():
    measurement = load_metric("tokens_per_forward")
    assert measurement.module_type == "measurement"
    assert measurement.compute(tokens=[60, 20], forward_passes=[20, 20]) == {"tokens_per_forward": 2.0}


@pytest.mark.parametrize("name", NAMES)
def test_a_module_needs_nothing_of_hf_mars(name):
    for file in (FOLDER / name).glob("*.py"):
        assert "hf_mars" not in file.read_text(), file


def test_a_folder_works_anywhere_without_a_network(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setitem(sys.modules, "hf_mars", None)
    shutil.copytree(FOLDER / "code_tests", tmp_path / "code_tests")
    metric = evaluate.load(str(tmp_path / "code_tests"))
    assert metric.compute(predictions=["    return 2 * x"], references=[PROBLEM]) == {"accuracy": 1.0}


def test_the_evaluator_of_evaluate_resamples_them():
    scores = evaluate.Evaluator.compute_metric(
        evaluate.Evaluator,
        load_metric("final_number"),
        {"predictions": ["1", "2", "3", "4"], "references": ["1", "2", "0", "0"]},
        strategy="bootstrap",
        n_resamples=20,
        random_state=0,
    )
    assert scores["accuracy"]["score"] == 0.5
    low, high = scores["accuracy"]["confidence_interval"]
    assert low < 0.5 < high
