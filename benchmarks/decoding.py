"""
Decoding speed: transformers' own generation, hf_mars, and slower ways to decode MARS, in turns on the same prompts.

```bash
python benchmarks/decoding.py runs/quickstart/checkpoint
```

It is `hf-mars bench` with the modes that tell how fast the decoding itself is: block sizes 4 and 8, and cache blocks
from 4 to 64 for the block-synchronous cache.
"""

import argparse
from pathlib import Path

from record import recorded_options

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.evaluation import Evaluation, Mode, describe_environment, format_table, measure_modes
from hf_mars.evaluation.tasks import load_task


CACHE_BLOCKS = (4, 8, 16, 32, 64)


def list_modes(threshold: float, verify_threshold: float) -> list[Mode]:
    modes = [Mode("AR"), Mode("AR, static cache"), Mode("lossy", 1.0)]
    for block_size in (4, 8):
        for tau in (threshold, verify_threshold):
            modes += [Mode("lossy", tau, block_size=block_size), Mode("verify", tau, block_size=block_size)]
        modes.append(Mode("no cache", threshold, block_size=block_size))
        modes += [
            Mode("block-synchronous", threshold, block_size=block_size, cache_block=cache_block)
            for cache_block in CACHE_BLOCKS
            if cache_block >= block_size
        ]
    return modes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--num-prompts", type=int, default=16, help="prompts for each batch size; half at batch 1")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--verify-threshold", type=float, default=0.5)
    parser.add_argument("--methods", nargs="+", help="only AR and modes whose label contains one of these")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "decoding.json")
    options = parser.parse_args()

    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    modes = list_modes(options.threshold, options.verify_threshold)
    if options.methods:
        modes = [modes[0], *(m for m in modes[1:] if any(name in str(m) for name in options.methods))]
    results = []
    for batch_size in options.batch_sizes:
        num_prompts = max(options.num_prompts if batch_size > 1 else options.num_prompts // 2, batch_size)
        prompts = load_task("word_problems", num_prompts).prompts
        results += measure_modes(
            model, tokenizer, prompts, modes, batch_size, options.max_new_tokens, rounds=options.rounds
        )
        environment = {**describe_environment(model.device), "options": recorded_options(options)}
        Evaluation(results, environment).save(options.output)
    print(format_table(results))


if __name__ == "__main__":
    main()
