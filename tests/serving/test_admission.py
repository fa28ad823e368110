"""Which requests a scheduler takes, and how many at once."""

import time

import pytest

from hf_mars.serving import KVBudget, QueueFull
from tests.serving.scheduling import Collector, alone, request, run


@pytest.fixture(scope="module")
def model(text_model):
    return text_model[0]


class TestAdmission:
    def test_too_many_waiting_are_refused_all_or_none(self, make_scheduler):
        scheduler = make_scheduler(max_rows=1, max_queue=2)
        collectors = [Collector() for _ in range(3)]
        scheduler.submit([request(0, max_new_tokens=100) for _ in range(2)], collectors[:2])
        with pytest.raises(QueueFull) as error:
            scheduler.submit([request(1), request(1)], [Collector(), Collector()])
        assert error.value.retry_after >= 1
        scheduler.submit([request(1)], collectors[2:])
        assert [bool(collector.wait().outputs) for collector in collectors] == [True] * 3

    def test_memory_bounds_the_rows(self, make_scheduler, model):
        budget = KVBudget(model)
        budget.num_slots = 2 * 4 * 256  # two blocks of rows, of one block of slots each
        scheduler = make_scheduler(budget=budget, max_rows=32, enable_prefix_caching=False)
        seen = []
        collectors = [Collector() for _ in range(16)]
        scheduler.submit([request(0, max_new_tokens=40) for _ in collectors], collectors)
        while not all(collector.is_done.is_set() for collector in collectors):
            seen.append(scheduler.load())
            time.sleep(0.002)
        assert max(load.running for load in seen) == 8
        assert max(load.kv_use for load in seen) == 1.0
        assert len({tuple(collector.token_ids) for collector in collectors}) == 1

    def test_storage_stays_within_the_budget_as_short_rows_give_way_to_long_ones(self, make_scheduler, model):
        budget = KVBudget(model)
        budget.num_slots = 8 * 256
        scheduler = make_scheduler(budget=budget, max_rows=32)
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
        assert [one.token_ids for one in together[8:]] == [one.token_ids for one in alone(make_scheduler(), long)]
        assert max(sizes) <= budget.num_slots

    @pytest.mark.parametrize(
        "overrides, message",
        [
            ({"prompt_ids": []}, "empty"),
            ({"prompt_ids": [5] * 500}, "context"),
            ({"prompt_ids": [5] * 200, "max_new_tokens": 200}, "memory"),
        ],
    )
    def test_what_can_never_run_is_refused_at_once(self, make_scheduler, model, overrides, message):
        budget = KVBudget(model)
        budget.num_slots = 256
        with pytest.raises(ValueError, match=message):
            make_scheduler(budget=budget).submit([request(0, **overrides)], [Collector()])
