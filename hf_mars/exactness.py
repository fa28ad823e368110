"""Whether forwards of different width agree to the last choice, which lossless decoding needs."""

import torch
from torch import nn
from transformers import PreTrainedModel


__all__ = ["explain_inexactness"]

# Layers of torch, bitsandbytes and transformers that quantise their input in every forward, by class or module.
DYNAMIC_LAYERS = ("AutoBitLinear", "BitLinear", "FP8Linear", "FbgemmFp8Linear", "Linear8bitLt")
DYNAMIC_MODULES = ("torch.ao.nn.quantized.dynamic", "torch.ao.nn.intrinsic.quantized.dynamic")
# torchao keeps the layer, and gives it a weight that says what becomes of the input.
DYNAMIC_WEIGHTS = ("act_quant_kwargs", "activation_quantization", "input_quant_func")


def explain_inexactness(model: PreTrainedModel) -> str | None:
    """
    Why verified output may differ from plain output where two tokens nearly tie.

    Args:
        model ([`PreTrainedModel`]): The model.

    Returns:
        `str`, *optional*: The reason; `None` if there is none, as in float32 and float64, also with weights that are
        quantised alone.
    """
    if any(map(quantizes_input, model.modules())):
        return "the scales and roundings of dynamic quantisation (int8, fp8) depend on the width of the forward"
    if model.dtype not in (torch.float32, torch.float64):
        return f"in {str(model.dtype).removeprefix('torch.')} forwards of different width round differently"
    return None


def quantizes_input(module: nn.Module) -> bool:
    """Whether a layer quantises what it reads, anew in every forward."""
    for base in type(module).__mro__:
        if base.__name__ in DYNAMIC_LAYERS or base.__module__.startswith(DYNAMIC_MODULES):
            return True
    weight = getattr(module, "weight", None)
    return any(getattr(weight, name, None) is not None for name in DYNAMIC_WEIGHTS)
