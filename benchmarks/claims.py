"""
The paper's claims in small: one model, the same data and the same clean tokens for every way to train it, and what
each way keeps and gains.

```bash
python benchmarks/data.py --output-dir runs/data
python benchmarks/claims.py --data runs/data --output-dir runs/claims
```

- `quality`: one token a forward. The base model, AR SFT, MARS, and MARS without the AR loss.
- `thresholds`: several. Tokens a forward and accuracy, by threshold and metric.
- `cache`: block-synchronous as in the paper, ours, none, by batch and dtype (`decoding.py`).
- `load`: threshold and throughput as requests come and go (`serving.py`).
- `sampler`: the authors' own beside ours (`authors_sampler.py`); needs `--clone`.
- `base`: the base model on every task.

What is trained or measured is kept at once; the same command after an interruption goes on with the rest.
"""

import argparse
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from claim_arms import ARMS, DEVICE, find_base, load_arm, train_arm
from claim_quality import judge, perplexity_interval, read_answers, share_interval
from datasets import load_dataset
from record import describe_run
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from hf_mars.decoding import Mode
from hf_mars.evaluation import Method
from hf_mars.evaluation.journal import Journal
from hf_mars.evaluation.tasks import TASKS, load_task
from hf_mars.native_dtype import choose_dtype


CLAIMS = ("quality", "thresholds", "cache", "load", "sampler", "base")
THRESHOLDS = {"probability": (0.95, 0.9, 0.7, 0.5), "margin": (0.9, 0.7, 0.5), "entropy": (0.1, 0.3, 0.6)}
BASE = "base"


def measure_quality(options: argparse.Namespace, journal: Journal) -> None:
    """Right answers, perplexity of held-out answers, and agreement with the base model on its own ones."""
    tokenizer = AutoTokenizer.from_pretrained(find_base(options))
    held_out = load_dataset(str(options.data), split="test")
    is_problem = [text[-1]["content"].startswith("First, ") for text in held_out["completion"]]
    parts = {
        "problems": held_out.select([index for index, problem in enumerate(is_problem) if problem]),
        "own": held_out.select([index for index, problem in enumerate(is_problem) if not problem]),
    }
    task = load_task("word_problems", options.num_problems)
    for key, model in models_without("quality", options, journal):
        read = {name: read_answers(model, tokenizer, examples) for name, examples in parts.items()}
        (judged,) = judge(model, tokenizer, task, [Method(Mode.PLAIN)], batch_size=16, max_new_tokens=128)
        journal.add(key, {**read, "is_correct": judged["is_correct"]})

    print(f"\n| trained as | {options.num_problems} word problems right | perplexity of their answers ", end="")
    print("| of the base model's own answers | agrees with the base model |\n| --- | ---: | ---: | ---: | ---: |")
    base = journal.get(f"quality, {BASE}")
    for name in (BASE, *(arm.name for arm in ARMS)):
        runs = [value for key, value in journal.entries.items() if is_of(key, "quality", name)]
        agrees = [
            one == other
            for run in runs
            for mine, theirs in zip(run["own"], base["own"], strict=True)
            for one, other in zip(mine["best"], theirs["best"], strict=True)
        ]
        print(
            f"| {name} | {share_interval([right for run in runs for right in run['is_correct']])} "
            f"| {perplexity_interval([answer for run in runs for answer in run['problems']])} "
            f"| {perplexity_interval([answer for run in runs for answer in run['own']])} "
            f"| {sum(agrees) / len(agrees):.1%} |"
        )


def measure_thresholds(options: argparse.Namespace, journal: Journal) -> None:
    """Tokens a forward and right answers of the MARS models, by threshold and metric."""
    tokenizer = AutoTokenizer.from_pretrained(find_base(options))
    task = load_task("word_problems", options.num_problems)
    methods = [Method(Mode.PLAIN)]
    methods += [Method(Mode.LOSSY, value, metric) for metric, values in THRESHOLDS.items() for value in values]
    for key, model in models_without("thresholds", options, journal):
        judged = judge(model, tokenizer, task, methods, batch_size=16, max_new_tokens=128)
        journal.add(key, {str(method): result for method, result in zip(methods, judged, strict=True)})

    print(
        "\n| trained as | decoding | tokens/forward | right | identical to plain |\n| --- | --- | ---: | ---: | ---: |"
    )
    for arm in ARMS:
        runs = [value for key, value in journal.entries.items() if is_of(key, "thresholds", arm.name)]
        for method in map(str, methods) if runs else ():
            speed = sum(run[method]["tokens_per_forward"] for run in runs) / len(runs)
            right = share_interval([right for run in runs for right in run[method]["is_correct"]])
            identical = sum(run[method]["identical"] for run in runs) / len(runs)
            print(f"| {arm.name} | {method} | {speed:.2f} | {right} | {identical:.0%} |")


def measure_base(options: argparse.Namespace, journal: Journal) -> None:
    """Accuracy of the base model on every task."""
    model, tokenizer = load_base(options), AutoTokenizer.from_pretrained(find_base(options))
    print("\n| task | n | base model, right |\n| --- | ---: | ---: |")
    for name in TASKS:
        key = f"base, {name}"
        task = load_task(name, options.num_base)
        if journal.get(key) is None:
            (judged,) = judge(model, tokenizer, task, [Method(Mode.PLAIN)], batch_size=16, max_new_tokens=256)
            journal.add(key, judged["is_correct"])
        print(f"| {task.name} | {len(task.prompts)} | {share_interval(journal.get(key))} |", flush=True)


def models_without(claim: str, options: argparse.Namespace, journal: Journal) -> Iterator[tuple[str, PreTrainedModel]]:
    """The models of which this was not measured yet, trained where they are not, each with its measurement's key."""
    data = load_dataset(str(options.data), split="train")
    key = f"{claim}, {BASE}"
    if claim == "quality" and journal.get(key) is None:
        yield key, load_base(options)
    for seed in options.seeds:
        for arm in ARMS:
            key = f"{claim}, {arm.name}, seed {seed}"
            if journal.get(key) is not None or (claim == "thresholds" and arm.block_size is None):
                continue
            train_arm(arm, seed, data, options)
            gc.collect()
            print(key, flush=True)
            yield key, load_arm(arm, seed, options)


def is_of(key: str, claim: str, name: str) -> bool:
    """Whether a measurement is one of this model, of any seed."""
    return key == f"{claim}, {name}" or key.startswith(f"{claim}, {name}, seed ")


def load_base(options: argparse.Namespace) -> PreTrainedModel:
    dtype = choose_dtype(options.dtype, DEVICE)
    return AutoModelForCausalLM.from_pretrained(find_base(options), dtype=dtype).to(DEVICE).eval()


def run_scripts(options: argparse.Namespace, claim: str) -> None:
    """Measurements that are scripts of their own, on the MARS model with B 4."""
    arm = next(arm for arm in ARMS if arm.block_size == 4)
    train_arm(arm, options.seeds[0], load_dataset(str(options.data), split="train"), options)
    checkpoint, folder = arm.folder(options.output_dir, options.seeds[0]), options.output_dir
    commands = {
        "cache": [
            ["decoding.py", checkpoint, "--dtype", dtype, "--output", folder / f"decoding_{dtype}.json"]
            for dtype in ("bfloat16", "float32")
        ],
        "load": [["serving.py", checkpoint, "--output-dir", folder / "serving"]],
        "sampler": [
            ["authors_sampler.py", checkpoint, "--dtype", "float32", "--clone", options.clone]
            + ["--output", folder / "authors_sampler.json"]
        ],
    }
    for command in commands[claim]:
        if command[-1].exists():
            print(f"{command[-1]} is there already.")
            continue
        script, *arguments = map(str, command)
        subprocess.run([sys.executable, Path(__file__).with_name(script), *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", nargs="+", choices=CLAIMS, default=[c for c in CLAIMS if c != "sampler"])
    parser.add_argument("--model", help="local path or Hub id; default: SmolLM2-135M-Instruct from a package index")
    parser.add_argument("--mask-token", default="<empty_output>", help="a special token that the data never uses")
    parser.add_argument("--data", type=Path, default=Path("runs/data"), help="made by data.py")
    parser.add_argument("--clone", type=Path, help="a clone of the authors' repository")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--num-problems", type=int, default=100)
    parser.add_argument("--num-base", type=int, default=50, help="examples of each task for the base model")
    parser.add_argument("--dtype", default="auto", help="of decoding")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/claims"))
    options = parser.parse_args()
    if "sampler" in options.claims and options.clone is None:
        parser.error("--claims sampler needs --clone: a clone of https://github.com/Xalp/MARS.")

    settings = describe_run(options)
    for name in ("commit", "threads"):
        settings.pop(name)
    for name in ("claims", "clone", "seeds", "output_dir"):
        settings["options"].pop(name, None)
    journal = Journal(options.output_dir / "claims.jsonl", settings)
    measures = {"quality": measure_quality, "thresholds": measure_thresholds, "base": measure_base}
    for claim in options.claims:
        if claim in measures:
            measures[claim](options, journal)
        else:
            run_scripts(options, claim)


if __name__ == "__main__":
    main()
