"""
How often verified output is that of plain decoding in float32, bfloat16 and float16, and where they first differ.

In float32 they agree. In the short formats a forward of several columns rounds differently from one of a single one,
and two tokens with nearly the same score can change places.

```bash
python benchmarks/precision.py runs/quickstart/checkpoint --limit 32
```
"""

import argparse
import json
import statistics
from pathlib import Path

from tqdm.auto import tqdm

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.decoding import Mode
from hf_mars.evaluation import Method, describe_environment
from hf_mars.evaluation.clock import ForwardClock
from hf_mars.evaluation.methods import decode
from hf_mars.evaluation.sweep import tokenize
from hf_mars.evaluation.tasks import TASKS, load_task


def first_difference(left: list[int], right: list[int]) -> int | None:
    """Position of the first token in which two outputs differ, if any."""
    if left == right:
        return None
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--task", default="word_problems", help=", ".join(TASKS))
    parser.add_argument("--limit", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threshold", type=float, default=0.5)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "float16"])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "precision.json")
    options = parser.parse_args()

    prompts = load_task(options.task, options.limit).prompts
    record = {"environment": describe_environment(options.device), "task": options.task, "results": []}
    print("| dtype | identical to AR | first difference, median token |\n| --- | ---: | ---: |")
    for dtype in options.dtypes:
        model, tokenizer = load_checkpoint(options.checkpoint, dtype, options.device)
        differences, total = [], 0
        for start in tqdm(range(0, len(prompts), options.batch_size), desc=dtype, disable=None):
            inputs = tokenize(tokenizer, prompts[start : start + options.batch_size]).to(model.device)
            rows = []
            for method in (Method(Mode.PLAIN), Method(Mode.VERIFY, options.threshold)):
                with ForwardClock(model) as clock:
                    rows.append(decode(model, inputs, method, options.max_new_tokens, clock).tokens)
            for plain, verified in zip(*rows, strict=True):
                total += 1
                position = first_difference(plain, verified)
                differences += [] if position is None else [position]
        share = 1 - len(differences) / total
        median = statistics.median(differences) if differences else None
        record["results"].append({"dtype": dtype, "identical": share, "first_differences": differences})
        print(f"| {dtype} | {share:.0%} | {'' if median is None else median} |", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
