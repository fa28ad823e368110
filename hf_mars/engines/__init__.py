"""Other engines that serve a MARS checkpoint."""

from .vllm import vllm_command, vllm_drafter_command


__all__ = ["vllm_command", "vllm_drafter_command"]
