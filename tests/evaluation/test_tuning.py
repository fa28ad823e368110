import pytest
import torch

from hf_mars import enable_mars
from hf_mars.cli.tune import describe
from hf_mars.evaluation import MethodResult, tune
from hf_mars.evaluation.tuning import candidates
from tests.tiny_text import byte_level_tokenizer, text_model


def fake_measurements(monkeypatch, speed, is_exact=True):
    """Replace the clock: `speed` gives speedup, accuracy and share of identical outputs of each mode."""
    calls = []

    def measure(model, tokenizer, prompts, modes, batch_size, rounds=1, score=None, **kwargs):
        calls.append((len(prompts), [str(mode) for mode in modes], rounds))
        results = []
        for mode in modes:
            speedup, accuracy, identical = (1.0, 0.5, 1.0) if mode.name == "AR" else speed(mode)
            results.append(
                MethodResult(
                    mode=mode.name,
                    threshold=mode.threshold,
                    batch_size=batch_size,
                    task="",
                    num_examples=len(prompts),
                    accuracy=accuracy if score else None,
                    tokens_per_forward=2.0,
                    tokens_per_second=10 * speedup,
                    speedup=speedup,
                    identical=identical,
                    block_size=mode.block_size,
                    lossless=mode.is_lossless and is_exact,
                )
            )
        return results

    monkeypatch.setattr("hf_mars.evaluation.tuning.measure_methods", measure)
    return calls


@pytest.fixture
def subject():
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer)
    return enable_mars(model, mask_token_id=len(tokenizer), block_size=8), tokenizer


PROMPTS = [[{"role": "user", "content": str(index)}] for index in range(16)]


def lossy_is_faster(mode):
    if mode.name == "verify":
        return 1.2 + (mode.block_size == 4) * 0.3 + (mode.threshold or 0) / 10, 0.5, 1.0
    lost = 0.02 * (1 - mode.threshold) * 10
    return 1.5 + (1 - mode.threshold), 0.5 - lost, 1 - lost


def test_lossless_is_the_default(subject, monkeypatch):
    calls = fake_measurements(monkeypatch, lossy_is_faster)
    best, results = tune(*subject, PROMPTS, batch_size=2)
    assert (best.mode, best.threshold, best.block_size) == ("verify", 0.95, 4)
    assert {result.mode for result in results} == {"AR", "verify"}
    assert [call[0] for call in calls] == [4, 16] and calls[1][2] == 3
    assert len(calls[1][1]) == 5, "plain decoding and the four fastest"


def test_planned_steps_are_a_candidate(subject, monkeypatch):
    fake_measurements(monkeypatch, lambda mode: (1.2 if mode.threshold else 1.6, 0.5, 1.0))
    best, _ = tune(*subject, PROMPTS, batch_size=2)
    assert (best.mode, best.threshold) == ("verify", None)
    assert "model.generate(**inputs, mars_verify=True" in describe(best)


def test_near_ties_of_half_precision_do_not_bar_verified_decoding(subject, monkeypatch):
    fake_measurements(monkeypatch, lambda mode: (1.2 + (mode.threshold or 0), 0.5, 0.97), is_exact=False)
    best, _ = tune(*subject, PROMPTS, batch_size=2)
    assert best.mode == "verify" and "verified:" in describe(best) and "lossless" not in describe(best)


@pytest.mark.parametrize(("max_loss", "threshold"), [(0.05, 0.9), (0.5, 0.3), (0.0, None)])
def test_what_may_be_lost_bounds_the_choice(subject, monkeypatch, max_loss, threshold):
    fake_measurements(monkeypatch, lossy_is_faster)
    best, _ = tune(*subject, PROMPTS, batch_size=2, max_loss=max_loss, score=lambda answers: [True] * len(answers))
    if threshold is None:
        assert best.mode == "verify"
    else:
        assert (best.mode, best.threshold) == ("lossy", threshold)
    best, _ = tune(*subject, PROMPTS, batch_size=2, max_loss=max_loss)
    assert (best.threshold if best.mode == "lossy" else None) == threshold, "else outputs are compared"


def test_plain_decoding_wins_where_nothing_is_faster(subject, monkeypatch):
    fake_measurements(monkeypatch, lambda mode: (0.7, 0.5, 1.0))
    best, _ = tune(*subject, PROMPTS, batch_size=16)
    assert best.mode == "AR"


def test_candidates_are_lossless_unless_asked():
    assert {mode.name for mode in candidates([4], lossless=True)} == {"AR", "verify"}
    assert {mode.name for mode in candidates([2, 4], lossless=False)} == {"AR", "verify", "lossy"}


def test_bad_arguments_are_named(subject):
    with pytest.raises(ValueError, match="prompts"):
        tune(*subject, [], batch_size=1)
    with pytest.raises(ValueError, match="max_loss"):
        tune(*subject, PROMPTS, batch_size=1, max_loss=5)


@pytest.mark.integration
def test_a_real_run_measures_every_finalist(subject):
    model, tokenizer = subject
    torch.manual_seed(0)
    best, results = tune(model.double(), tokenizer, PROMPTS[:4], batch_size=2, max_new_tokens=8, rounds=1)
    assert best in results and len(results) == 5
    assert all(result.identical == 1.0 for result in results)
