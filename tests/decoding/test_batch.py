"""Rows that join and leave a running batch, each with options of its own: each generates what it would alone."""

import functools

import pytest
import torch

from hf_mars.decoding import prepare
from tests.tiny import EOS, ragged_prompts, tiny_model


NEW_TOKENS = 32
WAYS = {
    "plain": {"mars_threshold": 1.0},
    "lossy": {"mars_threshold": 0.4},
    "entropy": {"mars_threshold": 1.5, "mars_metric": "entropy", "mars_block_size": 6},
    "verified": {"mars_threshold": 0.3, "mars_verify": True},
    "verified, short blocks": {"mars_threshold": 0.0, "mars_verify": True, "mars_block_size": 2},
    "turned": {"mars_threshold": lambda: 0.6},
    "planned": {"mars_verify": True},
}


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=10.0, similarity=2.0)


def prompt(seed, length):
    return ragged_prompts([length], seed=seed)["input_ids"]


def start(model, input_ids, way, seed=None, chunk=None, **kwargs):
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    decoder = prepare(
        model,
        input_ids,
        WAYS[way] | {name: kwargs.pop(name) for name in ("mars_block_size",) if name in kwargs},
        generator,
        max_new_tokens=kwargs.pop("max_new_tokens", NEW_TOKENS),
        **kwargs,
    )
    while decoder.batch.num_unread > 0:
        decoder.prefill(chunk or 1000)
    return decoder


def run(decoder, schedule=(), leaving=()):
    """Step to the end; before step `i`, `schedule[i]` joins and `leaving[i]` leaves. Tokens and forwards by row."""
    tokens, forwards, ids, total = [[]], [0], {0: 0}, 0
    with torch.no_grad():
        for number in range(200):
            for newcomer in dict(schedule).get(number, ()):
                (row,) = decoder.batch.add(newcomer.batch)
                ids[row] = len(tokens)
                tokens.append([])
                forwards.append(0)
            if number in dict(leaving):
                decoder.batch.remove([row for row, name in ids.items() if name in dict(leaving)[number]])
            output = decoder.step()
            total += 1
            for row, length, added in zip(
                output.ids.tolist(), output.acceptance_lengths.tolist(), output.accepted_tokens.tolist(), strict=True
            ):
                tokens[ids[row]] += added[:length]
                forwards[ids[row]] += 1
            if decoder.batch.is_done:
                return tokens, forwards, total
    raise AssertionError("the batch does not end")


def alone(model, *args, **kwargs):
    tokens, forwards, _ = run(start(model, *args, **kwargs))
    return tokens[0], forwards[0]


@functools.cache
def others_alone(model):
    """What the requests but the first generate alone, in whichever company they join."""
    return [alone(model, prompt(number, 3 + 5 * number % 11), way) for number, way in enumerate([*WAYS, *WAYS], 1)]


class TestJoin:
    @pytest.mark.parametrize("first", WAYS)
    @pytest.mark.integration
    def test_every_row_equals_its_run_alone(self, model, first):
        requests = [(prompt(number, 3 + 5 * number % 11), way) for number, way in enumerate([first, *WAYS, *WAYS])]
        expected = [alone(model, *requests[0]), *others_alone(model)]
        schedule = [(1 + 2 * number, [start(model, *request)]) for number, request in enumerate(requests[1:])]
        tokens, forwards, total = run(start(model, *requests[0]), schedule)
        assert tokens == [tokens for tokens, _ in expected]
        others = [index for index, (_, way) in enumerate(requests) if way != "planned"]  # those depend on times
        assert [forwards[index] for index in others] == [expected[index][1] for index in others]
        assert total < sum(forwards), "rows share their forwards"
        assert sum(forwards) < 0.8 * sum(map(len, tokens)), "several tokens a forward"

    def test_rows_sample_what_their_seeds_say(self, model):
        sampling = {"do_sample": True, "temperature": 1.4}
        requests = [(prompt(1, 5), "lossy", 7), (prompt(2, 9), "verified", 8), (prompt(3, 4), "plain", 9)]
        options = [sampling, {**sampling, "top_p": 0.8}, {**sampling, "repetition_penalty": 1.2}]
        expected = [alone(model, *request, **more) for request, more in zip(requests, options, strict=True)]
        greedy = alone(model, prompt(4, 6), "verified")
        assert alone(model, prompt(1, 5), "lossy", 70, **sampling) != expected[0], "the seed matters"
        first, second, third = (
            start(model, *request, **more) for request, more in zip(requests, options, strict=True)
        )
        tokens, forwards, _ = run(first, [(2, [second, start(model, prompt(4, 6), "verified")]), (4, [third])])
        assert list(zip(tokens, forwards, strict=True)) == [expected[0], expected[1], greedy, expected[2]]

    @pytest.mark.parametrize("way", ["lossy", "verified"])
    def test_processors_of_the_prefix_meet_their_own_row_alone(self, model, way):
        more = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 3}
        expected = [alone(model, prompt(1, 5), way), alone(model, prompt(2, 9), way, **more)]
        assert expected[1] != alone(model, prompt(2, 9), way)
        tokens, forwards, _ = run(start(model, prompt(1, 5), way), [(1, [start(model, prompt(2, 9), way, **more)])])
        assert list(zip(tokens, forwards, strict=True)) == expected

    @pytest.mark.parametrize("chunk", [1, 3, 8])
    def test_a_prompt_read_in_chunks_changes_nothing(self, model, chunk):
        expected = alone(model, prompt(5, 20), "verified")
        tokens, forwards, _ = run(
            start(model, prompt(1, 2), "lossy", max_new_tokens=16, eos_token_id=None),
            [(3, [start(model, prompt(5, 20), "verified", chunk=chunk)])],
        )
        assert (tokens[1], forwards[1]) == expected

    def test_prompts_of_one_token_join(self, model):
        expected = [alone(model, prompt(seed, length), "verified") for seed, length in ((1, 1), (2, 1), (3, 7))]
        decoder, *others = (
            start(model, prompt(seed, length), "verified") for seed, length in ((1, 1), (2, 1), (3, 7))
        )
        tokens, forwards, _ = run(decoder, [(0, others)])
        assert list(zip(tokens, forwards, strict=True)) == expected

    def test_large_blocks_beside_a_long_row_near_its_end(self, model):
        more = {"eos_token_id": None}
        expected = alone(model, prompt(1, 4), "verified", max_new_tokens=20, mars_block_size=24, **more)[0]
        long = start(model, prompt(0, 4), "plain", max_new_tokens=40, mars_block_size=2, **more)
        wide = start(model, prompt(1, 4), "verified", max_new_tokens=20, mars_block_size=24, **more)
        tokens, *_ = run(long, [(38, [wide])])
        assert tokens == [alone(model, prompt(0, 4), "plain", max_new_tokens=40, **more)[0], expected]

    @pytest.mark.integration
    def test_a_sampled_row_joins_greedy_drafts(self, model):
        sampling = {"do_sample": True, "temperature": 1.2, "eos_token_id": None}
        expected = [alone(model, prompt(1, 5), "verified"), alone(model, prompt(2, 6), "verified", 7, **sampling)]
        for number in range(1, 8):
            greedy, sampled = (
                start(model, prompt(1, 5), "verified"),
                start(model, prompt(2, 6), "verified", 7, **sampling),
            )
            tokens, forwards, _ = run(greedy, [(number, [sampled])])
            assert list(zip(tokens, forwards, strict=True)) == expected

    def test_nothing_of_a_row_that_overflowed_reaches_the_next_one(self, model):
        expected = alone(model, prompt(2, 4), "verified")[0]
        decoder = start(model, prompt(0, 4), "verified", max_new_tokens=60, eos_token_id=None)
        (row,) = decoder.batch.add(start(model, prompt(1, 40), "verified").batch)
        for layer in decoder.batch.cache.layers:
            layer.keys[1], layer.values[1] = torch.nan, torch.nan
        decoder.batch.remove([row])
        tokens, *_ = run(decoder, [(0, [start(model, prompt(2, 4), "verified")])])
        assert tokens[1] == expected

    def test_places_are_taken_again(self, model):
        decoder = start(model, prompt(0, 4), "verified", max_new_tokens=100, eos_token_id=None)
        schedule = [
            (3 * number, [start(model, prompt(number, 5), "lossy", max_new_tokens=4)]) for number in range(1, 8)
        ]
        tokens, *_ = run(decoder, schedule)
        assert len(tokens) == 8
        assert len(decoder.batch.sequences) < 5

    def test_what_needs_a_batch_of_its_own_is_refused(self, model):
        decoder = start(model, prompt(0, 4), "verified")
        with pytest.raises(ValueError, match="cache"):
            decoder.batch.add(start(model, prompt(1, 4), "verified", use_cache=False).batch)
        with pytest.raises(ValueError, match="criteria"):
            decoder.batch.add(start(model, prompt(1, 4), "verified", max_time=10.0).batch)


class TestLeave:
    def test_the_others_go_on_as_if_nothing_was(self, model):
        requests = [(prompt(number, 3 + number), way) for number, way in enumerate(WAYS)]
        more = {"eos_token_id": None}
        expected = [alone(model, *request, **more) for request in requests]
        first, *others = (start(model, *request, **more) for request in requests)
        tokens, _, _ = run(first, [(0, others)], leaving=[(3, {0, 4}), (5, {2})])
        for row, (whole, _) in enumerate(expected):
            if row in (0, 2, 4):
                assert tokens[row] == whole[: len(tokens[row])]
                assert len(tokens[row]) < NEW_TOKENS
            else:
                assert tokens[row] == whole

    def test_rows_of_a_static_batch_cannot(self, model):
        decoder = start(model, prompt(0, 4), "verified", cache_implementation="static")
        with pytest.raises(ValueError, match="static"):
            decoder.batch.remove([0])

    def test_the_last_one_ends_the_batch(self, model):
        decoder = start(model, prompt(0, 4), "verified")
        with torch.no_grad():
            decoder.step()
        decoder.batch.remove([0])
        assert decoder.batch.is_done
        with pytest.raises(ValueError, match="done"):
            decoder.batch.add(start(model, prompt(1, 4), "verified").batch)


def test_the_end_of_sequence_still_ends_a_row(model):
    tokens, _ = alone(model, prompt(3, 8), "verified", max_new_tokens=100)
    assert tokens[-1] == EOS or len(tokens) == 100
