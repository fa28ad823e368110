"""Tables and pictures."""

import functools

import pytest

from hf_mars.evaluation import (
    describe_environment,
    format_table,
    plot_acceptance_lengths,
    plot_batch_sizes,
    plot_frontier,
)
from tests.sweeps import result as mode_result


result = functools.partial(mode_result, batch_size=8, num_examples=4, tokens_per_forward=2.0, tokens_per_second=20.0)


RESULTS = [
    result(speedup=1.0, lossless=True),
    result("lossy", 0.9, speedup=2.0, acceptance_lengths=[0, 3, 2, 1, 9]),
    result("verify", 0.5, speedup=2.0, acceptance_lengths=[0, 4, 2, 2, 8], lossless=True),
    result("prompt lookup", speedup=1.2, lossless=True),
]


def test_a_table_has_a_line_a_result_and_only_columns_with_values():
    lines = format_table(RESULTS).splitlines()
    assert lines[0] == ("| batch | mode | lossless | n | accuracy | tokens/forward | tokens/s | speedup | identical |")
    assert len(lines) == 2 + len(RESULTS)
    assert lines[3] == "| 8 | lossy 0.9 | no | 4 | 0.50 | 2.00 | 20.0 | 2.00 | 100% |"
    assert "| dtype |" in format_table(RESULTS, "bfloat16").splitlines()[0] and "bfloat16" not in "".join(lines)
    several = format_table([*RESULTS, result(task="IFEval", accuracy=None, peak_memory=2_500_000_000)])
    assert several.splitlines()[0].startswith("| task | batch |")
    assert "| 2.50 |" in several


def test_an_accuracy_is_followed_by_its_interval():
    lines = format_table([result(accuracy_interval=[0.25, 0.75]), result("verify", 0.5)]).splitlines()
    assert "| accuracy (95%) |" in lines[0]
    assert "| 0.50 (0.25 to 0.75) |" in lines[2] and "| 0.50 |" in lines[3]


@pytest.mark.parametrize("accuracy", [None, 0.5])
@pytest.mark.integration
def test_pictures_are_drawn(tmp_path, accuracy):
    results = [*RESULTS, *(result(r.mode, r.threshold, batch_size=1, speedup=r.speedup + 0.2) for r in RESULTS)]
    for item in results:
        item.accuracy = accuracy
    plot_frontier(results[:4], tmp_path / "frontier.png", title="t")
    plot_batch_sizes(results, tmp_path / "batch.png", title="t")
    plot_acceptance_lengths(results[:4], tmp_path / "runs.png", title="t")
    for name in ("frontier", "batch", "runs"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_environment_names_versions_and_hardware():
    assert {"device", "threads", "python", "torch", "transformers", "trl", "hf-mars"} == set(describe_environment())
