import copy

import pytest
import torch

from hf_mars import enable_mars
from hf_mars.evaluation import PEERS, Journal, Method, load_evaluation, measure_methods, sweep
from hf_mars.evaluation.bench import run_bench
from hf_mars.evaluation.clock import ForwardClock
from hf_mars.evaluation.sweep import summarize_lengths
from hf_mars.evaluation.tasks.task import Task
from tests.tiny_text import counting_examples, mars_text_model


@pytest.fixture(scope="module")
def subject():
    model, tokenizer = mars_text_model()
    return model.double().eval(), tokenizer


def measure(subject, modes, batch_size=2, **kwargs):
    model, tokenizer = subject
    prompts = list(counting_examples(5)["prompt"])
    return measure_methods(
        model,
        tokenizer,
        prompts,
        modes,
        batch_size,
        max_new_tokens=12,
        score=lambda answers: [index == 0 for index in range(len(answers))],
        task="counting",
        **kwargs,
    )


def test_modes_are_measured_on_every_prompt(subject):
    ar, lossy, verify = measure(subject, [Method("AR"), Method("lossy", 0.0), Method("verify", 0.0)])
    assert [len(result.texts) for result in (ar, lossy, verify)] == [5, 5, 5]
    assert ar.tokens_per_forward == ar.speedup == ar.identical == 1.0
    assert lossy.tokens_per_forward > 2
    assert verify.identical == 1.0
    assert ar.accuracy == pytest.approx(0.2)
    assert 0 <= ar.accuracy_interval[0] < 0.2 < ar.accuracy_interval[1] < 1
    assert ar.tokens_per_forward_interval == [1, 1]
    low, high = lossy.tokens_per_forward_interval
    assert low <= lossy.tokens_per_forward <= high
    assert (ar.lossless, lossy.lossless, verify.lossless) == (True, False, True)
    for result in (ar, lossy, verify):
        assert 0 < result.first_token_seconds
        assert 0 < result.outside_forwards < 1
        assert result.peak_memory > 1e6
        assert result.task == "counting" and result.num_examples == 5
    assert ar.columns == 1 and lossy.columns > 3
    assert ar.acceptance_lengths == [0, 60]
    assert sum(count * length for length, count in enumerate(lossy.acceptance_lengths)) == 60


def test_fields_of_the_generation_configuration_decide_nothing(subject):
    config = subject[0].generation_config
    config.mars_threshold = 0.0
    try:
        ar, verify = measure(subject, [Method("AR"), Method("verify", 1.0)])
        assert config.mars_threshold == 0.0
    finally:
        del config.mars_threshold
    assert ar.tokens_per_forward == verify.tokens_per_forward == 1.0 and verify.identical == 1.0


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.integration
def test_every_peer_decodes_what_it_promises(subject, batch_size):
    peers = [Method(name, 0.0 if name in ("no cache", "block-synchronous") else None) for name in PEERS]
    results = measure(
        subject, [Method("AR"), Method("lossy", 0.0), *peers], batch_size, draft=copy.deepcopy(subject[0])
    )
    by_name = {result.mode: result for result in results}
    expected = {name for name in PEERS if PEERS[name] is None or batch_size == 1}
    assert set(by_name) == {"AR", "lossy", *expected}
    for result in results:
        if result.lossless:
            assert result.identical == 1.0, result.mode
    # The same rule of acceptance gives the same tokens with and without a cache.
    assert by_name["no cache"].texts == by_name["lossy"].texts
    assert by_name["no cache"].tokens_per_forward == pytest.approx(by_name["lossy"].tokens_per_forward)
    assert by_name["block-synchronous"].tokens_per_forward < by_name["lossy"].tokens_per_forward
    if batch_size == 1:
        assert by_name["Jacobi"].tokens_per_forward >= 1
        assert by_name["assisted"].tokens_per_forward > 1.5, "a draft that is the model itself is always right"
        assert by_name["assisted, MARS"].tokens_per_forward > 1.5


def test_an_adapter_is_measured_like_its_model(subject):
    from peft import LoraConfig, get_peft_model

    model, tokenizer = copy.deepcopy(subject[0]), subject[1]
    enable_mars(model)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    ar, lossy, lookup = measure((adapted, tokenizer), [Method("AR"), Method("lossy", 0.0), Method("prompt lookup")], 1)
    assert lossy.tokens_per_forward > 2 and lossy.columns > 3
    assert lookup.identical == 1.0


def test_in_half_precision_nothing_but_plain_decoding_is_called_lossless(subject):
    model = enable_mars(copy.deepcopy(subject[0]).bfloat16())
    ar, verify = measure((model, subject[1]), [Method("AR"), Method("verify", 0.0)])
    assert (ar.lossless, verify.lossless) == (True, False)


@pytest.mark.integration
def test_a_dynamically_quantised_model_is_not_called_lossless(subject, tmp_path, monkeypatch):
    quantised = torch.ao.quantization.quantize_dynamic(
        copy.deepcopy(subject[0]).float(), {torch.nn.Linear}, dtype=torch.qint8
    )
    told = []
    monkeypatch.setattr(sweep.logger, "warning_once", told.append)
    task = Task("counting", list(counting_examples(2)["prompt"]), "final_number", ["1", "2"])
    methods = [Method("AR"), Method("lossy", 0.0), Method("verify", 0.0), Method("AR, static cache")]
    evaluation = run_bench(enable_mars(quantised), subject[1], [task], methods, [2], tmp_path, max_new_tokens=4)
    assert [result.lossless for result in evaluation.results] == [True, False, False, False]
    assert "dynamic quantisation" in told[0] and len(told) == 1
    assert "not lossless: the scales" in (tmp_path / "results.md").read_text()
    assert "dynamic quantisation" in load_evaluation(tmp_path / "results.json").notes["not lossless"]


def test_metrics_and_block_sizes_are_ways_of_their_own(subject):
    modes = [Method("AR"), Method("lossy", 0.0, "margin", 8), Method("verify", 50.0, "entropy")]
    results = measure(subject, modes)
    assert [result.label for result in results] == ["AR", "lossy 0, margin, B 8", "verify 50, entropy"]
    assert results[1].tokens_per_forward > 4
    assert results[2].identical == 1.0


def test_an_interrupted_sweep_goes_on_where_it_was(subject, tmp_path, monkeypatch):
    modes = [Method("AR"), Method("verify", 0.0)]
    path, settings = tmp_path / "measurements.jsonl", {"checkpoint": "x"}
    calls = []
    generate = ForwardClock.__enter__

    def count(clock):
        calls.append(1)
        if len(calls) == 6:  # two warm up
            raise KeyboardInterrupt
        return generate(clock)

    monkeypatch.setattr(ForwardClock, "__enter__", count)
    with pytest.raises(KeyboardInterrupt):
        measure(subject, modes, journal=Journal(path, settings))
    with path.open("a") as file:
        file.write('{"key": "cut o')  # and killed while it wrote
    kept = dict(Journal(path, settings).entries)
    assert len(kept) == 3
    results = measure(subject, modes, journal=Journal(path, settings))
    entries = Journal(path, settings).entries
    assert len(entries) == 6 and kept.items() <= entries.items()
    assert results[1].identical == 1.0
    calls.clear()
    again = measure(subject, modes, journal=Journal(path, settings))
    assert not calls and again == results
    with pytest.raises(ValueError, match="another checkpoint"):
        Journal(path, {"checkpoint": "y"})


@pytest.mark.parametrize("text", ["a person's notes\n", "[1]\n"])
def test_a_journal_overwrites_nothing_else(tmp_path, text):
    (tmp_path / "measurements.jsonl").write_text(text)
    with pytest.raises(ValueError, match="no file of measurements"):
        Journal(tmp_path / "measurements.jsonl", {})
    assert (tmp_path / "measurements.jsonl").read_text() == text


def test_rounds_keep_the_best_time(subject, tmp_path):
    journal = Journal(tmp_path / "measurements.jsonl", {})
    result, *_ = measure(subject, [Method("AR")], rounds=3, journal=journal)
    seconds = {}
    for key, value in journal.entries.items():
        start = key.split("|")[2]
        seconds[start] = min(seconds.get(start, 1e9), value["seconds"])
    assert result.tokens_per_second == pytest.approx(60 / sum(seconds.values()))


def test_runs_are_counted_by_length_and_position():
    summary = summarize_lengths([[4] * 5, [1, 1, 0, 2]])
    assert summary["acceptance_lengths"] == [1, 2, 1, 0, 5]
    assert summary["tokens_per_forward_by_position"] == [(16 + 4) / (4 + 4), 4.0]
    assert summarize_lengths([]) == {}
