import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from hf_mars.decoding.attention import WINDOW_ATTENTION, use_attention, window_attention_forward

from ..tiny import ragged_prompts, tiny_config, tiny_model


class Layer:
    """What `sdpa` reads of an attention layer."""

    is_causal, training = True, False

    def __init__(self, num_key_value_groups: int):
        self.num_key_value_groups = num_key_value_groups


@pytest.mark.parametrize("num_heads, num_key_value_heads", [(6, 2), (6, 1), (4, 4)])
@pytest.mark.parametrize("num_queries", [1, 5, 70])
def test_it_computes_what_sdpa_computes(num_heads, num_key_value_heads, num_queries):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(3, heads, length, 8, generator=generator, dtype=torch.float64)
        for heads, length in ((num_heads, num_queries), (num_key_value_heads, 80), (num_key_value_heads, 80))
    )
    mask = torch.rand(3, 1, num_queries, 80, generator=generator) < 0.5
    mask[..., 0] = True
    layer = Layer(num_heads // num_key_value_heads)
    for attention_mask in (mask, None):
        arguments = (layer, query, key, value, attention_mask)
        output, _ = window_attention_forward(*arguments, scaling=0.3)
        expected, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](*arguments, scaling=0.3)
        torch.testing.assert_close(output, expected)


def test_no_copies_of_keys_are_made(monkeypatch):
    seen = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def record(query, key, *args, **kwargs):
        seen.append((query.shape[1:3], key.shape[1]))
        return attend(query, key, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", record)
    model = tiny_model(tiny_config(num_hidden_layers=1), block_size=4)
    model.generate(**ragged_prompts([5, 3]), max_new_tokens=6, do_sample=False, mars_threshold=0.0)
    assert seen[1:] and all(num_key_heads == 2 for _, num_key_heads in seen)  # 4 heads of queries, 2 of keys
    assert all(shape[1] % 2 == 0 for shape, _ in seen)


def test_the_backend_comes_back():
    model = tiny_model()
    with pytest.raises(RuntimeError), use_attention(model):
        assert model.config._attn_implementation == WINDOW_ATTENTION
        raise RuntimeError
    assert model.config._attn_implementation == "sdpa"
    model.generate(**ragged_prompts([5, 3]), max_new_tokens=4, do_sample=False, mars_verify=True)
    assert model.config._attn_implementation == "sdpa"


def test_another_backend_stays():
    model = tiny_model(attn_implementation="eager")
    with use_attention(model):
        assert model.config._attn_implementation == "eager"
