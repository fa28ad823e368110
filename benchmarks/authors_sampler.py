"""
The sampler of the paper's authors beside ours: on the same checkpoint and prompts, do tokens and forwards agree?

```bash
git clone https://github.com/Xalp/MARS
python benchmarks/authors_sampler.py runs/quickstart/checkpoint --clone MARS
```

Theirs reads the whole sequence again at every forward, so in float32 the two round differently; `--dtype float64`
rules that out. Both decode one prompt at a time, and take turns.
"""

import argparse
import importlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from record import describe_run
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.evaluation.sweep import tokenize
from hf_mars.evaluation.tasks import load_task


THRESHOLDS = {"probability": (1.0, 0.95, 0.7, 0.5), "margin": (0.9, 0.5), "entropy": (0.1, 0.5)}


class AuthorsSampler:
    """
    The class `MARSSampler` of a clone of their repository.

    Args:
        clone (`Path`): The clone.
        model, tokenizer: The checkpoint.
        max_new_tokens (`int`): Limit of an answer.
    """

    def __init__(self, clone: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_new_tokens: int):
        sys.path.insert(0, str(clone))
        samplers = importlib.import_module("mars.samplers")
        self.make_config = samplers.MARSSamplerConfig
        self.block_size, self.max_new_tokens = model.config.mars["block_size"], max_new_tokens
        # It takes every token that equals the padding for padding, also within a prompt. A single prompt has none.
        tokens = SimpleNamespace(
            mask_token_id=model.config.mars["mask_token_id"],
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=tokenizer.bos_token_id,
            pad_token_id=-1,
        )
        self.sampler = samplers.MARSSampler(model, tokens)

    def decode(self, prompt: torch.Tensor, threshold: float, metric: str) -> tuple[list[int], int]:
        """New tokens of a prompt of shape `(tokens,)`, and its forwards."""
        before = self.sampler.global_forward_passes
        config = self.make_config(
            max_new_tokens=self.max_new_tokens,
            steps=self.max_new_tokens,
            block_size=self.block_size,
            right_shift_logits=True,
            confidence_threshold=threshold,
            acceptance_metric=metric,
        )
        tokens = self.sampler.sample([prompt], config)[0, len(prompt) :][: self.max_new_tokens].tolist()
        return tokens, self.sampler.global_forward_passes - before


def decode_ours(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], threshold: float, metric: str, max_new_tokens: int
) -> tuple[list[int], int]:
    output = model.generate(
        **inputs,
        mars_threshold=threshold,
        mars_metric=metric,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        return_dict_in_generate=True,
    )
    return output.sequences[0, inputs["input_ids"].shape[1] :].tolist(), len(output.acceptance_lengths[0])


def until_end(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--clone", type=Path, required=True, help="a clone of the authors' repository")
    parser.add_argument("--num-prompts", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "authors_sampler.json")
    options = parser.parse_args()

    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    theirs = AuthorsSampler(options.clone, model, tokenizer, options.max_new_tokens)
    prompts = load_task("word_problems", options.num_prompts).prompts
    settings = [(metric, threshold) for metric, thresholds in THRESHOLDS.items() for threshold in thresholds]
    counts = {setting: Counter() for setting in settings}
    for prompt in tqdm(prompts, desc="prompts", disable=None):
        inputs = tokenize(tokenizer, [prompt]).to(model.device)
        for metric, threshold in settings:
            start = time.perf_counter()
            tokens, forwards = decode_ours(model, inputs, threshold, metric, options.max_new_tokens)
            middle = time.perf_counter()
            their_tokens, their_forwards = theirs.decode(inputs["input_ids"][0], threshold, metric)
            end = time.perf_counter()
            their_tokens = until_end(their_tokens, tokenizer.eos_token_id)
            counts[metric, threshold] += Counter(
                identical=tokens == their_tokens and forwards == their_forwards,
                tokens=len(tokens),
                forwards=forwards,
                their_forwards=their_forwards,
                seconds=middle - start,
                their_seconds=end - middle,
            )

    print(f"{options.num_prompts} word problems, {str(model.dtype).removeprefix('torch.')}, batch 1\n")
    print("| metric | threshold | tokens | their forwards | our forwards | identical | their time over ours |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (metric, threshold), count in counts.items():
        print(
            f"| {metric} | {threshold:g} | {count['tokens']} | {count['their_forwards']} | {count['forwards']} "
            f"| {count['identical']} of {len(prompts)} | {count['their_seconds'] / count['seconds']:.1f} |"
        )
    record = {
        "environment": describe_run(options, model),
        "rows": [{"metric": metric, "threshold": threshold, **row} for (metric, threshold), row in counts.items()],
    }
    options.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
