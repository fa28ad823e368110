import json

import pytest

from hf_mars import load_evaluation
from hf_mars.cli import main
from tests.tiny_text import save_text_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    return save_text_checkpoint(tmp_path / "checkpoint")


def command(checkpoint, tmp_path, *more):
    options = ["bench", str(checkpoint), "--limit", "4", "--limit-single", "2", "--max-new-tokens", "8"]
    return [
        *options,
        "--batch-sizes",
        "2",
        "1",
        "--output-dir",
        str(tmp_path / "bench"),
        "--device",
        "cpu",
        "--dtype",
        "float32",
        *more,
    ]


@pytest.mark.integration
def test_measures_all_modes_and_peers_and_writes_everything(tmp_path, checkpoint, capsys):
    main(command(checkpoint, tmp_path, "--metrics", "probability", "margin", "--block-sizes", "4", "8"))
    printed = capsys.readouterr().out
    evaluation = load_evaluation(tmp_path / "bench" / "results.json")
    modes = {result.mode for result in evaluation.results}
    assert modes == {
        "AR",
        "lossy",
        "verify",
        "AR, static cache",
        "prompt lookup",
        "Jacobi",
        "no cache",
        "block-synchronous",
    }
    assert {(r.metric, r.block_size) for r in evaluation.results if r.mode == "verify"} == {
        ("probability", None),
        ("margin", None),
        ("probability", 8),
        ("margin", 8),
    }
    assert evaluation.environment["dtype"] == "float32" and evaluation.command.startswith("hf-mars")
    assert {r.num_examples for r in evaluation.results if r.batch_size == 1} == {2}
    files = {path.name for path in (tmp_path / "bench").iterdir()}
    assert {"results.json", "results.md", "texts.json", "measurements.jsonl"} <= files
    assert {
        "frontier_word_problems_batch2.png",
        "acceptance_lengths_word_problems_batch1.png",
        "batch_sizes_word_problems.png",
    } <= files
    assert "| verify 0.5, margin, B 8 |" in printed
    assert len(json.loads((tmp_path / "bench" / "texts.json").read_text())) == len(evaluation.results)

    before = (tmp_path / "bench" / "measurements.jsonl").read_bytes()
    main(command(checkpoint, tmp_path, "--metrics", "probability", "margin", "--block-sizes", "4", "8"))
    assert (tmp_path / "bench" / "measurements.jsonl").read_bytes() == before, "nothing is measured twice"
    with pytest.raises(SystemExit, match="another max_new_tokens"):
        main([*command(checkpoint, tmp_path), "--max-new-tokens", "9"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "gsm9k"], "gsm9k"),
        (["--limit", "0"], "--limit"),
        (["--peers", "telepathy"], "telepathy"),
        (["--peers", "assisted"], "--draft"),
        (["--peers", "assisted, MARS"], "MARS checkpoint.*--draft"),
        (["--dtype", "float99"], "--dtype"),
        (["--thresholds"], "--thresholds"),
        (["--batch-sizes", "0"], "--batch-sizes"),
    ],
)
def test_bad_options_are_named(tmp_path, checkpoint, options, message):
    with pytest.raises(SystemExit, match=message):
        main(command(checkpoint, tmp_path, *options))


def test_without_a_checkpoint_it_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="make quickstart"):
        main(["bench"])
