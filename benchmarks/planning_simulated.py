"""
Planned steps on a simulated clock: the model decodes for real, and each forward takes the time that a table gives for
its rows and columns, so that what else the machine does changes nothing.

It finds out what a rule of the planner is worth where [`planning.py`](planning.py) drowns in noise; only that one says
how fast a machine is. `--measure` makes the table first, with nothing else running.

```bash
python benchmarks/planning_simulated.py runs/quickstart/checkpoint --costs costs.json --measure
python benchmarks/planning_simulated.py runs/quickstart/checkpoint --costs costs.json --output simulated.json
```
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from unittest.mock import patch

import torch
from planning import generate, make_ways
from record import describe_run
from transformers import DynamicCache

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.decoding.gated_adapter import get_gated_adapter
from hf_mars.evaluation.sweep import tokenize
from hf_mars.evaluation.tasks import load_task


ROWS, COLUMNS = (1, 2, 4, 8, 16), range(1, 17)
LENGTH = 160  # tokens in the cache


class SimulatedClock:
    """
    Stands in for the module `time`, and is a hook before each forward that moves it on.

    Args:
        costs (`dict[int, list[float]]`): Seconds of a forward of 1, 2, ... columns, by rows.
        spread (`float`): Standard deviation of the logarithm of a time, as machines are shared.
    """

    def __init__(self, costs: dict[int, list[float]], spread: float):
        self._costs, self._spread, self._now = costs, spread, 0.0
        self._random = random.Random(0)

    def perf_counter(self) -> float:
        return self._now

    def __call__(self, module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        rows, columns = kwargs["input_ids"].shape
        known = min(columns, len(COLUMNS))  # beyond, which is prompts, by the last one
        self._now += self._get_cost(rows, known) * columns / known * self._random.lognormvariate(0, self._spread)

    def _get_cost(self, rows: int, columns: int) -> float:
        """Between the numbers of rows that were measured, a line."""
        low = max(known for known in self._costs if known <= rows)
        high = min((known for known in self._costs if known >= rows), default=low)
        share = (rows - low) / (high - low) if high > low else 0.0
        return (1 - share) * self._costs[low][columns - 1] + share * self._costs[high][columns - 1]


def measure(model, rounds: int = 7) -> dict[int, list[float]]:
    """Median seconds of a forward, by rows and columns; the last half of the columns are masks to an adapter."""
    adapter = get_gated_adapter(model)
    costs = {}
    for rows in ROWS:
        times: list[list[float]] = [[] for _ in COLUMNS]
        cache = DynamicCache(config=model.config)
        with torch.inference_mode(), adapter.attached():
            model(input_ids=torch.randint(1000, (rows, LENGTH)), cache=cache, logits_to_keep=1)
            for _ in range(rounds):
                for columns in COLUMNS:  # in turns, so that a slow minute meets all of them
                    start = time.perf_counter()
                    with adapter.acting_on((columns - 1) // 2):
                        model(input_ids=torch.randint(1000, (rows, columns)), cache=cache)
                    times[columns - 1].append(time.perf_counter() - start)
                    cache.crop(-columns)
        costs[rows] = [statistics.median(each) for each in times]
        print(rows, " ".join(f"{1000 * seconds:.0f}" for seconds in costs[rows]), "ms", flush=True)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--costs", type=Path, required=True, help="the table of times")
    parser.add_argument("--measure", action="store_true", help="make it, and do nothing else")
    parser.add_argument("--tasks", nargs="+", default=["word_problems", "gsm8k", "ifeval", "gsm_symbolic"])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8])
    parser.add_argument("--limit", type=int, default=24, help="prompts of each task")
    parser.add_argument("--ways", nargs="+", default=["fixed 0.5", "planned", "no groups"])
    parser.add_argument("--spread", type=float, default=0.1, help="of the logarithm of a time")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    if options.measure:
        options.costs.write_text(json.dumps(measure(model)) + "\n")
        return

    costs = {int(rows): times for rows, times in json.loads(options.costs.read_text()).items()}
    record = {"environment": describe_run(options, model), "costs": costs, "batches": []}
    for batch_size in options.batch_sizes:
        for task in options.tasks:
            known_ways, prompts = make_ways(model), load_task(task, options.limit).prompts
            ways = {"plain": None, **{name: known_ways[name] for name in options.ways}}
            seconds = dict.fromkeys(ways, 0.0)
            for start in range(0, options.limit, batch_size):
                inputs = tokenize(tokenizer, prompts[start : start + batch_size]).to(model.device)
                for name, way in ways.items():
                    clock = SimulatedClock(costs, options.spread)
                    tokens_per_forward = count_tokens(model, inputs, way, clock, options.max_new_tokens)
                    seconds[name] += clock.perf_counter()
                    record["batches"].append([task, batch_size, name, clock.perf_counter(), tokens_per_forward])
            line = ", ".join(f"{name} {seconds['plain'] / seconds[name]:.3f}" for name in options.ways)
            print(f"{task}, batch {batch_size}: {line}", flush=True)
            if options.output is not None:
                options.output.write_text(json.dumps(record, indent=1) + "\n")


def count_tokens(model, inputs, way, clock: SimulatedClock, max_new_tokens: int) -> float:
    """Decode with the clock; tokens a forward."""
    hook = model.register_forward_pre_hook(clock, with_kwargs=True)
    try:
        with patch("hf_mars.decoding.decoder.time", clock):
            _, _, tokens_per_forward = generate(model, inputs, way, max_new_tokens)
    finally:
        hook.remove()
    return tokens_per_forward


if __name__ == "__main__":
    main()
