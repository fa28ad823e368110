"""`hf-mars sft`: TRL's command line for supervised fine-tuning, with [`MARSTrainer`]."""

import sys
from pathlib import Path
from typing import Any

from trl import (
    DatasetMixtureConfig,
    ModelConfig,
    ScriptArguments,
    get_peft_config,
    get_quantization_config,
)

from ..missing_paths import check_model_path
from ..training import MARSConfig, MARSTrainer
from .config_file import ConfigParser
from .data import load_any_dataset, load_mixture, select_split
from .errors import one_line_errors


__all__ = ["build_trainer", "main", "train"]

FLAGS = ("true", "false")


def main(arguments: list[str] | None = None) -> None:
    """Parse the arguments of TRL's `sft.py`, with those of [`MARSConfig`], and train."""
    parser = ConfigParser((ScriptArguments, MARSConfig, ModelConfig, DatasetMixtureConfig), prog="hf-mars sft")
    with one_line_errors("hf-mars sft"):
        parsed = parser.parse_args_and_config(sys.argv[1:] if arguments is None else arguments)
        trainer = build_trainer(*parsed)
    script_args, *_ = parsed
    train(trainer, script_args.dataset_name)


def build_trainer(
    script_args: ScriptArguments,
    training_args: MARSConfig,
    model_args: ModelConfig,
    dataset_args: DatasetMixtureConfig,
) -> MARSTrainer:
    """
    Load what is needed.

    Args:
        script_args ([`~trl.ScriptArguments`]): Data set and splits.
        training_args ([`MARSConfig`]): The run.
        model_args ([`~trl.ModelConfig`]): Model, quantisation and adapter.
        dataset_args ([`~trl.DatasetMixtureConfig`]): Several data sets instead of one.

    Raises:
        `ValueError`: If an argument does not fit, or names what is not there.
    """
    if not model_args.model_name_or_path:
        raise ValueError("`model_name_or_path` is missing: name the model to fine-tune.")
    check_model_path(model_args.model_name_or_path, "model_name_or_path")
    if training_args.output_dir and Path(training_args.output_dir).is_file():
        raise ValueError(f"`output_dir` is {training_args.output_dir!r}, a file: name a directory.")
    resume = training_args.resume_from_checkpoint
    if isinstance(resume, str) and resume.lower() not in FLAGS and not Path(resume).is_dir():
        raise ValueError(f"`resume_from_checkpoint` is {resume!r}, which is no directory.")
    given: Any = training_args.model_init_kwargs or {}  # a mapping: what was JSON is parsed by now
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "trust_remote_code": training_args.trust_remote_code,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **given,
    }
    if dataset_args.datasets:
        dataset = load_mixture(dataset_args)
    elif script_args.dataset_name:
        dataset = load_any_dataset(
            script_args.dataset_name,
            script_args.dataset_config,
            streaming=script_args.dataset_streaming,
            argument="dataset_name",
        )
    else:
        raise ValueError("Either `datasets` or `dataset_name` must be provided.")
    eval_dataset = None
    if training_args.eval_strategy != "no":
        eval_dataset = select_split(dataset, script_args.dataset_test_split, "dataset_test_split")
    train_dataset = select_split(dataset, script_args.dataset_train_split, "dataset_train_split")
    try:
        return MARSTrainer(
            model=model_args.model_name_or_path,
            args=training_args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            quantization_config=get_quantization_config(model_args),
            peft_config=get_peft_config(model_args),
        )
    except KeyError as error:  # TRL reads columns without looking whether they are there
        columns = ", ".join(train_dataset.column_names or ["none that are known before they are read"])
        raise ValueError(
            f"The data set has no column {error}. It needs `messages`, `prompt` and `completion`, or the text that "
            f"`dataset_text_field` names, and has {columns}."
        ) from error


def train(trainer: MARSTrainer, dataset_name: str | None) -> None:
    """
    Train, save, and push if asked to.

    Args:
        trainer ([`MARSTrainer`]): What trains.
        dataset_name (`str`, *optional*): The data set, for the model card.
    """
    resume = trainer.args.resume_from_checkpoint
    is_flag = isinstance(resume, str) and resume.lower() in FLAGS
    trainer.train(resume_from_checkpoint=resume.lower() == "true" if is_flag else resume)
    trainer.save_model(trainer.args.output_dir)
    trainer.accelerator.print(f"Saved to {trainer.args.output_dir}.")
    if trainer.args.push_to_hub:
        trainer.push_to_hub(dataset_name=dataset_name)
