"""Refuses a request whose options are wrong, before it is queued."""

from vllm.v1.sample.logits_processor import LogitsProcessor

from .request_options import RequestOptions


__all__ = ["RequestCheck"]


class RequestCheck(LogitsProcessor):
    """
    A logits processor that processes nothing. vLLM calls `validate_params` of every installed one where a request
    comes in, and answers what it raises with status 400; in the worker it would be too late to refuse one request.
    """

    @classmethod
    def validate_params(cls, sampling_params) -> None:
        """
        Raises:
            `ValueError`: If `mars` or `mars_threshold` of the request is wrong.
        """
        try:
            RequestOptions.from_extra_args(sampling_params.extra_args)
        except TypeError as error:
            raise ValueError(str(error)) from error  # the one kind that vLLM takes for the user's mistake

    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def apply(self, logits):
        return logits

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update) -> None:
        pass
