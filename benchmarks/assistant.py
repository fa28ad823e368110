"""
A MARS checkpoint as drafter of a bigger model, with one draft and with a block of drafts a forward.

The bigger model is made of the checkpoint: each of its layers is followed by others of the same size whose outputs are
zero, so it says the same and its forward takes as many times as long as `--times` says. So drafts of one token a
forward always hold, and what is measured is the best case of both ways: how many forwards they take, and what those
cost. With `--times 1` the checkpoint drafts for itself.

For each prompt the ways decode in turns, in one run, so that what else the machine does meets all of them. A ratio is
the time of plain generation over that of a way, on the same prompt; the table has their median and quartiles.

```bash
python benchmarks/assistant.py runs/quickstart/checkpoint --times 1 3
```
"""

import argparse
import copy
import json
import statistics
from pathlib import Path

import torch
from record import describe_run
from transformers import GenerationMixin, PreTrainedModel

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.evaluation.clock import ForwardClock
from hf_mars.evaluation.sweep import tokenize
from hf_mars.evaluation.tasks import load_task


WAYS = {"assisted": 1, "assisted, MARS": None}  # and the block size of the drafter; `None` is the checkpoint's


def make_bigger(model: PreTrainedModel, times: int) -> PreTrainedModel:
    """A model of `times` the layers that computes the same function, for architectures like Llama's."""
    bigger = copy.deepcopy(model)
    layers = torch.nn.ModuleList()
    for layer in bigger.model.layers:
        layers.append(layer)
        for _ in range(times - 1):
            silent = copy.deepcopy(layer)
            torch.nn.init.zeros_(silent.self_attn.o_proj.weight)
            torch.nn.init.zeros_(silent.mlp.down_proj.weight)
            layers.append(silent)
    for index, layer in enumerate(layers):
        layer.self_attn.layer_idx = index
    bigger.model.layers = layers
    bigger.config.num_hidden_layers = len(layers)
    return bigger


def measure(
    bigger: PreTrainedModel, drafter: PreTrainedModel, inputs: dict, way: str | None, max_new_tokens: int
) -> dict:
    """Tokens, seconds and forwards of one prompt; no way is plain generation."""
    options = {"do_sample": False, "max_new_tokens": max_new_tokens}
    if way is not None:
        drafter.generation_config.mars_block_size = WAYS[way]
        options["assistant_model"] = drafter
    with ForwardClock(drafter) as drafting, ForwardClock(bigger) as verifying:
        sequences = GenerationMixin.generate(bigger, **inputs, **options)
    return {
        "tokens": sequences[0, inputs["input_ids"].shape[1] :].tolist(),
        "seconds": verifying.seconds,
        "forwards": verifying.num_forwards,
        "drafter_forwards": drafting.num_forwards,
    }


def print_row(times: int, way: str, runs: list[dict], plain: list[dict]) -> None:
    ratios = [one["seconds"] / other["seconds"] for one, other in zip(plain, runs, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    num_tokens = sum(len(run["tokens"]) for run in runs)
    forwards, drafter_forwards = (sum(run[name] for run in runs) for name in ("forwards", "drafter_forwards"))
    same = statistics.mean(one["tokens"] == other["tokens"] for one, other in zip(plain, runs, strict=True))
    print(
        f"| {times} | {way} | {num_tokens} | {forwards} | {drafter_forwards} | {num_tokens / forwards:.2f} | "
        f"{median:.2f} ({low:.2f} to {high:.2f}) | {same:.0%} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--task", default="word_problems")
    parser.add_argument("--limit", type=int, default=8, help="prompts")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 3], help="layers of the bigger model for one")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "assistant.json")
    options = parser.parse_args()
    drafter, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    prompts = load_task(options.task, options.limit).prompts
    record = {}
    print("| layers | way | tokens | forwards | of the drafter | tokens/forward | ratio | identical |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | --- | ---: |")
    for times in options.times:
        bigger = make_bigger(drafter, times)
        runs = {way: [] for way in (None, *WAYS)}
        for index, prompt in enumerate([prompts[0], *prompts]):
            inputs = tokenize(tokenizer, [prompt]).to(drafter.device)
            for way in runs:
                run = measure(bigger, drafter, inputs, way, options.max_new_tokens)
                if index > 0:  # the first one warms up
                    runs[way].append(run)
        for way, of_way in runs.items():
            print_row(times, way or "plain", of_way, runs[None])
        record[times] = {way or "plain": of_way for way, of_way in runs.items()}
    record = {"environment": describe_run(options, drafter), "layers": record}
    options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
