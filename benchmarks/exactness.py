"""
How often verified output is that of plain decoding in half precision, what each remedy restores, and what it costs.

In float32 they agree. In bfloat16 a forward of several columns rounds differently from one of a single column, and two
tokens with nearly the same logit can change places. The arms:

- `verify`: `mars_verify=True`.
- `attention`: each deciding column attends alone; linear layers as they are.
- `exact`: `mars_verify="exact"`, the linear layers that need it are computed again as well.

For answers that part it records how far apart the two best logits of plain decoding were there, and for all tokens how
many are that close: what a tie margin would have to decide again.

```bash
python benchmarks/exactness.py runs/quickstart/checkpoint --batch-size 1 --output exactness_1.json
```
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from unittest.mock import patch

import torch
from record import describe_run
from transformers import LogitsProcessorList

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.evaluation.sweep import tokenize
from hf_mars.evaluation.tasks import load_task
from hf_mars.serving.prefix_cache import count_common


ARMS = {"verify": True, "attention": "exact", "exact": "exact"}
CLOSE = (0.0, 0.0625, 0.125, 0.25, 0.5)  # steps of bfloat16 at the size of a logit


class GapRecorder:
    """A logits processor that changes nothing: how far the best logit is above the second, for each token and row."""

    def __init__(self):
        self.gaps = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        best = scores.topk(2).values
        self.gaps.append((best[:, 0] - best[:, 1]).tolist())
        return scores


def generate(model, inputs, **arguments) -> tuple[list[list[int]], float, int]:
    """Generated tokens of each row, seconds, and forward passes."""
    start = time.perf_counter()
    output = model.generate(**inputs, do_sample=False, return_dict_in_generate=True, **arguments)
    seconds = time.perf_counter() - start
    rows = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    lengths = [sum(row) for row in output.acceptance_lengths]
    return [row[:length] for row, length in zip(rows, lengths, strict=True)], seconds, output.num_forward_passes


def run_arm(model, inputs, name: str, **arguments):
    """Verified decoding with the remedy of that name."""
    if name != "attention":
        return generate(model, inputs, mars_verify=ARMS[name], **arguments)
    with patch("hf_mars.decoding.exact.find_uneven", lambda *args: []):
        return generate(model, inputs, mars_verify="exact", **arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--tasks", nargs="+", default=["word_problems", "gsm8k", "humaneval", "ifeval"])
    parser.add_argument("--limit", type=int, default=50, help="prompts of each task")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--threshold", type=float, default=0.5)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    limit = {"max_new_tokens": options.max_new_tokens}
    record = {"environment": describe_run(options, model), "batches": []}
    is_warm = False
    for task in options.tasks:
        prompts = load_task(task, options.limit).prompts
        for start in range(0, len(prompts), options.batch_size):
            inputs = tokenize(tokenizer, prompts[start : start + options.batch_size]).to(model.device)
            if not is_warm:
                run_arm(model, inputs, options.arms[-1], **limit)
                is_warm = True
            recorder = GapRecorder()
            plain, seconds, _ = generate(
                model, inputs, mars_threshold=1.0, logits_processor=LogitsProcessorList([recorder]), **limit
            )
            gaps = [[step[row] for step in recorder.gaps[: len(tokens)]] for row, tokens in enumerate(plain)]
            batch = {"task": task, "rows": len(plain), "tokens": sum(map(len, plain)), "seconds": seconds, "arms": {}}
            batch["close"] = [sum(gap <= close for row in gaps for gap in row) for close in CLOSE]
            for name in options.arms:
                rows, seconds, forwards = run_arm(model, inputs, name, mars_threshold=options.threshold, **limit)
                parted = [row for row, tokens in enumerate(rows) if tokens != plain[row]]
                at = [gaps[row][min(count_common(rows[row], plain[row]), len(gaps[row]) - 1)] for row in parted]
                batch["arms"][name] = {"seconds": seconds, "forwards": forwards, "gaps_where_parted": at}
            record["batches"].append(batch)
            options.output.write_text(json.dumps(record, indent=1) + "\n")
        print_table(task, [batch for batch in record["batches"] if batch["task"] == task])
    print_table("all", record["batches"])


def print_table(title: str, batches: list[dict]) -> None:
    """For each arm: answers that are identical, speed beside plain decoding, price beside the first arm."""
    rows = sum(batch["rows"] for batch in batches)
    for name in batches[0]["arms"]:
        arms = [batch["arms"][name] for batch in batches]
        parted = sorted(gap for arm in arms for gap in arm["gaps_where_parted"])
        ratios = [batch["seconds"] / arm["seconds"] for batch, arm in zip(batches, arms, strict=True)]
        first = [next(iter(batch["arms"].values()))["seconds"] for batch in batches]
        price = statistics.median(arm["seconds"] / other for arm, other in zip(arms, first, strict=True)) - 1
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        print(
            f"| {title} | {name} | {rows - len(parted)} of {rows} | {statistics.median(ratios):.2f}x "
            f"({low:.2f} to {high:.2f}) | {price:+.0%} | {max(parted, default=0):.3f} |",
            flush=True,
        )
    tokens = sum(batch["tokens"] for batch in batches)
    close = [sum(batch["close"][i] for batch in batches) / tokens for i in range(len(CLOSE))]
    shares = ", ".join(f"{share:.1%} within {bound:g}" for bound, share in zip(CLOSE, close, strict=True))
    print(f"  two best logits of {tokens} tokens: {shares}", flush=True)


if __name__ == "__main__":
    main()
