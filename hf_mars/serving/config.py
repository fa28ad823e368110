"""Options of a server."""

import math
import os
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from .checking_options import check_positive, check_types, read_origins
from .memory import KVBudget
from .policy import ThresholdPolicy
from .scheduler import Scheduler


__all__ = ["ServerConfig", "ServingConfig"]

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@dataclass
class ServingConfig:
    r"""
    What is served, and how: the options that a server of one process and the replicas of a cluster share.

    Parameters:
        checkpoint (`str`):
            Hub id or directory of a MARS checkpoint.
        model_name (`str`, *optional*):
            The name that requests must give. By default the checkpoint as written.
        dtype (`str`, *optional*, defaults to `"auto"`):
            Data type of the weights: `"float32"`, `"bfloat16"`, `"float16"`, `"float64"`, or `"auto"`: bfloat16 where
            the device computes it natively, else float32.

        > Parameters that control the threshold

        policy (`str`, *optional*, defaults to `"lossless"`):
            `"lossless"`: requests are verified, and each step drafts as far as it pays. `"adaptive"`: requests are
            lossy, and the load lowers the threshold. `"fixed"`: nothing moves. See [`ThresholdPolicy`].
        threshold_min (`float`, *optional*, defaults to `0.5`):
            Lower bound of the threshold.
        threshold_max (`float`, *optional*, defaults to `0.95`):
            Upper bound of the threshold, and what `"fixed"` uses.
        verify (`bool`, *optional*, defaults to `False`):
            Whether `"fixed"` is lossless.

        > Parameters that control the batch

        max_rows (`int`, *optional*, defaults to `16`):
            Answers that decode at once.
        prefill_chunk (`int`, *optional*, defaults to `256`):
            Tokens of prompts to read between two steps.
        kv_memory (`float`, *optional*):
            Gigabytes for keys and values. By default a share of the free memory, see [`KVBudget`].
        enable_prefix_caching (`bool`, *optional*, defaults to `True`):
            Whether a fifth of that memory remembers prompts, so that a chat's next turn, a shared system prompt, or
            the second of `n` answers is not read again.

        > Parameters that limit a request

        max_prompt_tokens (`int`, *optional*):
            Most tokens of a prompt. By default what the model's context holds.
        max_output_tokens (`int`, *optional*, defaults to `1024`):
            Most tokens of an answer, and what a chat's answer gets by default.
        max_n (`int`, *optional*, defaults to `8`):
            Most answers to one request.
        max_body_bytes (`int`, *optional*, defaults to `1_000_000`):
            Most bytes of a request's body.

        allowed_origins (`str`, *optional*, defaults to `"*"`):
            Origins of the pages whose scripts may ask from a browser, with commas between them or as a JSON list:
            `"*"` for all, as vLLM's option of the same name has it by default, `""` for none.

        > Parameters that control what is told

        per_request_spec_decode_metrics (`str`, *optional*, defaults to `"none"`):
            `"summary"`: an answer to a request for one choice tells under `metrics.speculative_decoding` what became
            of its drafts, as vLLM's option of the same name does; a stream tells it beside its usage.

        > Parameters that control the end

        drain_timeout (`float`, *optional*, defaults to `60.0`):
            Seconds that running requests get to finish once the server is told to stop.
    """

    checkpoint: str = field(metadata={"help": "Hub id or directory of a MARS checkpoint."})
    model_name: str | None = field(
        default=None,
        metadata={"help": "The name that requests must give. By default the checkpoint as written."},
    )
    dtype: str = field(
        default="auto",
        metadata={"help": f"Data type of the weights: {', '.join(DTYPES)}."},
    )
    policy: str = field(
        default="lossless",
        metadata={
            "help": "lossless: requests are verified, and each step drafts as far as it pays. adaptive: requests are "
            "lossy, and the load lowers the threshold. fixed: nothing moves.",
            "choices": ["lossless", "adaptive", "fixed"],
        },
    )
    threshold_min: float = field(default=0.5, metadata={"help": "Lower bound of the threshold."})
    threshold_max: float = field(
        default=0.95,
        metadata={"help": "Upper bound of the threshold, and what `fixed` uses."},
    )
    verify: bool = field(default=False, metadata={"help": "Whether `fixed` is lossless."})
    max_rows: int = field(default=16, metadata={"help": "Answers that decode at once."})
    prefill_chunk: int = field(default=256, metadata={"help": "Tokens of prompts to read between two steps."})
    kv_memory: float | None = field(
        default=None,
        metadata={"help": "Gigabytes for keys and values. By default a share of the free memory."},
    )
    enable_prefix_caching: bool = field(
        default=True,
        metadata={"help": "Whether a fifth of that memory remembers prompts, so that no beginning is read twice."},
    )
    max_prompt_tokens: int | None = field(
        default=None,
        metadata={"help": "Most tokens of a prompt. By default what the model's context holds."},
    )
    max_output_tokens: int = field(
        default=1024,
        metadata={"help": "Most tokens of an answer, and what a chat's answer gets by default."},
    )
    max_n: int = field(default=8, metadata={"help": "Most answers to one request."})
    max_body_bytes: int = field(default=1_000_000, metadata={"help": "Most bytes of a request's body."})
    allowed_origins: str = field(
        default="*",
        metadata={
            "help": "Origins of the pages whose scripts may ask from a browser, such as https://example.org, with "
            "commas between them or as a JSON list; * for all."
        },
    )
    per_request_spec_decode_metrics: str = field(
        default="none",
        metadata={
            "help": "summary: answers tell under metrics.speculative_decoding what became of their drafts.",
            "choices": ["none", "summary"],
        },
    )
    drain_timeout: float = field(
        default=60.0,
        metadata={"help": "Seconds that running requests get to finish once the server is told to stop."},
    )

    def __post_init__(self):
        check_types(self)
        if self.dtype not in DTYPES:
            raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")
        self.make_policy()  # which checks its own
        check_positive(self, "max_rows", "prefill_chunk", "kv_memory")
        check_positive(self, "max_prompt_tokens", "max_output_tokens", "max_n", "max_body_bytes")
        read_origins(self.allowed_origins)
        if not 0 <= self.drain_timeout < math.inf:
            raise ValueError(f"`drain_timeout` must be a number of seconds, got {self.drain_timeout}.")

    @property
    def served_model_name(self) -> str:
        """The name that requests must give."""
        return self.model_name or self.checkpoint

    def make_policy(self) -> ThresholdPolicy:
        """
        The policy of one scheduler.

        Raises:
            `ValueError`: If its options are out of range.
        """
        return ThresholdPolicy(self.policy, self.threshold_min, self.threshold_max, self.verify)

    def make_scheduler(self, model: PreTrainedModel, max_queue: int) -> Scheduler:
        """
        A scheduler, which starts at once.

        Args:
            model ([`PreTrainedModel`]): A MARS model, in evaluation mode.
            max_queue (`int`): Requests that may wait.

        Raises:
            `ValueError`: If `kv_memory` is too small for the model.
        """
        budget = KVBudget(model, self.kv_memory)
        return Scheduler(
            model,
            self.make_policy(),
            budget,
            max_rows=self.max_rows,
            max_queue=max_queue,
            prefill_chunk=self.prefill_chunk,
            enable_prefix_caching=self.enable_prefix_caching,
        )


@dataclass
class ServerConfig(ServingConfig):
    r"""
    Options of `hf-mars serve`: those of [`ServingConfig`], and those of a server of one process.

    Parameters:
        device (`str`, *optional*):
            Where the model runs. By default `"cuda"` where there is one, else `"cpu"`.
        host (`str`, *optional*, defaults to `"127.0.0.1"`):
            Address to listen on.
        port (`int`, *optional*, defaults to `8000`):
            Port to listen on.
        max_queue (`int`, *optional*, defaults to `64`):
            Answers that may wait; a request for more gets a 429.
        admin_token (`str`, *optional*):
            Bearer token of `/admin/threshold`. By default the environment variable `MARS_ADMIN_TOKEN`; without one
            the endpoint answers to this machine alone.
        request_log (`str`, *optional*):
            File that gets one JSON line for each request.
    """

    device: str = field(
        default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu",
        metadata={"help": "Where the model runs."},
    )
    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on."})
    port: int = field(default=8000, metadata={"help": "Port to listen on."})
    max_queue: int = field(
        default=64,
        metadata={"help": "Answers that may wait; a request for more gets a 429."},
    )
    admin_token: str | None = field(
        default=None,
        repr=False,
        metadata={
            "help": "Bearer token of /admin/threshold. By default the environment variable MARS_ADMIN_TOKEN; without "
            "one the endpoint answers to this machine alone."
        },
    )
    request_log: str | None = field(
        default=None,
        metadata={"help": "File that gets one JSON line for each request."},
    )

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "max_queue")
        if not 0 < self.port < 65536:
            raise ValueError(f"`port` must be between 1 and 65535, got {self.port}.")
        if self.admin_token is None:
            self.admin_token = os.environ.get("MARS_ADMIN_TOKEN")
