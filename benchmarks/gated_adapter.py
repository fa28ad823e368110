"""
What a gated adapter costs at decoding: one forward with it against the same forward without, in turns, by rank.

```bash
python benchmarks/gated_adapter.py HuggingFaceTB/SmolLM2-135M-Instruct
```

The weights of the adapters are random: time does not depend on them.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from record import describe_run
from transformers import AutoModelForCausalLM, DynamicCache

from hf_mars.decoding import decoding_mode, get_gated_adapter
from hf_mars.modeling import enable_mars
from hf_mars.training.gated_adapters import gated_config


NUM_MASKS = 3


def measure(model: torch.nn.Module, options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a forward without and with the adapter, and the median ratio of neighbours."""
    base_model = model.get_base_model()
    adapter, cache = get_gated_adapter(base_model), DynamicCache()
    tokens = torch.randint(base_model.config.vocab_size, (options.batch_size, options.context + options.columns))
    context, window = tokens[:, : options.context], tokens[:, options.context :]
    times = []
    with torch.no_grad(), decoding_mode(base_model):
        base_model(input_ids=context, cache=cache, use_cache=True, logits_to_keep=1)
        for pair in range(options.rounds + 3):  # the first ones warm up
            pair_times = []
            for num_columns in (0, NUM_MASKS) if pair % 2 else (NUM_MASKS, 0):
                start = time.perf_counter()
                with adapter.acting_on(num_columns):
                    base_model(input_ids=window, cache=cache, use_cache=True)
                pair_times.append((num_columns, time.perf_counter() - start))
                cache.crop(-options.columns)
            times.append([seconds for _, seconds in sorted(pair_times)])
    without, with_adapter = zip(*times[3:], strict=True)
    return {
        "without_ms": 1e3 * statistics.median(without),
        "with_ms": 1e3 * statistics.median(with_adapter),
        "ratio": statistics.median(b / a for a, b in times[3:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--columns", type=int, default=7, help=f"of a window, the last {NUM_MASKS} of them masks")
    parser.add_argument("--context", type=int, default=200, help="tokens in the cache")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "gated_adapter.json")
    options = parser.parse_args()

    results = []
    print("| rank | parameters | dtype | without | with | ratio |\n| --- | --- | --- | --- | --- | --- |")
    for dtype in options.dtypes:
        for rank in options.ranks:
            model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, dtype)).eval()
            config = gated_config(LoraConfig(r=rank, target_modules="all-linear"), model, 0)
            model = enable_mars(get_peft_model(model, config), mask_token_id=0, block_size=NUM_MASKS + 1)
            result = {"rank": rank, "parameters": model.get_nb_trainable_parameters()[0], "dtype": dtype}
            result.update(measure(model, options))
            results.append(result)
            print(
                f"| {rank} | {result['parameters'] / 1e6:.1f}M | {dtype} | {result['without_ms']:.1f} ms | "
                f"{result['with_ms']:.1f} ms | {result['ratio']:.2f}x |",
                flush=True,
            )
    record = {"environment": describe_run(options), "results": results}
    options.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
