"""Sampling, lossy and verified, against exact distributions."""

import itertools

import pytest
import torch
from transformers import GenerationMixin

from tests.tiny import ragged_prompts, tiny_config, tiny_model


VOCAB = 6
MASK = 5


@pytest.fixture(scope="module")
def model():
    """Six tokens, one of them the mask: every continuation can be enumerated."""
    config = tiny_config(vocab_size=VOCAB)
    model = tiny_model(config, sharpness=0, similarity=1.5, mask_token_id=MASK, dtype=torch.float32)
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        torch.manual_seed(3)
        head.normal_(std=0.35)
        head[MASK] = 0
    return model


def exact_distribution(model, prompt, num_tokens, temperature):
    """Probability of every continuation under autoregressive sampling without the mask token."""
    continuations = list(itertools.product(range(MASK), repeat=num_tokens))
    input_ids = torch.tensor([prompt + list(continuation) for continuation in continuations])
    with torch.no_grad():
        logits = model(input_ids).logits[:, len(prompt) - 1 : -1, :MASK].float()
    log_probs = (logits / temperature).log_softmax(-1)
    chosen = log_probs.gather(2, torch.tensor(continuations)[:, :, None]).sum((1, 2))
    return dict(zip(continuations, chosen.exp().tolist(), strict=True))


# At 0.4 some masks pass and others do not.
@pytest.mark.parametrize(("threshold", "tokens_per_forward"), [(0.0, 1.45), (0.4, 1.22)])
@pytest.mark.integration
def test_verified_sampling_has_the_joint_distribution_of_autoregressive_sampling(model, threshold, tokens_per_forward):
    prompt, num_samples, num_tokens = [2, 3, 1, 4], 12_000, 3
    torch.manual_seed(0)
    output = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=num_tokens + 1,
        do_sample=True,
        temperature=1.3,
        top_k=0,
        num_return_sequences=num_samples,
        eos_token_id=None,
        mars_threshold=threshold,
        mars_verify=True,
        return_dict_in_generate=True,
    )
    assert output.tokens_per_forward == pytest.approx(tokens_per_forward, abs=0.03)
    counts = {}
    for continuation in map(tuple, output.sequences[:, len(prompt) : len(prompt) + num_tokens].tolist()):
        counts[continuation] = counts.get(continuation, 0) + 1
    expected = exact_distribution(model, prompt, num_tokens, temperature=1.3)
    assert set(counts) <= set(expected)
    statistic = sum(
        (counts.get(continuation, 0) - num_samples * probability) ** 2 / (num_samples * probability)
        for continuation, probability in expected.items()
    )
    # Chi-square with 124 degrees of freedom: the 99.9th percentile is 181. Every continuation is expected five times
    # at least. Lossy sampling gives thousands.
    assert statistic < 181


@pytest.mark.integration
def test_lossy_sampling_has_another_distribution(model):
    """The test above can tell: the same statistic, without verification, is far off."""
    prompt, num_samples, num_tokens = [2, 3, 1, 4], 12_000, 3
    torch.manual_seed(0)
    output = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=num_tokens,
        do_sample=True,
        temperature=1.3,
        top_k=0,
        num_return_sequences=num_samples,
        eos_token_id=None,
        mars_threshold=0.0,
    )
    counts = {}
    for continuation in map(tuple, output[:, len(prompt) :].tolist()):
        counts[continuation] = counts.get(continuation, 0) + 1
    expected = exact_distribution(model, prompt, num_tokens, temperature=1.3)
    statistic = sum(
        (counts.get(continuation, 0) - num_samples * probability) ** 2 / (num_samples * probability)
        for continuation, probability in expected.items()
    )
    assert statistic > 1000


@pytest.mark.parametrize("arguments", [{}, {"mars_threshold": 0.9}, {"mars_threshold": 0.0, "mars_block_size": 3}])
def test_no_plan_changes_what_a_seed_gives(arguments):
    model = tiny_model(sharpness=3.0, similarity=2.0)
    prompts = ragged_prompts([5, 9, 3])
    sampled = {"do_sample": True, "temperature": 0.8, "max_new_tokens": 24, "return_dict_in_generate": True}
    torch.manual_seed(3)
    expected = model.generate(**prompts, **sampled, mars_threshold=0.4, mars_verify=True)
    torch.manual_seed(3)
    output = model.generate(**prompts, **sampled, **arguments, mars_verify=True)
    assert output.sequences.tolist() == expected.sequences.tolist()
    assert expected.tokens_per_forward > 1
    torch.manual_seed(4)
    other = model.generate(**prompts, **sampled, **arguments, mars_verify=True)
    assert other.sequences.tolist() != expected.sequences.tolist()


SAMPLING = {
    "top_k": {"top_k": 5},
    "top_p": {"top_k": 0, "top_p": 0.8},
    "min_p": {"top_k": 0, "min_p": 0.1},
    "typical_p": {"top_k": 0, "typical_p": 0.9},
    "repetition_penalty": {"repetition_penalty": 1.2},
}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("name", SAMPLING)
def test_every_sampled_token_is_one_that_plain_sampling_could_give(name, verify):
    model = tiny_model(sharpness=8.0, similarity=2.0)
    prompts = ragged_prompts([5, 9, 3])
    torch.manual_seed(0)
    output = model.generate(
        **prompts,
        max_new_tokens=24,
        do_sample=True,
        temperature=0.7,
        mars_threshold=0.4,
        mars_verify=verify,
        return_dict_in_generate=True,
        output_scores=True,
        **SAMPLING[name],
    )
    width = prompts["input_ids"].shape[1]
    for index, scores in enumerate(output.scores):
        for row, acceptance_lengths in enumerate(output.acceptance_lengths):
            if index < sum(acceptance_lengths):
                assert torch.isfinite(scores[row, output.sequences[row, width + index]])
    assert output.tokens_per_forward > 1


def test_certain_scores_make_sampling_greedy():
    model = tiny_model(sharpness=8.0, similarity=2.0)
    prompts = ragged_prompts([5, 9, 3])
    greedy = GenerationMixin.generate(model, **prompts, max_new_tokens=24)
    for verify in (False, True):
        output = model.generate(
            **prompts,
            max_new_tokens=24,
            do_sample=True,
            top_k=1,
            mars_threshold=0.4 if verify else 1.0,
            mars_verify=verify,
        )
        assert output.tolist() == greedy.tolist()


def test_num_return_sequences_gives_different_samples():
    model = tiny_model(sharpness=4.0, similarity=2.0)
    prompts = ragged_prompts([5, 9])
    output = model.generate(
        **prompts,
        max_new_tokens=12,
        do_sample=True,
        num_return_sequences=3,
        mars_threshold=torch.tensor([0.2, 0.9]),
        mars_verify=True,
    )
    assert output.shape[0] == 6
    assert output[:3, :9].tolist() == prompts["input_ids"][:1].expand(3, -1).tolist()
    assert len({tuple(row) for row in output.tolist()}) > 2
