"""What fails or leaves in a scheduler ends itself alone."""

import time

import pytest

from hf_mars.decoding import Batch, MARSDecoder
from hf_mars.serving import Failure, ThresholdPolicy
from tests.serving.scheduling import Collector, alone, request, run


class TestFaults:
    @pytest.mark.integration
    def test_cancelled_requests_leave_at_the_next_step(self, make_scheduler):
        scheduler = make_scheduler(max_rows=4)
        requests = [request(number, max_new_tokens=300, sampling={"eos_token_id": None}) for number in range(8)]
        collectors = [Collector() for _ in requests]
        jobs = scheduler.submit(requests, collectors)
        while not collectors[3].outputs:
            time.sleep(0.001)
        scheduler.cancel([jobs[0], jobs[2], jobs[6]])
        kept = [collectors[number].wait() for number in (1, 3, 4, 5, 7)]
        expected = alone(make_scheduler(), [requests[number] for number in (1, 3, 4, 5, 7)])
        assert [one.token_ids for one in kept] == [one.token_ids for one in expected]
        assert scheduler.counts.cancelled == 3
        assert len(collectors[0].token_ids) < 300 and not collectors[6].outputs

    def test_a_request_that_cannot_start_fails_alone(self, make_scheduler):
        good, bad = request(1), request(2, sampling={"num_beams": 3})
        collectors = run(make_scheduler(), [good, bad, good])
        assert collectors[1].failure.status == 400 and "num_beams" in collectors[1].failure.message
        assert collectors[0].token_ids == collectors[2].token_ids != []

    def test_a_step_that_fails_ends_the_request_that_makes_it_fail(self, make_scheduler, monkeypatch):
        step = MARSDecoder.step

        def fail_sometimes(decoder, **arguments):
            lengths = {params.max_length for params in decoder.batch.sampling.params}
            if 66 in lengths and decoder.batch.rows.lengths.max() > 30:
                raise RuntimeError("out of luck")
            return step(decoder, **arguments)

        others = [request(number) for number in (1, 2, 3)]
        expected = alone(make_scheduler(), others)
        monkeypatch.setattr(MARSDecoder, "step", fail_sometimes)
        unlucky = request(4, prompt_ids=[9] * 16, max_new_tokens=50, sampling={"eos_token_id": None})
        scheduler = make_scheduler()
        *fine, failed = run(scheduler, [*others, unlucky])
        assert failed.failure == Failure("out of luck", status=500)
        assert [one.token_ids for one in fine] == [one.token_ids for one in expected]
        assert run(scheduler, [others[0]])[0].token_ids == expected[0].token_ids, "the server goes on"

    def test_prompts_that_fail_together_are_read_one_by_one(self, make_scheduler, monkeypatch):
        requests = [request(number) for number in range(6)]
        expected = alone(make_scheduler(), requests)
        prefill = MARSDecoder.prefill

        def fail_sometimes(decoder, length):
            if len(decoder.batch.host.ids) > 1 or decoder.batch.sampling.params[0].max_length == 46:
                raise RuntimeError("too much at once")
            prefill(decoder, length)

        monkeypatch.setattr(MARSDecoder, "prefill", fail_sometimes)
        unlucky = request(4, prompt_ids=[9] * 16, max_new_tokens=30)
        *fine, failed = run(make_scheduler(max_rows=3), [*requests, unlucky])
        assert [one.token_ids for one in fine] == [one.token_ids for one in expected]
        assert failed.failure == Failure("too much at once", status=500)

    def test_a_join_that_fails_ends_its_request_alone(self, make_scheduler, monkeypatch):
        add, failures = Batch.add, []

        def fail_once(batch, other):
            if scheduler._decoder is not None and batch is scheduler._decoder.batch and not failures:
                failures.append(batch)
                raise MemoryError("no room")
            return add(batch, other)

        requests = [request(number, sampling={"eos_token_id": None}) for number in range(4)]
        expected = alone(make_scheduler(), requests)
        monkeypatch.setattr(Batch, "add", fail_once)
        scheduler = make_scheduler(prefill_chunk=16)
        together = run(scheduler, requests)
        assert [one.failure for one in together].count(Failure("no room", status=500)) == 1
        assert sum(one.token_ids == other.token_ids for one, other in zip(together, expected, strict=True)) == 3
        assert scheduler.is_alive

    def test_a_fault_of_the_scheduler_itself_ends_what_is_there_and_not_what_comes(self, make_scheduler, monkeypatch):
        scheduler, update = make_scheduler(), ThresholdPolicy.update
        monkeypatch.setattr(ThresholdPolicy, "update", lambda policy, load: 1 / 0)
        (failed,) = run(scheduler, [request(1)])
        assert failed.failure.status == 500
        monkeypatch.setattr(ThresholdPolicy, "update", update)
        assert run(scheduler, [request(1)])[0].token_ids

    def test_a_deadline_ends_what_is_not_done(self, make_scheduler):
        scheduler = make_scheduler(max_rows=1)
        collectors = [Collector() for _ in range(3)]
        long = request(0, max_new_tokens=400, mars_arguments={"mars_threshold": 1.0}, sampling={"eos_token_id": None})
        scheduler.submit([long] * 3, collectors)
        scheduler.close(timeout=0.05)
        assert [collector.wait().failure.status for collector in collectors[1:]] == [503, 503]

    def test_a_sink_that_fails_ends_its_own_request_alone(self, make_scheduler):
        def sink(run):
            raise RuntimeError("nobody is there")

        scheduler, collector = make_scheduler(), Collector()
        scheduler.submit([request(2), request(1)], [sink, collector])
        assert collector.wait().token_ids == alone(make_scheduler(), [request(1)])[0].token_ids
        assert scheduler.counts.cancelled == 1

    def test_an_earlier_attempt_is_continued(self, make_scheduler):
        whole = alone(make_scheduler(), [request(2)])[0].token_ids
        rest = alone(make_scheduler(), [request(2, generated_ids=whole[:10])])[0].token_ids
        assert whole[:10] + rest == whole

    def test_closing_finishes_what_was_accepted(self, make_scheduler):
        scheduler = make_scheduler(max_rows=2)
        collectors = [Collector() for _ in range(6)]
        scheduler.submit([request(number) for number in range(6)], collectors)
        scheduler.close()
        assert all(collector.is_done.is_set() for collector in collectors)
        assert not scheduler.is_alive
        with pytest.raises(RuntimeError, match="shutting down"):
            scheduler.submit([request(0)], [Collector()])
