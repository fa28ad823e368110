"""What starts vLLM with a MARS checkpoint."""

import json
import shlex
from typing import Any


__all__ = ["vllm_command", "vllm_drafter_command"]


def vllm_command(checkpoint: str, block_size: int) -> str:
    """
    The command that serves a checkpoint with several tokens a forward; it needs the distribution `hf-mars-vllm`.

    Args:
        checkpoint (`str`): Directory or Hub id.
        block_size (`int`): Most tokens that a forward adds.
    """
    # The drafts of the forward before, and the masks that give the next ones.
    speculation = {"model": "hf_mars_vllm.MARSProposer", "num_speculative_tokens": 2 * (block_size - 1)}
    return serve_command(checkpoint, speculation)


def vllm_drafter_command(checkpoint: str, block_size: int, target: str) -> str:
    """
    The command that serves another model, with a checkpoint as its parallel drafter. vLLM does this alone.

    Args:
        checkpoint (`str`): Directory or Hub id of the drafter, saved with `pard_token` in its config.json.
        block_size (`int`): Most tokens that a forward adds: its own next token, and one for each mask.
        target (`str`): Directory or Hub id of the model to serve, of the same vocabulary.
    """
    speculation = {
        "method": "draft_model",
        "model": checkpoint,
        "num_speculative_tokens": block_size,
        "parallel_drafting": True,
    }
    return serve_command(target, speculation)


def serve_command(model: str, speculation: dict[str, Any]) -> str:
    return shlex.join(["vllm", "serve", model, "--speculative-config", json.dumps(speculation)])
