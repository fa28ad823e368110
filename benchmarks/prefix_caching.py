"""
Time to first token of a chat's turns, in a server that remembers prompts and in one that does not.

```bash
python benchmarks/prefix_caching.py runs/quickstart/checkpoint
```
"""

import argparse
import json
import threading
import time
from pathlib import Path

import torch
from record import describe_run

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.serving import Failure, GenerationRequest, Scheduler


SYSTEM = "You are a patient teacher of chemistry and history. " * 20
QUESTIONS = (
    "Name three uses of copper.",
    "And which of them is the oldest?",
    "Why was it used for that?",
    "What replaced it later?",
)


def ask(scheduler: Scheduler, prompt_ids: list[int], max_new_tokens: int) -> tuple[list[int], float]:
    """The answer, and milliseconds until its first token."""
    tokens, times, done, start = [], [], threading.Event(), time.perf_counter()

    def sink(event):
        if isinstance(event, Failure):
            raise RuntimeError(event.message)
        times.append(time.perf_counter() - start)
        tokens.extend(event.token_ids)
        if event.finish_reason is not None:
            done.set()

    scheduler.submit([GenerationRequest(prompt_ids, max_new_tokens=max_new_tokens)], [sink])
    done.wait()
    return tokens, 1e3 * times[0]


def chat(model, tokenizer, options: argparse.Namespace, enable_prefix_caching: bool) -> list[dict]:
    """Each turn of one chat: tokens of its prompt, time to first token, text."""
    scheduler = Scheduler(model, enable_prefix_caching=enable_prefix_caching)
    messages, turns = [{"role": "system", "content": SYSTEM}], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        tokens, milliseconds = ask(scheduler, prompt, options.max_new_tokens)
        messages.append({"role": "assistant", "content": tokenizer.decode(tokens, skip_special_tokens=True)})
        turns.append({"prompt_tokens": len(prompt), "first_token_ms": milliseconds, "text": messages[-1]["content"]})
    scheduler.close()
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--max-new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "serving" / "prefix_caching.json"
    )
    options = parser.parse_args()
    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    chat(model, tokenizer, options, enable_prefix_caching=False)  # warms up
    rounds = [
        {name: chat(model, tokenizer, options, name == "with") for name in ("without", "with")}
        for _ in range(options.rounds)
    ]
    print("| turn | tokens of the prompt | without | with | same answer |\n| ---: | ---: | ---: | ---: | --- |")
    for turn in range(len(QUESTIONS)):
        turns = {name: [round_[name][turn] for round_ in rounds] for name in ("without", "with")}
        best = {name: min(one["first_token_ms"] for one in turns[name]) for name in turns}
        same = len({one["text"] for name in turns for one in turns[name]}) == 1
        length = turns["with"][0]["prompt_tokens"]
        print(f"| {turn + 1} | {length} | {best['without']:.0f} ms | {best['with']:.0f} ms | {same} |")
    record = {"environment": describe_run(options, model), "rounds": rounds}
    options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
