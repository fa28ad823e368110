"""The script of the paper's claims, from training to tables, on a tiny model."""

import sys
from pathlib import Path

import pytest
from datasets import concatenate_datasets

from hf_mars.evaluation.tasks.word_problems import make_word_problems
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    tokenizer = byte_level_tokenizer()
    text_model(tokenizer).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    for name, seed in (("train", 0), ("test", 1)):
        examples = concatenate_datasets([make_word_problems(6, seed=seed), counting_examples(3)])
        examples.to_json(tmp_path / "data" / f"{name}.jsonl")
    return tmp_path


def run_claims(workspace, monkeypatch, *arguments):
    import claims

    options = ["--model", workspace / "base", "--mask-token", "<|unused|>", "--data", workspace / "data"]
    options += ["--output-dir", workspace / "out", "--steps", 1, "--batch-size", 2, "--num-problems", 2]
    monkeypatch.setattr(sys, "argv", ["claims.py", *map(str, options), *arguments])
    claims.main()


@pytest.mark.integration
def test_every_arm_is_trained_and_measured_and_an_interrupted_run_goes_on(workspace, monkeypatch, capsys):
    import claim_arms
    import claims

    arms = claim_arms.ARMS[:2]  # one of each kind
    monkeypatch.setattr(claims, "ARMS", arms)
    monkeypatch.setattr(claims, "THRESHOLDS", {"entropy": (0.3,)})
    run_claims(workspace, monkeypatch, "--claims", "quality", "thresholds", "--seeds", "0")
    printed = capsys.readouterr().out
    for arm in arms:
        assert f"| {arm.name} |" in printed
    assert "| base | 0.00 (0.00 to 0.66) |" in printed and "| 100.0% |" in printed  # it agrees with itself
    assert "lossy 0.3, entropy" in printed

    # What was measured is not measured again, and what was trained is not trained again.
    monkeypatch.setattr(claim_arms, "MARSTrainer", None)
    run_claims(workspace, monkeypatch, "--claims", "quality", "thresholds", "--seeds", "0")
    assert capsys.readouterr().out.count("| MARS, B 4 |") == printed.count("| MARS, B 4 |")


def test_the_sampler_needs_a_clone(workspace, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run_claims(workspace, monkeypatch, "--claims", "sampler")
    assert "--clone" in capsys.readouterr().err
