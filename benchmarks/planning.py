"""
Is planned verified decoding never slower than plain decoding, and as fast as the best fixed setting?

For each task and batch size the ways decode the same prompts in turns, in one run, so that what else the machine does
meets all of them. A ratio is the time of plain generation over that of a way, on the same prompts in the same turn.
The table has the median of the ratios, their quartiles, tokens a forward, and how many texts are those of plain
generation. The ways:

- `fixed T`: `mars_verify=True` with a threshold, as wide as the block at every step.
- `planned`: `mars_verify=True` alone.
- `no groups`: planned, masks only after one number of drafts.
- `no costs`: planned by the first guess of what a step costs.
- `no confidences`: planned by how often drafts hold on the whole, whatever their confidence.

```bash
python benchmarks/planning.py runs/quickstart/checkpoint --output planning.json
```
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from record import describe_run
from transformers import GenerationMixin

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.decoding.draft_forecast import HoldRates
from hf_mars.decoding.planner import Experience, Planner, get_experience
from hf_mars.decoding.step_costs import StepCosts
from hf_mars.evaluation.sweep import tokenize
from hf_mars.evaluation.tasks import load_task


class FirstGuess(StepCosts):
    """Costs that are never learned."""

    def observe(self, *args) -> None:
        pass


class OneRate(HoldRates):
    """All drafts hold equally often."""

    def estimate(self, confidences: np.ndarray, is_sampled: np.ndarray) -> np.ndarray:
        return super().estimate(np.full_like(confidences, 0.5), is_sampled)

    def observe(self, confidences: np.ndarray, *args) -> None:
        super().observe(np.full_like(confidences, 0.5), *args)


def make_ways(model) -> dict[str, tuple[dict, dict]]:
    """Arguments of `generate`, and of the planner, by name."""
    shared = get_experience(model)
    return {
        "fixed 0.5": ({"mars_threshold": 0.5}, {}),
        "fixed 0.9": ({"mars_threshold": 0.9}, {}),
        "planned": ({}, {}),
        "no groups": ({}, {"experience": replace(Experience(), costs=shared.costs), "max_groups": 1}),
        "no costs": ({}, {"experience": Experience(costs=FirstGuess())}),
        "no confidences": ({}, {"experience": replace(Experience(rates=OneRate()), costs=shared.costs)}),
    }


def generate(model, inputs, way, max_new_tokens: int):
    """Sequences, seconds and tokens a forward."""
    start = time.perf_counter()
    if way is None:
        sequences = GenerationMixin.generate(model, **inputs, do_sample=False, max_new_tokens=max_new_tokens)
        return sequences, time.perf_counter() - start, 1.0
    arguments, planner = way
    with patch("hf_mars.decoding.decoder.Planner", lambda model: Planner(model, **planner)):
        output = model.generate(
            **inputs,
            **arguments,
            mars_verify=True,
            do_sample=False,
            max_new_tokens=max_new_tokens,
            return_dict_in_generate=True,
        )
    return output.sequences, time.perf_counter() - start, output.tokens_per_forward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument(
        "--tasks", nargs="+", default=["word_problems", "gsm8k", "humaneval", "ifeval", "gsm_symbolic"]
    )
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--limit", type=int, default=24, help="prompts of each task")
    parser.add_argument("--limit-single", type=int, default=24, help="of them at batch size 1")
    parser.add_argument("--turns", type=int, default=1, help="times that each batch is decoded")
    parser.add_argument("--ways", nargs="+", help="by default all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    ways = {name: way for name, way in make_ways(model).items() if options.ways is None or name in options.ways}
    record = {"environment": describe_run(options, model), "pairs": []}
    for batch_size in options.batch_sizes:
        for task in options.tasks:
            prompts = load_task(task, options.limit_single if batch_size == 1 else options.limit).prompts
            for start in [*range(0, len(prompts), batch_size)] * options.turns:
                inputs = tokenize(tokenizer, prompts[start : start + batch_size]).to(model.device)
                expected, seconds, _ = generate(model, inputs, None, options.max_new_tokens)
                pair = {"task": task, "batch_size": batch_size, "rows": len(expected), "plain": seconds, "ways": {}}
                for name, way in ways.items():
                    sequences, seconds, tokens_per_forward = generate(model, inputs, way, options.max_new_tokens)
                    same = sum(a == b for a, b in zip(sequences.tolist(), expected.tolist(), strict=True))
                    pair["ways"][name] = [seconds, tokens_per_forward, same]
                record["pairs"].append(pair)
                options.output.write_text(json.dumps(record, indent=1) + "\n")
            print_table([p for p in record["pairs"] if (p["task"], p["batch_size"]) == (task, batch_size)])


def print_table(pairs: list[dict]) -> None:
    """One line a way."""
    for name in pairs[0]["ways"]:
        seconds, tokens_per_forward, same = zip(*(pair["ways"][name] for pair in pairs), strict=True)
        ratios = [pair["plain"] / time for pair, time in zip(pairs, seconds, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        print(
            f"| {pairs[0]['task']} | {pairs[0]['batch_size']} | {name} | {statistics.median(ratios):.2f} "
            f"({low:.2f} to {high:.2f}) | {statistics.mean(tokens_per_forward):.2f} | "
            f"{sum(same)} of {sum(pair['rows'] for pair in pairs)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
