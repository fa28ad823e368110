"""What is lossless by construction, and what its arithmetic keeps from being so."""

import pytest
import torch
from torch import nn
from transformers import GenerationMixin

from hf_mars import enable_mars
from hf_mars.exactness import explain_inexactness
from tests.tiny import MASK, ragged_prompts, tiny_model


def quantize_dynamically(model):
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def with_layer(layer):
    """A float32 model that has the layer somewhere."""
    model = tiny_model(dtype=torch.float32)
    model.model.layers[1].mlp.up_proj = layer
    return model


def with_weight(**attributes):
    """As torchao does it: the layer stays, and its weight is of another kind."""
    layer = nn.Linear(32, 64, bias=False)
    vars(layer.weight).update(attributes)
    return with_layer(layer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_precision_is_exact(dtype):
    assert explain_inexactness(tiny_model(dtype=dtype)) is None


@pytest.mark.parametrize(
    "build",
    [
        lambda: with_layer(pytest.importorskip("bitsandbytes").nn.LinearNF4(32, 64)),
        lambda: with_layer(torch.ao.nn.quantized.Linear(32, 64)),  # static scales
        lambda: with_weight(act_quant_kwargs=None),
    ],
)
def test_quantised_weights_and_static_scales_are_exact(build):
    assert explain_inexactness(build()) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_not(dtype):
    assert "float16 forwards of different width" in explain_inexactness(tiny_model(dtype=dtype))


@pytest.mark.parametrize(
    "build",
    [
        lambda: quantize_dynamically(tiny_model(dtype=torch.float32)),
        lambda: with_layer(torch.ao.nn.quantized.dynamic.Linear(32, 64)),
        lambda: with_layer(torch.ao.nn.intrinsic.quantized.dynamic.LinearReLU(32, 64)),
        lambda: with_layer(pytest.importorskip("bitsandbytes").nn.Linear8bitLt(32, 64, has_fp16_weights=False)),
        lambda: with_weight(act_quant_kwargs=object()),
        lambda: with_weight(activation_quantization="int8_asym_per_token"),
    ],
)
def test_dynamic_quantisation_is_not(build):
    model = build()
    assert model.dtype == torch.float32
    assert "dynamic quantisation" in explain_inexactness(model)


def test_dynamic_quantisation_does_change_verified_output():
    """The reason is real: with these weights, scales that follow the width of a forward change the tokens."""
    model = enable_mars(quantize_dynamically(tiny_model(similarity=0.5, dtype=torch.float32)), MASK, block_size=4)
    changed = []
    for seed in range(4):
        arguments = {**ragged_prompts([9], seed=seed), "max_new_tokens": 24, "eos_token_id": None}
        plain = GenerationMixin.generate(model, **arguments)
        changed.append(plain.tolist() != model.generate(**arguments, mars_threshold=0.0, mars_verify=True).tolist())
    assert any(changed)
