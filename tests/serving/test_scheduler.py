"""Continuous batching: whatever joins, leaves and fails around it, a request gets what it would get alone."""

import threading
import time

import pytest
import torch

from hf_mars.decoding import Batch, MARSDecoder
from hf_mars.serving import Failure, GenerationRequest, KVBudget, QueueFull, Scheduler, ThresholdPolicy


WAYS = [
    {},
    {"mars_threshold": 0.4, "mars_verify": False},
    {"mars_threshold": 0.3, "mars_verify": True, "mars_block_size": 6},
    {"mars_threshold": 1.0},
    {"mars_threshold": 1.2, "mars_verify": False, "mars_metric": "entropy"},
]


class Collector:
    """A sink that can be waited for."""

    def __init__(self):
        self.outputs, self.failure, self.is_done = [], None, threading.Event()

    def __call__(self, event):
        if isinstance(event, Failure):
            self.failure = event
            self.is_done.set()
            return
        self.outputs.append(event)
        if event.finish_reason is not None:
            self.is_done.set()

    @property
    def token_ids(self):
        return [token for output in self.outputs for token in output.token_ids]

    def wait(self):
        assert self.is_done.wait(60), "the request does not end"
        return self


def request(number, **overrides):
    generator = torch.Generator().manual_seed(number)
    length = 3 + 7 * number % 23
    arguments = {
        "prompt_ids": torch.randint(5, 300, (length,), generator=generator).tolist(),
        "max_new_tokens": 24 + number % 9,
        "mars_arguments": WAYS[number % len(WAYS)],
        "sampling": {"eos_token_id": list(range(100, 160))} if number % 3 == 0 else {},
    }
    return GenerationRequest(**{**arguments, **overrides})


@pytest.fixture(scope="module")
def model(text_model):
    return text_model[0]


@pytest.fixture
def make(model):
    made = []

    def make(**arguments):
        made.append(
            Scheduler(
                model, **{"policy": ThresholdPolicy("fixed", 0.0, 0.5, verify=True), "max_queue": 100, **arguments}
            )
        )
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close(timeout=0)


def run(scheduler, requests):
    collectors = [Collector() for _ in requests]
    for one, collector in zip(requests, collectors, strict=True):
        scheduler.submit([one], [collector])
    return [collector.wait() for collector in collectors]


def alone(scheduler, requests):
    return [run(scheduler, [one])[0] for one in requests]


class TestBatching:
    def test_each_answer_equals_the_same_request_alone(self, make, model):
        requests = [request(number) for number in range(24)]
        expected = alone(make(max_rows=1), requests)
        scheduler = make(max_rows=6, prefill_chunk=5)
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

    def test_a_verified_answer_is_that_of_generate(self, make, model):
        one = request(2)
        plain = model.generate(torch.tensor([one.prompt_ids]), max_new_tokens=one.max_new_tokens, do_sample=False)
        (collector,) = run(make(), [one])
        assert collector.token_ids == plain[0, len(one.prompt_ids) :].tolist()

    def test_seeds_make_sampling_repeatable_in_any_company(self, make):
        sampling = {"do_sample": True, "temperature": 1.3, "top_p": 0.9, "top_k": 0}
        requests = [request(number, sampling=sampling, seed=number) for number in range(8)]
        expected = alone(make(max_rows=1), requests)
        together = run(make(max_rows=4), requests)
        assert [one.token_ids for one in together] == [one.token_ids for one in expected]
        other = alone(make(), [request(number, sampling=sampling, seed=number + 100) for number in range(8)])
        assert [one.token_ids for one in other] != [one.token_ids for one in expected]

    def test_a_long_prompt_does_not_stall_the_others(self, make):
        scheduler = make(prefill_chunk=16)
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

    def test_logprobs_are_those_of_the_model(self, make, model):
        wanting = [request(number, num_logprobs=3) for number in (1, 2, 3)]
        others = [request(number) for number in (4, 5)]
        for one, collector in zip(wanting, run(make(), [*wanting, *others]), strict=False):
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


class TestAdmission:
    def test_too_many_waiting_are_refused_all_or_none(self, make):
        scheduler = make(max_rows=1, max_queue=2)
        collectors = [Collector() for _ in range(3)]
        scheduler.submit([request(0, max_new_tokens=100) for _ in range(2)], collectors[:2])
        with pytest.raises(QueueFull) as error:
            scheduler.submit([request(1), request(1)], [Collector(), Collector()])
        assert error.value.retry_after >= 1
        scheduler.submit([request(1)], collectors[2:])
        assert [bool(collector.wait().outputs) for collector in collectors] == [True] * 3

    def test_memory_bounds_the_rows(self, make, model):
        budget = KVBudget(model)
        budget.num_slots = 2 * 4 * 256  # two blocks of rows, of one block of slots each
        scheduler = make(budget=budget, max_rows=32)
        seen = []
        collectors = [Collector() for _ in range(16)]
        scheduler.submit([request(0, max_new_tokens=40) for _ in collectors], collectors)
        while not all(collector.is_done.is_set() for collector in collectors):
            seen.append(scheduler.load())
            time.sleep(0.002)
        assert max(load.running for load in seen) == 8
        assert max(load.kv_use for load in seen) == 1.0
        assert len({tuple(collector.token_ids) for collector in collectors}) == 1

    def test_storage_stays_within_the_budget_as_short_rows_give_way_to_long_ones(self, make, model):
        budget = KVBudget(model)
        budget.num_slots = 8 * 256
        scheduler = make(budget=budget, max_rows=32)
        sizes, join = [], scheduler._tidy

        def watch():
            join()
            if scheduler._decoder is not None:
                rows, length = scheduler._decoder.batch.cache.storage_shape
                sizes.append(rows * length)

        scheduler._tidy = watch
        short = [request(0, max_new_tokens=40) for _ in range(8)]
        long = [request(0, max_new_tokens=400) for _ in range(2)]
        together = run(scheduler, [*short, *long])
        assert [one.token_ids for one in together[8:]] == [one.token_ids for one in alone(make(), long)]
        assert max(sizes) <= budget.num_slots

    @pytest.mark.parametrize(
        "overrides, message",
        [
            ({"prompt_ids": []}, "empty"),
            ({"prompt_ids": [5] * 500}, "context"),
            ({"prompt_ids": [5] * 200, "max_new_tokens": 200}, "memory"),
        ],
    )
    def test_what_can_never_run_is_refused_at_once(self, make, model, overrides, message):
        budget = KVBudget(model)
        budget.num_slots = 256
        with pytest.raises(ValueError, match=message):
            make(budget=budget).submit([request(0, **overrides)], [Collector()])


class TestFaults:
    def test_cancelled_requests_leave_at_the_next_step(self, make):
        scheduler = make(max_rows=4)
        requests = [request(number, max_new_tokens=300, sampling={"eos_token_id": None}) for number in range(8)]
        collectors = [Collector() for _ in requests]
        jobs = scheduler.submit(requests, collectors)
        while not collectors[3].outputs:
            time.sleep(0.001)
        scheduler.cancel([jobs[0], jobs[2], jobs[6]])
        kept = [collectors[number].wait() for number in (1, 3, 4, 5, 7)]
        expected = alone(make(), [requests[number] for number in (1, 3, 4, 5, 7)])
        assert [one.token_ids for one in kept] == [one.token_ids for one in expected]
        assert scheduler.counts.cancelled == 3
        assert len(collectors[0].token_ids) < 300 and not collectors[6].outputs

    def test_a_request_that_cannot_start_fails_alone(self, make):
        good, bad = request(1), request(2, sampling={"num_beams": 3})
        collectors = run(make(), [good, bad, good])
        assert collectors[1].failure.status == 400 and "num_beams" in collectors[1].failure.message
        assert collectors[0].token_ids == collectors[2].token_ids != []

    def test_a_step_that_fails_ends_the_request_that_makes_it_fail(self, make, monkeypatch):
        step = MARSDecoder.step

        def fail_sometimes(decoder, **arguments):
            lengths = {params.max_length for params in decoder.batch.sampling.params}
            if 66 in lengths and decoder.batch.rows.lengths.max() > 30:
                raise RuntimeError("out of luck")
            return step(decoder, **arguments)

        others = [request(number) for number in (1, 2, 3)]
        expected = alone(make(), others)
        monkeypatch.setattr(MARSDecoder, "step", fail_sometimes)
        unlucky = request(4, prompt_ids=[9] * 16, max_new_tokens=50, sampling={"eos_token_id": None})
        scheduler = make()
        *fine, failed = run(scheduler, [*others, unlucky])
        assert failed.failure == Failure("out of luck", status=500)
        assert [one.token_ids for one in fine] == [one.token_ids for one in expected]
        assert run(scheduler, [others[0]])[0].token_ids == expected[0].token_ids, "the server goes on"

    def test_prompts_that_fail_together_are_read_one_by_one(self, make, monkeypatch):
        requests = [request(number) for number in range(6)]
        expected = alone(make(), requests)
        prefill = MARSDecoder.prefill

        def fail_sometimes(decoder, length):
            if len(decoder.batch.host.ids) > 1 or decoder.batch.sampling.params[0].max_length == 46:
                raise RuntimeError("too much at once")
            prefill(decoder, length)

        monkeypatch.setattr(MARSDecoder, "prefill", fail_sometimes)
        unlucky = request(4, prompt_ids=[9] * 16, max_new_tokens=30)
        *fine, failed = run(make(max_rows=3), [*requests, unlucky])
        assert [one.token_ids for one in fine] == [one.token_ids for one in expected]
        assert failed.failure == Failure("too much at once", status=500)

    def test_a_join_that_fails_ends_its_request_alone(self, make, monkeypatch):
        add, failures = Batch.add, []

        def fail_once(batch, other):
            if scheduler._decoder is not None and batch is scheduler._decoder.batch and not failures:
                failures.append(batch)
                raise MemoryError("no room")
            return add(batch, other)

        requests = [request(number, sampling={"eos_token_id": None}) for number in range(4)]
        expected = alone(make(), requests)
        monkeypatch.setattr(Batch, "add", fail_once)
        scheduler = make(prefill_chunk=16)
        together = run(scheduler, requests)
        assert [one.failure for one in together].count(Failure("no room", status=500)) == 1
        assert sum(one.token_ids == other.token_ids for one, other in zip(together, expected, strict=True)) == 3
        assert scheduler.is_alive

    def test_a_fault_of_the_scheduler_itself_ends_what_is_there_and_not_what_comes(self, make, monkeypatch):
        scheduler, update = make(), ThresholdPolicy.update
        monkeypatch.setattr(ThresholdPolicy, "update", lambda policy, load: 1 / 0)
        (failed,) = run(scheduler, [request(1)])
        assert failed.failure.status == 500
        monkeypatch.setattr(ThresholdPolicy, "update", update)
        assert run(scheduler, [request(1)])[0].token_ids

    def test_a_deadline_ends_what_is_not_done(self, make):
        scheduler = make(max_rows=1)
        collectors = [Collector() for _ in range(3)]
        long = request(0, max_new_tokens=400, mars_arguments={"mars_threshold": 1.0}, sampling={"eos_token_id": None})
        scheduler.submit([long] * 3, collectors)
        scheduler.close(timeout=0.05)
        assert [collector.wait().failure.status for collector in collectors[1:]] == [503, 503]

    def test_a_sink_that_fails_ends_its_own_request_alone(self, make):
        def sink(run):
            raise RuntimeError("nobody is there")

        scheduler, collector = make(), Collector()
        scheduler.submit([request(2), request(1)], [sink, collector])
        assert collector.wait().token_ids == alone(make(), [request(1)])[0].token_ids
        assert scheduler.counts.cancelled == 1

    def test_an_earlier_attempt_is_continued(self, make):
        whole = alone(make(), [request(2)])[0].token_ids
        rest = alone(make(), [request(2, generated_ids=whole[:10])])[0].token_ids
        assert whole[:10] + rest == whole

    def test_closing_finishes_what_was_accepted(self, make):
        scheduler = make(max_rows=2)
        collectors = [Collector() for _ in range(6)]
        scheduler.submit([request(number) for number in range(6)], collectors)
        scheduler.close()
        assert all(collector.is_done.is_set() for collector in collectors)
        assert not scheduler.is_alive
        with pytest.raises(RuntimeError, match="shutting down"):
            scheduler.submit([request(0)], [Collector()])


class TestThreshold:
    def test_it_follows_the_load_and_comes_back(self, make):
        policy = ThresholdPolicy("adaptive", 0.2, 1.0, patience=0.02)
        scheduler = make(policy=policy, max_rows=4)
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

    def test_what_a_request_sets_wins(self, make):
        policy = ThresholdPolicy("adaptive", 0.2, 0.9)
        policy.pin(0.0)
        scheduler = make(policy=policy)
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

    def test_a_metric_needs_a_threshold_of_its_own(self, make):
        (collector,) = run(make(), [request(1, mars_arguments={"mars_metric": "entropy"})])
        assert "mars_threshold" in collector.failure.message
