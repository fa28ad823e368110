"""
Prompts for `benchmarks/vllm_engine.py`, as token ids: vLLM's environment has no hf_mars.

```bash
python benchmarks/vllm_prompts.py runs/quickstart/checkpoint --output runs/vllm/prompts.json
```
"""

import argparse
import json
from pathlib import Path

from transformers import AutoTokenizer

from hf_mars.evaluation.tasks import load_task
from hf_mars.loading import QUICKSTART_CHECKPOINT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", default=QUICKSTART_CHECKPOINT, help="whose tokenizer to use")
    parser.add_argument("--tasks", nargs="+", default=["word_problems", "humaneval", "ifeval"])
    parser.add_argument("--limit", type=int, default=64, help="prompts of each task")
    parser.add_argument("--output", type=Path, default=Path("runs/vllm/prompts.json"))
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.checkpoint)
    prompts = {}
    for name in options.tasks:
        task = load_task(name, options.limit)
        prompts[task.name] = [
            tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
            for messages in task.prompts
        ]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(prompts) + "\n")
    print(", ".join(f"{len(each)} prompts of {name}" for name, each in prompts.items()))


if __name__ == "__main__":
    main()
