import pytest
import torch

from hf_mars.native_dtype import choose_dtype


@pytest.mark.parametrize(
    "capabilities, expected",
    [
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True, "amx_bf16": False}, torch.bfloat16),
        ({"avx512_f": True, "avx512_bf16": False}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_bfloat16_only_where_the_cpu_has_it(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_dtype("auto", "cpu") is expected


def test_names():
    assert choose_dtype("float32", "cpu") is torch.float32
    assert choose_dtype("auto", "mps") is torch.float32
    for name in ("int8", "no_such"):
        with pytest.raises(ValueError, match=f"must be auto, float32, bfloat16 or float16, got '{name}'"):
            choose_dtype(name, "cpu")
