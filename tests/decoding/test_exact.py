import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config

from hf_mars.decoding import exact, prepare, use_attention
from hf_mars.decoding.exact import VerifiedColumns, find_uneven, is_uneven, recompute_columns

from ..tiny import MASK, ragged_prompts, tiny_config, tiny_model


def shape(**overrides) -> dict:
    return {"hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 6, **overrides}


@pytest.mark.parametrize("lengths", [[9], [9, 4, 17], [6, 6]], ids=["one row", "padded", "equal"])
@pytest.mark.parametrize(
    "config",
    [
        tiny_config(LlamaConfig, **shape()),
        tiny_config(Qwen2Config, **shape()),
        tiny_config(MistralConfig, **shape(sliding_window=12)),
    ],
    ids=lambda config: config.model_type,
)
def test_every_logit_is_that_of_plain_decoding_to_the_bit(config, lengths):
    model = tiny_model(config, dtype=torch.bfloat16, sharpness=8.0)
    inputs = ragged_prompts(lengths)
    arguments = {"max_new_tokens": 40, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    plain = model.generate(**inputs, **arguments, mars_threshold=1.0)
    verified = model.generate(**inputs, **arguments, mars_verify="exact", mars_threshold=0.3)
    assert verified.num_forward_passes < max(map(len, plain.acceptance_lengths))
    assert torch.equal(verified.sequences, plain.sequences)
    for row, acceptance_lengths in enumerate(plain.acceptance_lengths):
        for position in range(sum(acceptance_lengths)):
            logits = [output.logits[position][row, :MASK].float() for output in (verified, plain)]
            assert torch.equal(*logits), (row, position)


def test_layers_whose_sums_change_are_found(monkeypatch):
    monkeypatch.setattr(exact, "is_uneven", lambda shape, *args: shape == (32, 64))
    model = tiny_model(dtype=torch.bfloat16)
    assert find_uneven(model, 1, 7) == [layer.mlp.down_proj for layer in model.model.layers]


def test_each_verified_column_is_computed_again():
    layer = torch.nn.Linear(8, 4, dtype=torch.bfloat16)
    states = torch.randn(2, 5, 8, dtype=torch.bfloat16)
    columns = VerifiedColumns(num_masks=2, spans=[(1, 3, 0), (2, 3, 7)], has_padding=False)
    output = torch.zeros(2, 5, 4, dtype=torch.bfloat16)
    recompute_columns(columns, layer, (states,), output)
    for column in range(5):
        expected = layer(states[:, column]) if column in (1, 2) else torch.zeros(2, 4, dtype=torch.bfloat16)
        assert torch.equal(output[:, column], expected)


def test_one_order_of_additions_is_told_from_another():
    arguments = ((64, 32), torch.float32, torch.device("cpu"), 2, 7, torch.get_num_threads())
    assert not is_uneven((64, 32), torch.float64, *arguments[2:4], 1, arguments[-1])  # nothing to compare with

    def linear(states, weight):  # as a kernel that adds in another way beyond two rows
        dtype = torch.float32 if len(states) == 2 else torch.float64
        return (states.to(dtype) @ weight.to(dtype).T).float()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", linear)
        assert is_uneven.__wrapped__(*arguments)


def test_it_is_refused_where_it_would_not_be_faster(monkeypatch):
    monkeypatch.setattr(exact, "is_uneven", lambda *args: True)
    model = tiny_model(dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="would not be faster than plain decoding: on cpu in bfloat16 most of the"):
        model.generate(**ragged_prompts([5]), max_new_tokens=4, mars_verify="exact")
    assert model.config._attn_implementation == "sdpa"


def test_matrices_of_other_kinds_are_refused():
    model = tiny_model(dtype=torch.bfloat16)
    model.register_parameter("table", torch.nn.Parameter(torch.zeros(2, 2)))
    with pytest.raises(ValueError, match="knows what nn.Linear does"):
        find_uneven(model, 1, 7)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"cache_implementation": "static"}, "cache_implementation='static'"),
        ({"prefill_chunk_size": 4}, "prefill_chunk_size"),
        ({"use_cache": False}, "use_cache=False"),
    ],
)
def test_what_would_change_the_forwards_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_model().generate(**ragged_prompts([5]), max_new_tokens=4, mars_verify="exact", **arguments)


def test_it_needs_the_model_for_itself():
    model = tiny_model()
    with use_attention(model), pytest.raises(ValueError, match="another call or a server decodes with it"):
        model.generate(**ragged_prompts([5]), max_new_tokens=4, mars_verify="exact")


def test_other_backends_and_other_words_are_refused():
    with pytest.raises(ValueError, match="needs the attention backend 'sdpa', not 'eager'"):
        tiny_model(attn_implementation="eager").generate(**ragged_prompts([5]), max_new_tokens=4, mars_verify="exact")
    with pytest.raises(TypeError, match="must be a bool or 'exact', got 'exactly'"):
        tiny_model().generate(**ragged_prompts([5]), max_new_tokens=4, mars_verify="exactly")
    with pytest.raises(ValueError, match="is for `generate` alone"):
        prepare(tiny_model(), ragged_prompts([5])["input_ids"], {"mars_verify": "exact"})
