import pytest

from hf_mars import enable_mars
from hf_mars.evaluation import Mode, ModeResult, describe_environment, format_table, measure_modes, plot_frontier
from hf_mars.modeling import add_mask_token
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model


@pytest.fixture(scope="module")
def results():
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer).double().eval()
    enable_mars(model, mask_token_id=add_mask_token(model, tokenizer), block_size=4)
    modes = [Mode("AR"), Mode("lossy", 0.0), Mode("verify", 0.0)]
    prompts = list(counting_examples(5)["prompt"])
    return measure_modes(
        model, tokenizer, prompts, modes, batch_size=2, max_new_tokens=12, is_correct=lambda index, text: index == 0
    )


def test_modes_are_measured_on_every_prompt(results):
    ar, lossy, verify = results
    assert [len(result.texts) for result in results] == [5, 5, 5]
    assert ar.tokens_per_forward == ar.speedup == ar.identical == 1.0
    assert lossy.tokens_per_forward > 2
    assert verify.identical == 1.0
    assert ar.accuracy == pytest.approx(0.2)


def test_table_has_a_line_a_mode(results):
    lines = format_table(results).splitlines()
    assert len(lines) == 2 + 3
    assert lines[2].startswith("| AR | 2 | 0.20 | 1.00 |")
    assert lines[4].startswith("| verify 0 | 2 |")


@pytest.mark.parametrize("accuracy", [None, 0.5])
def test_frontier_is_drawn(tmp_path, accuracy):
    results = [ModeResult("AR", None, 8, accuracy, 1.0, 10.0, 1.0, 1.0, [])]
    results += [ModeResult(name, 0.5, 8, accuracy, 2.0, 20.0, 2.0, 1.0, []) for name in ("lossy", "verify")]
    plot_frontier(results, tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_environment_names_versions_and_hardware():
    assert {"device", "threads", "python", "torch", "transformers", "trl", "hf-mars"} == set(describe_environment())
