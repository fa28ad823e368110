"""
Losses of gated training against each other: the same budget, the same seeds, the same own answers, and how many tokens
a forward would add on answers that are held out.

```bash
hf-mars regenerate --output runs/answers
python benchmarks/mask_losses.py --answers runs/answers --steps 150
```

Every run is written as soon as it is done; the same command after an interruption goes on with the next one.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from record import recorded_options

from hf_mars import MARSConfig, MARSTrainer
from hf_mars.cli.smollm2 import load_smollm2
from hf_mars.evaluation import describe_environment
from hf_mars.evaluation.journal import Journal
from hf_mars.native_dtype import has_native_bfloat16
from hf_mars.training.mask_losses import MASK_LOSSES


COLUMNS = {
    "verified": "eval_expected_tokens_per_forward/verified",
    "sampled": "eval_expected_tokens_per_forward/sampled",
    "agreement at 1": "eval_mask_accuracy/1",
    "at 2": "eval_mask_accuracy/2",
    "at 3": "eval_mask_accuracy/3",
    "overlap at 1": "eval_mask_overlap/1",
}


def train(options: argparse.Namespace, mask_loss: str, seed: int, data: dict[str, Dataset]) -> dict[str, float]:
    """Metrics on the held-out answers after one run, and its seconds a step."""
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    bf16 = has_native_bfloat16(device)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = MARSTrainer(
            options.model or str(load_smollm2()),
            MARSConfig(
                folder,
                mask_gated=True,
                mask_loss=mask_loss,
                mask_phases=options.phases,
                mask_token=options.mask_token,
                per_device_train_batch_size=options.batch_size,
                per_device_eval_batch_size=options.batch_size,
                learning_rate=options.learning_rate,
                lr_scheduler_type="cosine",
                warmup_steps=min(10, options.steps),
                max_steps=options.steps,
                bf16=bf16,
                use_cpu=device.type == "cpu",
                gradient_checkpointing=False,
                eval_thresholds=[],
                logging_steps=options.logging_steps,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                seed=seed,
                model_init_kwargs={"dtype": "bfloat16" if bf16 else "float32"},
            ),
            train_dataset=data["train"],
            eval_dataset=data["test"],
            peft_config=LoraConfig(r=options.rank, lora_alpha=options.alpha, target_modules="all-linear"),
        )
        start = time.perf_counter()
        trainer.train()
        seconds = (time.perf_counter() - start) / options.steps
        trainer.evaluate()
    metrics = next(entry for entry in reversed(trainer.state.log_history) if "eval_mask_loss" in entry)
    return {**{name: value for name, value in metrics.items() if name.startswith("eval_")}, "seconds": seconds}


def print_table(results: dict[str, list[dict[str, float]]]) -> None:
    """One line a loss: means over the seeds, and between which values the first column lay."""
    print(f"\n| loss | {' | '.join(COLUMNS)} | between | s a step |\n| --- |" + " ---: |" * (len(COLUMNS) + 2))
    for mask_loss, runs in results.items():
        means = [statistics.mean(run[name] for run in runs) for name in COLUMNS.values()]
        values = [run[COLUMNS["verified"]] for run in runs]
        seconds = statistics.mean(run["seconds"] for run in runs)
        print(
            f"| {mask_loss} | {' | '.join(f'{mean:.3f}' for mean in means)} "
            f"| {min(values):.3f} to {max(values):.3f} | {seconds:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="local path or Hub id; default: SmolLM2-135M-Instruct from a package index")
    parser.add_argument("--answers", required=True, help="own answers of that model, from `hf-mars regenerate`")
    parser.add_argument("--held-out", type=int, default=64, help="answers that are not trained on")
    parser.add_argument("--losses", nargs="+", choices=MASK_LOSSES, default=list(MASK_LOSSES), metavar="LOSS")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--phases", type=int, default=2)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--alpha", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--mask-token", default="<empty_output>")
    parser.add_argument("--logging-steps", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "mask_losses.jsonl")
    options = parser.parse_args()

    answers = load_dataset(options.answers, split="train").shuffle(seed=0)
    held_out = range(options.held_out)
    data = {"test": answers.select(held_out), "train": answers.select(range(options.held_out, len(answers)))}
    settings = {
        name: value
        for name, value in recorded_options(options).items()
        if name not in ("losses", "seeds", "output", "logging_steps")
    }
    journal = Journal(options.output, {**settings, "num_answers": len(answers), **describe_environment()})
    results: dict[str, list[dict[str, float]]] = {}
    for seed in options.seeds:
        for mask_loss in options.losses:
            key = f"{mask_loss}, seed {seed}"
            if journal.get(key) is None:
                journal.add(key, train(options, mask_loss, seed, data))
            results.setdefault(mask_loss, []).append(journal.get(key))
            print(f"{key}: {journal.get(key)[COLUMNS['verified']]:.3f} tokens/forward, verified", flush=True)
    print_table(results)


if __name__ == "__main__":
    main()
