"""The one reach into vLLM that is not public."""

import sys
from collections.abc import Callable, Mapping
from typing import Any


__all__ = ["reach_runner"]

Rows = Callable[[], list[tuple[str, Mapping[str, Any] | None]]]


def reach_runner(proposer: object, before_verification: Callable) -> Rows:
    """
    Connect a proposer with the model runner that is just loading it.

    A proposer of one's own is told the sampled tokens and nothing else. MARS also needs what the model says at the
    masks, and a request's own options. The runner has both: its rejection sampler is called with the logits of all
    verified positions, and it keeps the parameters of every request. There is no public way to either in vLLM 0.32.

    Args:
        proposer (`object`): What the runner loads; called from its `load_model`.
        before_verification (`Callable`): Called with the sampler and a tuple of its arguments, before every
            verification: `(metadata, draft_probabilities, logits, sampling_metadata)`.

    Returns:
        `Callable`: Gives the id and the `extra_args` of the request in each row of the last forward.

    Raises:
        `RuntimeError`: If the runner is not found or has another form.
    """
    frame = sys._getframe(1)
    while frame is not None:
        runner: Any = frame.f_locals.get("self", None)
        if getattr(runner, "drafter", None) is proposer:
            break
        frame = frame.f_back
    else:
        raise RuntimeError("MARSProposer found no model runner: vLLM must load it, as a speculative model.")
    try:
        runner.rejection_sampler.register_forward_pre_hook(before_verification)
        requests = runner.requests
    except AttributeError as error:
        raise RuntimeError(f"MARSProposer does not fit the model runner of this vLLM: {error}") from error

    def rows() -> list[tuple[str, Mapping[str, Any] | None]]:
        return [(name, requests[name].sampling_params.extra_args) for name in runner.input_batch.req_ids]

    return rows
