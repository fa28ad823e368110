"""
Decoding speed: transformers' own generation, hf_mars, and slower ways to decode MARS, in turns on the same prompts.

```bash
python benchmarks/decoding.py runs/quickstart/checkpoint
```

It is `hf-mars bench` with the methods that tell how fast the decoding itself is: block sizes 4 and 8, and cache blocks
from 4 to 64 for the block-synchronous cache.
"""

import argparse
from pathlib import Path

from record import describe_run

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.decoding import Mode
from hf_mars.evaluation import Evaluation, Method, format_table, measure_methods
from hf_mars.evaluation.tasks import load_task


CACHE_BLOCKS = (4, 8, 16, 32, 64)


def list_methods(threshold: float, verify_threshold: float) -> list[Method]:
    methods = [Method(Mode.PLAIN), Method("AR, static cache"), Method(Mode.LOSSY, 1.0)]
    for block_size in (4, 8):
        for tau in (threshold, verify_threshold):
            methods += [
                Method(Mode.LOSSY, tau, block_size=block_size),
                Method(Mode.VERIFY, tau, block_size=block_size),
            ]
        methods.append(Method("no cache", threshold, block_size=block_size))
        methods += [
            Method("block-synchronous", threshold, block_size=block_size, cache_block=cache_block)
            for cache_block in CACHE_BLOCKS
            if cache_block >= block_size
        ]
    return methods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--num-prompts", type=int, default=16, help="prompts for each batch size; half at batch 1")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--verify-threshold", type=float, default=0.5)
    parser.add_argument("--methods", nargs="+", help="only AR and methods whose label contains one of these")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "decoding.json")
    options = parser.parse_args()

    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    methods = list_methods(options.threshold, options.verify_threshold)
    if options.methods:
        methods = [methods[0], *(m for m in methods[1:] if any(name in str(m) for name in options.methods))]
    results = []
    for batch_size in options.batch_sizes:
        num_prompts = max(options.num_prompts if batch_size > 1 else options.num_prompts // 2, batch_size)
        prompts = load_task("word_problems", num_prompts).prompts
        results += measure_methods(
            model, tokenizer, prompts, methods, batch_size, options.max_new_tokens, rounds=options.rounds
        )
        Evaluation(results, describe_run(options, model)).save(options.output)
    print(format_table(results, str(model.dtype).removeprefix("torch.")))


if __name__ == "__main__":
    main()
