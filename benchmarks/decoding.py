"""
Decoding speed: transformers' own generation, hf_mars, and slower ways to decode MARS, in turns on the same prompts.

```bash
python benchmarks/decoding.py --checkpoint runs/quickstart/checkpoint
```

Every method decodes every batch once before the next round begins, so that a machine whose speed drifts slows all
alike. The time of a method is the sum over batches of its best round.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from baselines import decode_block_synchronously, decode_without_cache
from record import recorded_options
from tqdm.auto import tqdm
from transformers import AutoTokenizer, GenerationMixin

from hf_mars import AutoMARSModelForCausalLM
from hf_mars.cli.word_problems import make_word_problems
from hf_mars.evaluation import describe_environment
from hf_mars.evaluation.sweep import tokenize


@dataclass
class Measurement:
    """
    What one method took for all prompts.

    Args:
        method (`str`): Name.
        batch_size (`int`): Prompts decoded together.
        block_size (`int`, *optional*): B; `None` for autoregressive decoding.
        tokens_per_forward (`float`): Generated tokens over forward passes, each row by itself.
        seconds (`float`): Wall clock.
        outside (`float`): Share of it outside forward passes.
        width (`float`): Mean number of columns of a forward pass after the first.
        speedup (`float`): Tokens a second over those of `AR, dynamic cache`.
        identical (`float`): Share of outputs that are those of `AR, dynamic cache`.
    """

    method: str
    batch_size: int
    block_size: int | None
    tokens_per_forward: float = 0.0
    seconds: float = 0.0
    outside: float = 0.0
    width: float = 0.0
    speedup: float = 0.0
    identical: float = 0.0


class ForwardClock:
    """Counts the forward passes of a model, their columns, and the seconds in them."""

    def __init__(self, model):
        self.reset()
        model.register_forward_pre_hook(self._start, with_kwargs=True)
        model.register_forward_hook(self._stop, with_kwargs=True)

    def reset(self):
        self.seconds, self.widths = 0.0, []

    def _start(self, module, args, kwargs):
        self.widths.append(kwargs["input_ids"].shape[1])
        self._started = time.perf_counter()

    def _stop(self, module, args, kwargs, output):
        self.seconds += time.perf_counter() - self._started


def plain(model, inputs, max_new_tokens, **kwargs):
    """Tokens and forwards of transformers' own generation."""
    output = GenerationMixin.generate(model, **inputs, max_new_tokens=max_new_tokens, do_sample=False, **kwargs)
    tokens = cut(output[:, inputs["input_ids"].shape[1] :].tolist(), model.generation_config.eos_token_id)
    return tokens, [len(row) for row in tokens]


def mars(model, inputs, max_new_tokens, **kwargs):
    """Tokens and forwards of hf_mars."""
    output = model.generate(
        **inputs, max_new_tokens=max_new_tokens, do_sample=False, return_dict_in_generate=True, **kwargs
    )
    generated = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    tokens = [row[: sum(lengths)] for row, lengths in zip(generated, output.run_lengths, strict=True)]
    return tokens, [len(lengths) for lengths in output.run_lengths]


def baseline(model, inputs, max_new_tokens, decode, **kwargs):
    """Tokens and forwards of a baseline."""
    eos_token_id = model.generation_config.eos_token_id
    output = decode(model, inputs, max_new_tokens=max_new_tokens, eos_token_id=eos_token_id, **kwargs)
    return output.tokens, output.forward_passes


def cut(rows: list[list[int]], eos_token_id: int) -> list[list[int]]:
    return [row[: row.index(eos_token_id) + 1] if eos_token_id in row else row for row in rows]


def methods(threshold: float, verify_threshold: float) -> dict[tuple[str, int | None], Callable]:
    """Name and block size to a function of model, inputs and token limit. The first one is the reference."""
    result = {
        ("AR, dynamic cache", None): plain,
        ("AR, static cache", None): partial(plain, cache_implementation="static"),
        ("tau 1", None): partial(mars, mars_threshold=1.0),
    }
    for block_size in (4, 8):
        result |= mars_methods(block_size, threshold, verify_threshold)
    return result


def mars_methods(block_size: int, threshold: float, verify_threshold: float) -> dict[tuple[str, int], Callable]:
    """The methods that decode several tokens a forward."""
    result = {}
    for tau in (threshold, verify_threshold):
        ours = {"mars_threshold": tau, "mars_block_size": block_size}
        result[f"lossy {tau}", block_size] = partial(mars, **ours)
        result[f"verify {tau}", block_size] = partial(mars, **ours, mars_verify=True)
    theirs = {"threshold": threshold, "block_size": block_size}
    result[f"no cache, {threshold}", block_size] = partial(baseline, decode=decode_without_cache, **theirs)
    for cache_block in (4, 8, 16, 32, 64):
        if cache_block >= block_size:
            result[f"block-synchronous {cache_block}, {threshold}", block_size] = partial(
                baseline, decode=decode_block_synchronously, cache_block=cache_block, **theirs
            )
    return result


def measure(model, tokenizer, prompts, batch_size: int, options: argparse.Namespace) -> list[Measurement]:
    clock = ForwardClock(model)
    chosen = methods(options.threshold, options.verify_threshold)
    if options.methods:
        chosen = {key: value for key, value in chosen.items() if any(name in key[0] for name in options.methods)}
    batches = [
        tokenize(tokenizer, prompts[start : start + batch_size]).to(model.device)
        for start in range(0, len(prompts), batch_size)
    ]
    best = {}
    outputs = {key: [None] * len(batches) for key in chosen}
    progress = tqdm(total=options.rounds * len(batches) * len(chosen), desc=f"batch {batch_size}", disable=None)
    for round_index in range(options.rounds + 1):  # the first one warms up
        for index, inputs in enumerate(batches):
            for key, function in chosen.items():
                limit = options.max_new_tokens if round_index else 4
                clock.reset()
                started = time.perf_counter()
                outputs[key][index] = function(model, inputs, limit)
                seconds = time.perf_counter() - started
                if round_index:
                    run = (seconds, clock.seconds, clock.widths[1:])
                    best[key, index] = min(best.get((key, index), run), run, key=lambda run: run[0])
                    progress.update()
            if not round_index:
                break
    progress.close()
    model._forward_pre_hooks.clear()
    model._forward_hooks.clear()

    reference = None
    results = []
    for key in chosen:
        runs = [best[key, index] for index in range(len(batches))]
        tokens = [row for batch, _ in outputs[key] for row in batch]
        forwards = sum(sum(passes) for _, passes in outputs[key])
        seconds, in_forwards = sum(run[0] for run in runs), sum(run[1] for run in runs)
        widths = [width for run in runs for width in run[2]]
        rate = sum(map(len, tokens)) / seconds
        reference = reference or (rate, tokens)
        results.append(
            Measurement(
                method=key[0],
                batch_size=batch_size,
                block_size=key[1],
                tokens_per_forward=sum(map(len, tokens)) / forwards,
                seconds=seconds,
                outside=1 - in_forwards / seconds,
                width=sum(widths) / len(widths),
                speedup=rate / reference[0],
                identical=sum(a == b for a, b in zip(tokens, reference[1], strict=True)) / len(tokens),
            )
        )
    return results


def to_markdown(results: list[Measurement]) -> str:
    lines = [
        "| batch | method | B | tokens/forward | speedup | identical to AR | outside forwards | columns |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {r.batch_size} | {r.method} | {r.block_size or ''} | {r.tokens_per_forward:.2f} | {r.speedup:.2f} "
        f"| {r.identical:.0%} | {r.outside:.1%} | {r.width:.1f} |"
        for r in results
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="a MARS checkpoint, such as the quickstart's")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument(
        "--num-prompts", type=int, default=16, help="prompts for each batch size; a quarter at batch 1"
    )
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--verify-threshold", type=float, default=0.5)
    parser.add_argument("--methods", nargs="+", help="only methods whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "decoding.json")
    options = parser.parse_args()

    model = AutoMARSModelForCausalLM.from_pretrained(options.checkpoint, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.checkpoint)
    results = []
    for batch_size in options.batch_sizes:
        num_prompts = max(options.num_prompts if batch_size > 1 else options.num_prompts // 2, batch_size)
        prompts = list(make_word_problems(num_prompts, seed=1)["prompt"])
        results += measure(model, tokenizer, prompts, batch_size, options)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        record = {"environment": describe_environment(), "options": recorded_options(options)}
        record["results"] = [asdict(result) for result in results]
        options.output.write_text(json.dumps(record, indent=2) + "\n")
    print(to_markdown(results))


if __name__ == "__main__":
    main()
