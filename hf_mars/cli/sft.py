"""`hf-mars sft`: TRL's command line for supervised fine-tuning, with [`MARSTrainer`]."""

from trl import (
    DatasetMixtureConfig,
    ModelConfig,
    ScriptArguments,
    TrlParser,
    get_dataset,
    get_peft_config,
    get_quantization_config,
)

from ..training import MARSConfig, MARSTrainer
from .data import load_any_dataset


__all__ = ["main", "train"]


def main(arguments: list[str] | None = None) -> None:
    """Parse the arguments of TRL's `sft.py`, with those of [`MARSConfig`], and train."""
    parser = TrlParser((ScriptArguments, MARSConfig, ModelConfig, DatasetMixtureConfig), prog="hf-mars sft")
    train(*parser.parse_args_and_config(arguments, fail_with_unknown_args=True))


def train(
    script_args: ScriptArguments,
    training_args: MARSConfig,
    model_args: ModelConfig,
    dataset_args: DatasetMixtureConfig,
) -> MARSTrainer:
    """
    Train, save, and push if asked to.

    Args:
        script_args ([`~trl.ScriptArguments`]): Data set and splits.
        training_args ([`MARSConfig`]): The run.
        model_args ([`~trl.ModelConfig`]): Model, quantisation and adapter.
        dataset_args ([`~trl.DatasetMixtureConfig`]): Several data sets instead of one.
    """
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "trust_remote_code": training_args.trust_remote_code,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    if dataset_args.datasets:
        dataset = get_dataset(dataset_args)
    elif script_args.dataset_name:
        dataset = load_any_dataset(
            script_args.dataset_name, script_args.dataset_config, streaming=script_args.dataset_streaming
        )
    else:
        raise ValueError("Either `datasets` or `dataset_name` must be provided.")
    has_eval = training_args.eval_strategy != "no"

    trainer = MARSTrainer(
        model=model_args.model_name_or_path,
        args=training_args,
        train_dataset=dataset[script_args.dataset_train_split],
        eval_dataset=dataset[script_args.dataset_test_split] if has_eval else None,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
    )
    resume = training_args.resume_from_checkpoint
    is_flag = isinstance(resume, str) and resume.lower() in ("true", "false")
    trainer.train(resume_from_checkpoint=resume.lower() == "true" if is_flag else resume)
    trainer.save_model(training_args.output_dir)
    trainer.accelerator.print(f"Saved to {training_args.output_dir}.")
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)
    return trainer
