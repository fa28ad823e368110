"""Which data type of the weights a device computes fastest."""

import torch


__all__ = ["choose_dtype", "has_native_bfloat16"]

# As oneDNN uses them: tiles (AMX) or dot products (AVX512-BF16).
CPU_FEATURES = ("amx_bf16", "avx512_bf16")


def has_native_bfloat16(device: str | torch.device) -> bool:
    """
    Whether a device multiplies bfloat16 matrices itself, so that they are faster than float32 ones.

    Args:
        device (`str` or `torch.device`): The device.
    """
    device = torch.device(device)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return any(capabilities.get(name, False) for name in CPU_FEATURES)
    if device.type in ("cuda", "xpu"):
        return torch.get_device_module(device).is_bf16_supported(including_emulation=False)
    return False


def choose_dtype(name: str, device: str | torch.device) -> torch.dtype:
    """
    The data type that a user named.

    Args:
        name (`str`):
            `"float32"`, `"bfloat16"`, `"float16"` or `"float64"`; with `"auto"` bfloat16 where the device computes it
            natively, else float32.
        device (`str` or `torch.device`): The device of the model.

    Raises:
        `ValueError`: If it is another name.
    """
    if name == "auto":
        return torch.bfloat16 if has_native_bfloat16(device) else torch.float32
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"`--dtype` must be auto, float32, bfloat16 or float16, got {name!r}.")
    return dtype
