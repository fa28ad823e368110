"""Rotary embeddings that change with the largest position of a forward: verified output stays plain output."""

import pytest
import torch
from transformers import Gemma3TextConfig, GenerationMixin, LlamaConfig, Phi3Config

from hf_mars.decoding import prepare
from hf_mars.decoding.positions import get_switch_length
from tests.tiny import ragged_prompts, tiny_config, tiny_model


SWITCH = 32
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [1.5, 3.0, 6.0, 12.0],
    "original_max_position_embeddings": SWITCH,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
CONFIGS = {
    "longrope, Phi-3": tiny_config(Phi3Config, original_max_position_embeddings=SWITCH, rope_parameters=LONGROPE),
    "longrope, Llama": tiny_config(LlamaConfig, rope_parameters=LONGROPE),
    "dynamic": tiny_config(LlamaConfig, max_position_embeddings=SWITCH, rope_parameters=DYNAMIC),
    "dynamic in some layers": tiny_config(
        Gemma3TextConfig,
        max_position_embeddings=SWITCH,
        head_dim=8,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": DYNAMIC,
        },
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def model(request):
    return tiny_model(CONFIGS[request.param], sharpness=8.0, similarity=2.0)


def forget(model):
    """`"dynamic"` keeps the frequencies of the longest forward so far until a short one, in plain generation too."""
    with torch.no_grad():
        model(torch.tensor([[2]]))


def both(model, prompts, max_new_tokens):
    arguments = {**prompts, "max_new_tokens": max_new_tokens, "eos_token_id": None, "do_sample": False}
    forget(model)
    plain = GenerationMixin.generate(model, **arguments)
    forget(model)
    output = model.generate(**arguments, mars_threshold=0.2, mars_verify=True, return_dict_in_generate=True)
    return plain.tolist(), output


@pytest.mark.parametrize(
    ("lengths", "max_new_tokens"),
    [
        # Up to the switch, one token beyond it, and far beyond
        ([20], 12),
        ([20], 13),
        ([20], 20),
        ([5, 20, 11], 12),
        ([5, 20, 11], 13),
        ([5, 20, 11], 20),
        # Prompts that end at it
        ([31], 1),
        ([31], 12),
        ([32], 1),
        ([32], 12),
        ([33], 1),
        ([33], 12),
        # And beyond it, all of them or some
        ([40], 12),
        ([40, 45], 1),
        ([40, 45], 13),
        ([5, 40], 1),
        ([5, 40], 13),
        ([5, 40], 20),
    ],
)
def test_verified_output_is_plain_output_on_both_sides_of_the_switch(model, lengths, max_new_tokens):
    plain, output = both(model, ragged_prompts(lengths), max_new_tokens)
    assert output.sequences.tolist() == plain
    assert [sum(row) for row in output.acceptance_lengths] == [max_new_tokens] * len(lengths)


def test_several_tokens_a_forward_before_the_switch(model):
    plain, output = both(model, ragged_prompts([5, 11]), SWITCH - 11)
    assert output.sequences.tolist() == plain
    assert output.tokens_per_forward > 1.2


def test_and_beyond_it_where_nothing_changes_any_more():
    model = tiny_model(CONFIGS["longrope, Phi-3"], sharpness=8.0, similarity=2.0)
    plain, output = both(model, ragged_prompts([SWITCH + 5, SWITCH + 9]), 16)
    assert output.sequences.tolist() == plain
    assert output.tokens_per_forward > 1.2


def test_a_streamer_gets_every_token_of_a_call_that_crosses_it(model):
    class Streamer:
        tokens, ends = [], 0

        def put(self, value):
            self.tokens = self.tokens + value.flatten().tolist()

        def end(self):
            self.ends += 1

    streamer = Streamer()
    plain, _ = both(model, ragged_prompts([20]), 20)
    arguments = {"mars_threshold": 0.2, "mars_verify": True, "eos_token_id": None}
    model.generate(**ragged_prompts([20]), max_new_tokens=20, streamer=streamer, **arguments)
    assert (streamer.tokens, streamer.ends) == (plain[0], 1)


def test_a_row_of_a_shared_batch_may_not_cross_it(model):
    prompt = ragged_prompts([20])["input_ids"]
    with pytest.raises(ValueError, match="rotary embedding.*max_new_tokens"):
        prepare(model, prompt, {"mars_threshold": 0.2}, max_new_tokens=20)
    assert prepare(model, prompt, {"mars_threshold": 0.2}, max_new_tokens=12).batch.num_unread == 19


@pytest.mark.parametrize(
    "rope_type, parameters", [("default", {}), ("linear", {"factor": 2.0}), ("yarn", {"factor": 2.0})]
)
def test_other_scalings_do_not_look_at_the_forward(rope_type, parameters):
    rope = {"rope_type": rope_type, "rope_theta": 10000.0, **parameters}
    config = tiny_config(LlamaConfig, max_position_embeddings=SWITCH, rope_parameters=rope)
    assert get_switch_length(config) is None
    model = tiny_model(config, sharpness=8.0, similarity=2.0)
    plain, output = both(model, ragged_prompts([20, 9]), 16)
    assert output.sequences.tolist() == plain
    assert output.tokens_per_forward > 1.2


def test_positions_that_were_left_out_do_not_matter_to_a_later_call(model):
    short = ragged_prompts([5])
    expected, _ = both(model, short, 12)
    arguments = {"mars_threshold": 0.2, "mars_verify": True, "eos_token_id": None}
    model.generate(**ragged_prompts([40]), max_new_tokens=30, **arguments)
    assert model.generate(**short, max_new_tokens=12, **arguments).tolist() == expected
