"""Drafts are counted as vLLM counts them: exact values where acceptance is forced, else an independent count."""

import pytest
import torch
from transformers import GPT2Config

from hf_mars.decoding import AcceptanceCounts
from tests.oracle import verify_without_cache
from tests.tiny import ragged_prompts, tiny_config, tiny_model


LENGTHS = [5, 9, 3]


@pytest.fixture(scope="module")
def positional_model():
    """A model that looks at the position alone: a mask says what the true token would, and every draft holds."""
    config = tiny_config(GPT2Config, n_embd=32, n_layer=1, n_head=4, n_positions=256)
    model = tiny_model(config, sharpness=16.0)
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
        for block in model.transformer.h:
            block.attn.c_proj.weight.zero_()
    return model


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=8.0, similarity=2.0)


def generate(model, prompts, **arguments):
    arguments = {"mars_threshold": 0.0, "eos_token_id": None, "return_dict_in_generate": True, **arguments}
    return model.generate(**prompts, **arguments)


class TestForcedAcceptance:
    def test_verified(self, positional_model):
        output = generate(positional_model, ragged_prompts([5]), max_new_tokens=13, mars_verify=True)
        # The first forward has no drafts yet; then three drafts and a bonus token each.
        assert output.acceptance_lengths == [[1, 4, 4, 4]]
        assert output.num_drafts == [3]
        assert output.num_draft_tokens == output.num_accepted_tokens == [9]
        assert output.num_accepted_tokens_per_pos == [[3, 3, 3]]
        assert (output.acceptance_rate, output.mean_acceptance_length) == (1.0, 4.0)
        assert output.num_forward_passes < 13

    def test_lossy_offers_no_more_masks_than_the_budget_has_room_for(self, positional_model):
        output = generate(positional_model, ragged_prompts([5, 8]), max_new_tokens=10)
        assert output.acceptance_lengths == [[4, 4, 2]] * 2
        assert output.num_drafts == [3, 3]
        assert output.num_draft_tokens == output.num_accepted_tokens == [7, 7]
        assert output.num_accepted_tokens_per_pos == [[3, 2, 2]] * 2
        assert output.mean_acceptance_length == 1 + 14 / 6

    def test_counts_are_taken_before_the_end_of_sequence_cuts(self, positional_model):
        prompts = ragged_prompts([5])
        tokens = generate(positional_model, prompts, max_new_tokens=13)["sequences"][0, 5:].tolist()
        assert tokens.index(tokens[6]) == 6
        output = generate(positional_model, prompts, max_new_tokens=13, mars_verify=True, eos_token_id=tokens[6])
        assert output.acceptance_lengths == [[1, 4, 2]]
        assert (output.num_drafts, output.num_accepted_tokens) == ([2], [6])

    def test_one_token_a_forward_drafts_nothing(self, positional_model):
        output = generate(positional_model, ragged_prompts([5, 8]), max_new_tokens=4, mars_threshold=1.0)
        assert output.num_drafts == output.num_draft_tokens == output.num_accepted_tokens == [0, 0]
        assert output.num_accepted_tokens_per_pos == [[], []]
        assert (output.acceptance_rate, output.mean_acceptance_length) == (0.0, 1.0)

    def test_a_row_that_accepts_no_mask_is_offered_none(self, positional_model):
        thresholds = torch.tensor([0.0, 1.0])
        output = generate(positional_model, ragged_prompts([5, 8]), max_new_tokens=8, mars_threshold=thresholds)
        assert output.num_draft_tokens == [6, 0]


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("block_size", [2, 4, 6])
def test_verified_counts_equal_an_independent_count(model, threshold, block_size):
    prompts = ragged_prompts(LENGTHS)
    arguments = {"mars_threshold": threshold, "mars_block_size": block_size, "mars_verify": True}
    output = generate(model, prompts, max_new_tokens=40, **arguments)
    for row, length in enumerate(LENGTHS):
        prompt = prompts["input_ids"][row, -length:].tolist()
        tokens, steps = verify_without_cache(model, prompt, threshold, block_size, 40)
        expected = AcceptanceCounts()
        for num_draft_tokens, num_accepted in steps:
            expected.observe(num_draft_tokens, num_accepted)
        assert output.sequences[row, max(LENGTHS) :].tolist() == tokens[:40]
        assert output.num_drafts[row] == expected.num_drafts
        assert output.num_draft_tokens[row] == expected.num_draft_tokens
        assert output.num_accepted_tokens[row] == expected.num_accepted_tokens
        assert output.num_accepted_tokens_per_pos[row] == expected.num_accepted_tokens_per_pos
        # Accepted and bonus tokens are the tokens before the last forward's were cut.
        assert output.num_accepted_tokens[row] + len(output.acceptance_lengths[row]) == len(tokens) >= 40
    assert 0 < output.acceptance_rate < 1, "some drafts fail"
    assert output.tokens_per_forward > 1.2


def test_counts_add_up():
    counts, other = AcceptanceCounts(), AcceptanceCounts()
    for observed in ((3, 3), (3, 1), (0, 0), (2, 0)):
        counts.observe(*observed)
    other.observe(5, 4)
    counts.add(other)
    assert counts == AcceptanceCounts(4, 13, 8, [3, 2, 2, 1, 0])
    assert counts.acceptance_rate == 8 / 13
    assert counts.mean_acceptance_length == 3.0
