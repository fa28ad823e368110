"""Greedy answers are those of plain vLLM, whatever happens around a request."""

import random

import pytest
from engine import MARS, Request, greedy, load, run, tokens_per_forward


def same_answers(plain, mars, requests) -> list[Request]:
    """Serve requests by both engines, compare, and return them as the second one answered them."""
    expected, answered = run(plain, requests()), run(mars, requests())
    for index, (one, other) in enumerate(zip(expected, answered, strict=True)):
        if one.abort_after is None:
            assert other.token_ids == one.token_ids, f"request {index}"
            assert other.answer.text == one.answer.text, f"request {index}"
            assert other.answer.finish_reason == one.answer.finish_reason, f"request {index}"
            assert other.answer.stop_reason == one.answer.stop_reason, f"request {index}"
    return answered


def test_rows_that_join_and_leave(checkpoint, plain, mars):
    def requests():
        draw = random.Random(3)
        for prompt in checkpoint.prompts:
            yield Request(prompt, greedy(draw.randint(1, 60)), step=draw.randint(0, 40))

    answered = same_answers(plain, mars, requests)
    assert tokens_per_forward(answered) > checkpoint.accepts


def test_requests_that_are_aborted(checkpoint, plain, mars):
    def requests():
        for index, prompt in enumerate(checkpoint.prompts):
            yield Request(prompt, greedy(40), step=index // 2, abort_after=3 + index if index % 3 == 0 else None)

    answered = same_answers(plain, mars, requests)
    assert any(request.abort_after and len(request.token_ids) < 40 for request in answered)


def test_stop_strings_and_tokens_and_least_and_most_lengths(checkpoint, plain, mars):
    likely = run(plain, [Request(prompt, greedy(30)) for prompt in checkpoint.prompts[:2]])
    stop_ids = [likely[0].token_ids[7], likely[1].token_ids[4]]
    kinds = [
        {"stop": checkpoint.words},
        {"stop": checkpoint.words, "include_stop_str_in_output": True, "min_tokens": 5},
        {"stop_token_ids": stop_ids},
        {"stop_token_ids": stop_ids, "min_tokens": 9},
        {"ignore_eos": True},
        {"max_tokens": 1},
    ]

    def requests():
        for index, prompt in enumerate(checkpoint.prompts):
            yield Request(prompt, greedy(**kinds[index % len(kinds)]))

    answered = same_answers(plain, mars, requests)
    assert {request.answer.finish_reason for request in answered} == {"stop", "length"}


def test_penalties_and_forbidden_tokens_in_one_batch(checkpoint, plain, mars):
    likely = run(plain, [Request(checkpoint.prompts[0], greedy(30))])[0].token_ids
    kinds = [
        {},
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.8},
        {"frequency_penalty": 0.6},
        {"bad_words": checkpoint.words[:1]},
        {"allowed_token_ids": sorted({*likely, 2, 5, 9})},
    ]

    def requests():
        for index, prompt in enumerate(checkpoint.prompts):
            yield Request(prompt, greedy(32, **kinds[index % len(kinds)]))

    answered = same_answers(plain, mars, requests)
    assert tokens_per_forward(answered) > 1.1


def test_logprobs(checkpoint, plain, mars):
    def requests():
        for prompt in checkpoint.prompts[:6]:
            yield Request(prompt, greedy(24, logprobs=3))

    expected, answered = run(plain, requests()), run(mars, requests())
    for one, other in zip(expected, answered, strict=True):
        assert other.token_ids == one.token_ids
        assert len(other.answer.logprobs) == len(one.answer.logprobs)
        for left, right in zip(one.answer.logprobs, other.answer.logprobs, strict=True):
            assert left.keys() == right.keys()
            assert [right[token].logprob for token in left] == pytest.approx(
                [each.logprob for each in left.values()], abs=2e-4
            )
            assert [right[token].rank for token in left] == [each.rank for each in left.values()]


def test_a_request_opts_out_or_sets_its_threshold(checkpoint, plain, mars):
    kinds = [{"mars": False}, {"mars_threshold": 1.0}, None]

    def requests():
        for index, prompt in enumerate(checkpoint.prompts):
            yield Request(prompt, greedy(32, extra_args=kinds[index % 3]))

    answered = same_answers(plain, mars, requests)
    assert tokens_per_forward(answered[0::3]) == 1.0
    assert tokens_per_forward(answered[1::3]) < tokens_per_forward(answered[2::3])
    assert tokens_per_forward(answered[2::3]) > checkpoint.accepts


@pytest.mark.parametrize("extra_args", [{"mars": "off"}, {"mars_threshold": 2}, {"mars_treshold": 0.5}])
def test_wrong_options_of_a_request_are_refused(checkpoint, mars, extra_args):
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="mars"):
        run(mars, [Request(checkpoint.prompts[0], greedy(4, extra_args=extra_args))])
    assert len(run(mars, [Request(checkpoint.prompts[0], greedy(4))])[0].token_ids) == 4


def test_prefix_caching_over_turns_and_prompts_read_in_chunks(checkpoint, plain):
    """A turn's prompt is the one before it, its answer, and some more. Windows and chunks share 40 tokens a step."""
    cached = load(checkpoint.path, MARS, enable_prefix_caching=True, max_num_batched_tokens=40)
    prompts = checkpoint.prompts[:6]
    longest = 0
    for turn in range(3):
        answered = same_answers(plain, cached, lambda: [Request(prompt, greedy(40)) for prompt in prompts])  # noqa: B023
        assert tokens_per_forward(answered) > 1.1, turn
        prompts = [one.prompt + one.token_ids + other for one, other in zip(answered, prompts[::-1], strict=True)]
        prompts = [prompt[:250] for prompt in prompts]
        longest = max(longest, *map(len, prompts))
    assert longest > 40
    # A prompt that is cached as a whole, and prompts that end inside an answer.
    request = answered[0]
    cuts = [request.prompt + request.token_ids[:length] for length in range(0, 40, 5)]
    same_answers(plain, cached, lambda: [Request(prompt, greedy(20), step=index) for index, prompt in enumerate(cuts)])
    del cached


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_rows_that_are_preempted_and_resumed(checkpoint, plain, prefix_caching):
    small = load(
        checkpoint.path,
        MARS,
        max_model_len=256,
        num_gpu_blocks_override=10,
        enable_prefix_caching=prefix_caching,
        disable_log_stats=False,
    )
    requests = lambda: [Request(prompt, greedy(60)) for prompt in checkpoint.prompts[:12]]  # noqa: E731
    answered = same_answers(plain, small, requests)
    assert tokens_per_forward(answered) > 1.1
    preemptions = {metric.name: metric for metric in small.get_metrics()}["vllm:num_preemptions"].value
    assert preemptions > 0
    del small


def test_the_longest_length_of_the_model(checkpoint):
    short = load(checkpoint.path, MARS, max_model_len=96)
    long = load(checkpoint.path, max_model_len=96)
    requests = lambda: [Request(prompt, greedy(90)) for prompt in checkpoint.prompts[:4]]  # noqa: E731
    same_answers(long, short, requests)
    del short, long


def test_the_automatic_switch_and_the_limit_of_rows_change_no_answer(checkpoint, plain):
    automatic = load(checkpoint.path, MARS, mars={})
    requests = lambda: [Request(prompt, greedy(60), step=index) for index, prompt in enumerate(checkpoint.prompts)]  # noqa: E731
    same_answers(plain, automatic, requests)
    same_answers(plain, automatic, requests)
    del automatic
    limited = load(checkpoint.path, MARS, mars={"automatic": False, "max_batch_size": 2})
    answered = same_answers(plain, limited, lambda: [Request(each, greedy(24)) for each in checkpoint.prompts[:6]])
    assert tokens_per_forward(answered) < 1.3
    answered = same_answers(plain, limited, lambda: [Request(each, greedy(24)) for each in checkpoint.prompts[:2]])
    assert tokens_per_forward(answered) > 1.1
    del limited
