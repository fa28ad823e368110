"""What was read once is not read again, and nothing of any answer changes."""

import pytest
import torch

from hf_mars.decoding import MARSCache
from hf_mars.serving.prefix_cache import PrefixCache
from tests.serving.scheduling import alone, request, run


def read(token_ids, num_layers=2):
    """A cache of one row whose keys tell the tokens, with a second row beside it."""
    cache = MARSCache(num_layers, 2)
    states = torch.tensor([[0] * len(token_ids), token_ids], dtype=torch.float32)[:, None, :, None]
    cache.open_window(torch.arange(len(token_ids)).expand(2, -1))
    for layer in range(num_layers):
        cache.update(states, -states, layer)
    cache.commit(torch.tensor([len(token_ids)] * 2), len(token_ids))
    return cache


def remember(prefixes, *prompts):
    for prompt in prompts:
        prefixes.add(prompt, read(prompt), row=1)


class TestPrefixCache:
    def test_the_longest_beginning_is_found(self):
        prefixes = PrefixCache(1000)
        short, long = list(range(20)), [*range(30), *range(100, 120)]
        remember(prefixes, short + [7], long)
        past = prefixes.find([*range(30), 100, 101, 5, 6])
        assert past.get_seq_length() == 32 and len(past.layers) == 2
        assert past.layers[1].keys.flatten().tolist() == [*range(30), 100, 101]
        assert past.layers[0].values.flatten().tolist() == [-token for token in [*range(30), 100, 101]]
        assert prefixes.find(long).get_seq_length() == len(long) - 1, "a forward reads the last one"

    @pytest.mark.parametrize("prompt", [[], [1], list(range(5, 40)), list(range(15)) + [99] * 9])
    def test_too_little_is_nothing(self, prompt):
        prefixes = PrefixCache(1000)
        remember(prefixes, list(range(40)))
        assert prefixes.find(prompt) is None

    def test_a_longer_prompt_takes_the_place_of_its_beginning(self):
        prefixes = PrefixCache(1000)
        remember(prefixes, list(range(30)), list(range(60)), list(range(40)))
        assert prefixes.num_tokens == 59 and prefixes.find(list(range(61))).get_seq_length() == 59

    def test_the_least_recently_used_one_goes_first(self):
        prefixes = PrefixCache(100)
        first, second, third = ([start, *range(40)] for start in (50, 51, 52))
        remember(prefixes, first, second)
        assert prefixes.find(first) is not None
        remember(prefixes, third, list(range(200)))
        assert prefixes.num_tokens == 80
        assert prefixes.find(second) is None and prefixes.find(first) is not None and prefixes.find(third) is not None


class TestScheduler:
    @pytest.mark.integration
    def test_a_later_turn_reads_what_is_new(self, make_scheduler):
        first = request(3, prompt_ids=list(range(10, 60)))
        expected = alone(make_scheduler(enable_prefix_caching=False), [first])[0].token_ids
        turns = [request(number, prompt_ids=[*first.prompt_ids, *expected, 9, 8, 7 + number]) for number in range(6)]
        sampling = {"do_sample": True, "temperature": 1.3, "top_k": 0}
        turns.append(request(4, prompt_ids=turns[4].prompt_ids, sampling=sampling, seed=5))
        without = make_scheduler(enable_prefix_caching=False)
        expected = [one.token_ids for one in alone(without, [first, *turns])]
        scheduler = make_scheduler()
        assert [one.token_ids for one in alone(scheduler, [first, *turns])] == expected
        assert scheduler.counts.cached_tokens > 49 * 7 and without.counts.cached_tokens == 0
        assert [one.token_ids for one in run(make_scheduler(max_rows=4), [first, *turns])] == expected

    def test_several_answers_read_their_prompt_once(self, make_scheduler):
        prompt = list(range(10, 70))
        sampling = {"do_sample": True, "temperature": 1.3, "top_k": 0}
        requests = [request(3, prompt_ids=prompt, sampling=sampling, seed=seed) for seed in range(5)]
        expected = [one.token_ids for one in alone(make_scheduler(enable_prefix_caching=False), requests)]
        scheduler = make_scheduler()
        assert [one.token_ids for one in run(scheduler, requests)] == expected
        assert len({tuple(tokens) for tokens in expected}) > 1
        assert scheduler.counts.cached_tokens == 4 * 59 and scheduler.counts.prompt_tokens == 5 * 60

    def test_memory_is_bounded(self, make_scheduler):
        scheduler = make_scheduler()
        total = scheduler.budget.num_slots + scheduler.prefixes.num_slots
        assert scheduler.prefixes.num_slots == int(0.2 * total)
