"""Where a measurement was made."""

import platform
from importlib.metadata import version

import torch


__all__ = ["describe_environment"]


def describe_environment(device: torch.device | str = "cpu") -> dict[str, str | int]:
    """Versions and hardware, to be kept with every figure measured on this device."""
    is_cuda = torch.device(device).type == "cuda"
    name = torch.cuda.get_device_name(device) if is_cuda else f"{processor_name()} ({torch.device(device).type})"
    packages = {name: version(name) for name in ("hf-mars", "torch", "transformers", "trl")}
    return {"device": name, "threads": torch.get_num_threads(), "python": platform.python_version(), **packages}


def processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
