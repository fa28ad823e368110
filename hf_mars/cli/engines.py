"""`hf-mars engines`: how another engine serves a checkpoint."""

import argparse
from typing import Any

from transformers import PreTrainedConfig
from transformers.utils.peft_utils import find_adapter_config_file

from ..engines import vllm_command, vllm_drafter_command
from ..missing_paths import check_model_path
from ..one_line import one_line
from .errors import one_line_errors


__all__ = ["add_parser", "run_vllm"]


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser("engines", help=help)
    engines = parser.add_subparsers(required=True, metavar="engine")
    vllm = engines.add_parser(
        "vllm",
        help="vLLM, with the distribution hf-mars-vllm",
        description="Prints the command that serves a checkpoint with vLLM. Arguments of vLLM go behind it.",
    )
    vllm.add_argument("checkpoint", help="local path or Hub id of a MARS checkpoint")
    vllm.add_argument(
        "--draft-for",
        metavar="MODEL",
        help="serve this model, of the same vocabulary, with the checkpoint as its parallel drafter",
    )
    vllm.set_defaults(run=run_vllm)


def run_vllm(options: argparse.Namespace) -> None:
    """Print one line."""
    with one_line_errors("hf-mars engines vllm"):
        values = read_config(options.checkpoint)
        if options.draft_for is not None:
            check_model_path(options.draft_for, "--draft-for")
        block_size = values["mars"]["block_size"]
        if options.draft_for is None:
            command = vllm_command(options.checkpoint, block_size)
        elif values.get("pard_token") != values["mars"]["mask_token_id"]:
            raise ValueError(
                f"config.json of {options.checkpoint!r} has no `pard_token`, by which vLLM knows the mask token: load "
                "the checkpoint and save it again with `hf_mars.save_pretrained`."
            )
        else:
            command = vllm_drafter_command(options.checkpoint, block_size, options.draft_for)
    print(command)


def read_config(checkpoint: str) -> dict[str, Any]:
    """
    The values of a checkpoint's config.json.

    Raises:
        `OSError`: If there is none.
        `ValueError`: If it is no MARS checkpoint that an engine can serve.
    """
    check_model_path(checkpoint, "checkpoint")
    if find_adapter_config_file(checkpoint) is not None:
        raise ValueError(
            f"{checkpoint!r} is an adapter: merge it into its base model with `model.merge_and_unload()` and save "
            "that with `hf_mars.save_pretrained`."
        )
    try:
        values, _ = PreTrainedConfig.get_config_dict(checkpoint)
    except OSError as error:
        raise OSError(f"The checkpoint {checkpoint!r} could not be loaded: {one_line(error)}") from error
    if not values.get("mars"):
        raise ValueError(f"{checkpoint!r} is no MARS checkpoint: its configuration has no `mars` entry.")
    return values
