"""Continuous batching: whatever joins and leaves around it, a request gets what it would get alone."""

import time

import pytest
import torch
from transformers import GenerationMixin

from hf_mars.serving import Scheduler, ThresholdPolicy
from tests.gated import base_and_gated
from tests.serving.scheduling import Collector, alone, request, run
from tests.tiny import ragged_prompts


@pytest.fixture(scope="module")
def model(text_model):
    return text_model[0]


class TestBatching:
    @pytest.mark.integration
    def test_each_answer_equals_the_same_request_alone(self, make_scheduler, model):
        requests = [request(number) for number in range(24)]
        expected = alone(make_scheduler(max_rows=1), requests)
        scheduler = make_scheduler(max_rows=6, prefill_chunk=5)
        together = run(scheduler, requests)
        for one, other in zip(together, expected, strict=True):
            assert one.token_ids == other.token_ids
            assert [len(output.token_ids) for output in one.outputs] == [
                len(output.token_ids) for output in other.outputs
            ]
            assert one.outputs[-1].finish_reason == other.outputs[-1].finish_reason
        assert {one.outputs[-1].finish_reason for one in together} == {"stop", "length"}
        assert len({tuple(one.token_ids) for one in together}) > 20, "they are not all the same"
        assert scheduler.counts.finished == 24
        assert scheduler.counts.forward_passes < scheduler.counts.row_forward_passes / 3, "rows share forwards"
        assert scheduler.counts.row_forward_passes < 0.8 * scheduler.counts.generated_tokens

    def test_a_verified_answer_is_that_of_generate(self, make_scheduler, model):
        one = request(2)
        plain = model.generate(torch.tensor([one.prompt_ids]), max_new_tokens=one.max_new_tokens, do_sample=False)
        (collector,) = run(make_scheduler(), [one])
        assert collector.token_ids == plain[0, len(one.prompt_ids) :].tolist()

    @pytest.mark.integration
    def test_seeds_make_sampling_repeatable_in_any_company(self, make_scheduler):
        sampling = {"do_sample": True, "temperature": 1.3, "top_p": 0.9, "top_k": 0}
        requests = [request(number, sampling=sampling, seed=number) for number in range(8)]
        expected = alone(make_scheduler(max_rows=1), requests)
        together = run(make_scheduler(max_rows=4), requests)
        assert [one.token_ids for one in together] == [one.token_ids for one in expected]
        other = alone(make_scheduler(), [request(number, sampling=sampling, seed=number + 100) for number in range(8)])
        assert [one.token_ids for one in other] != [one.token_ids for one in expected]

    def test_a_long_prompt_does_not_stall_the_others(self, make_scheduler):
        scheduler = make_scheduler(prefill_chunk=16)
        short, long = Collector(), Collector()
        scheduler.submit([request(0, max_new_tokens=200, sampling={"eos_token_id": None})], [short])
        while len(short.outputs) < 3:
            time.sleep(0.001)
        before = len(short.outputs)
        scheduler.submit([request(1, prompt_ids=[7, 8] * 150)], [long])
        while not long.outputs:
            time.sleep(0.0005)
        assert len(short.outputs) - before >= 300 / 16, "a step of the others between two chunks"
        long.wait()

    def test_logprobs_are_those_of_the_model(self, make_scheduler, model):
        wanting = [request(number, num_logprobs=3) for number in (1, 2, 3)]
        others = [request(number) for number in (4, 5)]
        for one, collector in zip(wanting, run(make_scheduler(), [*wanting, *others]), strict=False):
            ids = one.prompt_ids + collector.token_ids
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, len(one.prompt_ids) - 1 : -1].float()
            logits[:, model.config.mars["mask_token_id"]] = -torch.inf
            expected = logits.log_softmax(-1)
            told = [entry for output in collector.outputs for entry in output.logprobs]
            assert len(told) == len(collector.token_ids)
            if one.mars_arguments.get("mars_verify", True):  # what a mask said is not the model's own choice
                for entry, token, row in zip(told, collector.token_ids, expected, strict=True):
                    assert entry.logprob == pytest.approx(row[token].item(), abs=1e-4)
                    assert [token for token, _ in entry.alternatives] == row.topk(3).indices.tolist()


class TestThreshold:
    @pytest.mark.integration
    def test_it_follows_the_load_and_comes_back(self, make_scheduler):
        policy = ThresholdPolicy("adaptive", 0.2, 1.0, patience=0.02)
        scheduler = make_scheduler(policy=policy, max_rows=4)
        requests = [
            request(0, max_new_tokens=400 if number == 0 else 40, mars_arguments={}, sampling={"eos_token_id": None})
            for number in range(20)
        ]
        long = run(scheduler, requests)[0]
        thresholds = [output.threshold for output in long.outputs]
        assert min(thresholds) == pytest.approx(0.2), "under load"
        assert thresholds[-1] == 1.0, "alone again"
        assert any(len(output.token_ids) > 1 for output in long.outputs if output.threshold < 1)
        assert all(len(output.token_ids) == 1 for output in long.outputs[-5:])

    def test_what_a_request_sets_wins(self, make_scheduler):
        policy = ThresholdPolicy("adaptive", 0.2, 0.9)
        policy.pin(0.0)
        scheduler = make_scheduler(policy=policy)
        own, lossless, plain = run(
            scheduler,
            [
                request(1, mars_arguments={"mars_threshold": 0.8}),
                request(1, mars_arguments={"mars_verify": True}),
                request(1, mars_arguments={"mars_threshold": 1.0}),
            ],
        )
        assert {output.threshold for output in own.outputs} == {0.8}
        assert lossless.token_ids == plain.token_ids, "a lossless request stays lossless"
        assert {output.threshold for output in lossless.outputs} == {0.0}
        assert len(lossless.outputs) < len(plain.outputs)

    def test_a_metric_needs_a_threshold_of_its_own(self, make_scheduler):
        (collector,) = run(make_scheduler(), [request(1, mars_arguments={"mars_metric": "entropy"})])
        assert "mars_threshold" in collector.failure.message


def test_with_an_adapter_on_masks_alone_answers_are_those_of_the_base():
    base, model = base_and_gated()
    scheduler = Scheduler(model.get_base_model(), ThresholdPolicy("fixed", 0.0, 0.3, verify=True), max_rows=3)
    trained = ragged_prompts([5, 9, 3, 7])
    prompts = [row[mask.bool()] for row, mask in zip(*trained.values(), strict=True)]
    try:
        together = run(
            scheduler,
            [request(0, prompt_ids=prompt.tolist(), max_new_tokens=24, sampling={}) for prompt in prompts],
        )
    finally:
        scheduler.close(timeout=0)
    for one, prompt in zip(together, prompts, strict=True):
        plain = GenerationMixin.generate(base, prompt[None], max_new_tokens=24, do_sample=False)
        assert one.token_ids == plain[0, len(prompt) :].tolist()
    assert scheduler.counts.row_forward_passes < 0.9 * scheduler.counts.generated_tokens
