"""Time, forward passes and memory of one call."""

import sys
import time
from pathlib import Path

import torch
from transformers import PreTrainedModel


__all__ = ["ForwardClock", "synchronize"]


class ForwardClock:
    """
    Measures what runs inside it: seconds in all, in forward passes, and until the first one is done; the passes and
    their columns; and the peak of the memory.

    ```python
    >>> with ForwardClock(model) as clock:
    ...     model.generate(**inputs)
    >>> clock.seconds, clock.num_forwards
    ```

    Args:
        model ([`PreTrainedModel`]): The model whose forwards are counted.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.seconds = self.in_forwards = self.first_forward = 0.0
        self.widths: list[int] = []
        self.peak_memory: int | None = None  # bytes

    def __enter__(self) -> "ForwardClock":
        self._hooks = [
            self.model.register_forward_pre_hook(self._before, with_kwargs=True),
            self.model.register_forward_hook(self._after),
        ]
        reset_peak_memory(self.model.device)
        synchronize(self.model.device)
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception) -> None:
        synchronize(self.model.device)
        self.seconds = time.perf_counter() - self._start
        self.peak_memory = peak_memory(self.model.device)
        for hook in self._hooks:
            hook.remove()

    @property
    def num_forwards(self) -> int:
        return len(self.widths)

    @property
    def columns(self) -> float:
        """Mean number of columns of a forward after the first one, which reads the prompt."""
        later = self.widths[1:] or self.widths
        return sum(later) / len(later) if later else 0.0

    def _before(self, module, args, kwargs):
        input_ids = kwargs.get("input_ids", args[0] if args else None)
        self.widths.append(input_ids.shape[1])
        self._forward_start = time.perf_counter()

    def _after(self, module, args, output):
        if len(self.widths) == 1:
            synchronize(self.model.device)
            self.first_forward = time.perf_counter() - self._start
        # On an accelerator this is the time to launch the forward, not to run it.
        self.in_forwards += time.perf_counter() - self._forward_start


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that a clock read afterwards tells the truth."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "cpu":
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: resets VmHWM
        except OSError:
            pass


def peak_memory(device: torch.device) -> int | None:
    """Bytes: of the accelerator, or of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type != "cpu":
        return None
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    if sys.platform == "win32":
        return None
    import resource  # Unix only

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
