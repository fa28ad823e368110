"""
Cost of training: a step of MARS, of all weights and of a gated adapter, against a step of plain supervised fine-tuning
on the same batches.

```bash
python benchmarks/training.py --model path/to/SmolLM2-135M-Instruct
```

Each method runs in a process of its own, so that its peak memory is its own; the steps of one share of prompt tokens
run one after the other, and the time of a step is the median. With `--processor-time` it is the time that the
processor spent, which other processes on the machine disturb less.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset
from record import describe_run
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from hf_mars import MARSConfig, MARSTrainer


METHODS = {
    "AR SFT": {},
    "MARS": {"noisy_ratio": 1.0},
    "MARS, half of the blocks": {"noisy_ratio": 0.5},
    "gated MARS, one tiling": {"mask_gated": True, "mask_phases": 1},
    "gated MARS, two tilings": {"mask_gated": True, "mask_phases": 2},
}


def make_dataset(length: int, prompt_share: float, size: int, vocab_size: int) -> Dataset:
    """Random tokens, of which the given share is prompt."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(size):
        input_ids = torch.randint(100, vocab_size, (length,), generator=generator).tolist()
        prompt = round(length * prompt_share)
        rows.append({"input_ids": input_ids, "labels": [-100] * prompt + input_ids[prompt:]})
    return Dataset.from_list(rows)


def run_method(options: argparse.Namespace) -> None:
    """Measure one method and print the result as JSON."""
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    settings = METHODS[options.method]
    # Weights that learn are kept in float32; those of a gated base need not be, if the products are in bfloat16.
    is_frozen = settings.get("mask_gated", False)
    dtype = torch.bfloat16 if options.bf16 and is_frozen else torch.float32
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
    dataset = make_dataset(options.length, options.prompt_share, options.batch_size, 40_000)
    arguments = {
        "per_device_train_batch_size": options.batch_size,
        "bf16": options.bf16,
        "use_cpu": not torch.accelerator.is_available(),
        "gradient_checkpointing": options.gradient_checkpointing,
        "report_to": "none",
        "max_length": None,
    }
    with tempfile.TemporaryDirectory() as folder:
        if settings:
            args = MARSConfig(folder, mask_token=options.mask_token, **settings, **arguments)
            trainer = MARSTrainer(model, args, train_dataset=dataset, processing_class=tokenizer)
        else:
            trainer = SFTTrainer(
                model, SFTConfig(folder, **arguments), train_dataset=dataset, processing_class=tokenizer
            )
        batch = next(iter(trainer.get_train_dataloader()))
        learning = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learning, lr=1e-6)
        clock = time.process_time if options.processor_time else time.perf_counter
        num_items = (batch["labels"][:, 1:] != -100).sum()
        seconds = []
        for _ in range(options.steps + 1):
            started = clock()
            trainer.model.train()
            trainer.training_step(trainer.model, dict(batch), num_items_in_batch=num_items)
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(clock() - started)
    # The first step allocates the optimizer's state.
    result = {"seconds": statistics.median(seconds[1:]), "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    print("result", json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="local path or Hub id")
    parser.add_argument("--mask-token", default="<empty_output>")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--prompt-shares", type=float, nargs="+", default=[0.2, 0.5, 0.8])
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="matrix products in bfloat16")
    parser.add_argument("--processor-time", action="store_true", help="the processor's time instead of the clock's")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "training.json")
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--prompt-share", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.method:
        run_method(options)
        return

    results = []
    print("| prompt share | method | step, s | time over AR SFT | peak memory, GB | memory over AR SFT |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for prompt_share in options.prompt_shares:
        reference = None
        for method in options.methods:
            command = [
                sys.executable,
                __file__,
                *sys.argv[1:],
                "--method",
                method,
                "--prompt-share",
                str(prompt_share),
            ]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            line = next(line for line in output.splitlines() if line.startswith("result "))
            result = {"prompt_share": prompt_share, "method": method, **json.loads(line.removeprefix("result "))}
            reference = reference or result
            results.append(result)
            time_ratio = result["seconds"] / reference["seconds"]
            memory_ratio = result["memory"] / reference["memory"]
            print(
                f"| {prompt_share} | {method} | {result['seconds']:.2f} | {time_ratio:.2f} "
                f"| {result['memory'] / 1e6:.2f} | {memory_ratio:.2f} |",
                flush=True,
            )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    record = {"environment": describe_run(options), "results": results}
    options.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
