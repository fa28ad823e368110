"""
Training data of the benchmark checkpoint, made on the spot: step-by-step word problems, and answers of the base model
itself to plain requests, so that it keeps its own way of answering. No item of an evaluation task is in it.

```bash
python benchmarks/data.py --output-dir runs/data
```
"""

import argparse
import random
from pathlib import Path

import torch
from datasets import Dataset, concatenate_datasets
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_mars.cli.smollm2 import load_smollm2
from hf_mars.evaluation.sweep import tokenize
from hf_mars.evaluation.tasks.word_problems import HELD_OUT_SEED, NUM_RESERVED, make_word_problems


TOPICS = """
    baking bread, the moon, learning to swim, city parks, keeping bees, old maps, a rainy afternoon, solar panels,
    house plants, night trains, chess, the history of paper, making soup, a lost key, mountain hiking, libraries,
    the water cycle, a first day at work, planting a garden, bicycle repair, the printing press, good sleep, whales,
    a small bakery, saving money, writing letters, volcanoes, learning a language, street music, lighthouses, camping,
    board games, the invention of glass, a friendly robot, healthy breakfasts, honey, a village market, recycling,
    photography, winter storms, tea, the human heart, a school play, drawing animals, coral reefs, clocks, moving,
    running a marathon, folk tales, the desert, coffee, an unexpected guest, knitting, comets, local elections, bridges
"""
REQUESTS = """
    Write a short paragraph about {}. | Explain {} to a child. | Give me five tips about {}.
    | Write a short poem about {}.
    | List three facts about {}. | What are the advantages and disadvantages of {}? | Write a friendly email about {}.
    | Tell me a short story about {}. | How would you describe {} to someone who has never heard of it?
    | Suggest a title and a first sentence for an article about {}. | Ask me four questions about {}.
    | Summarize what people should know about {} in two sentences.
"""


def make_requests(num_requests: int, seed: int) -> list[str]:
    topics = [topic.strip() for topic in TOPICS.split(",")]
    requests = [" ".join(request.split()) for request in REQUESTS.split("|")]
    return random.Random(seed).sample(
        [request.format(topic) for request in requests for topic in topics], num_requests
    )


def answer(model, tokenizer, requests: list[str], batch_size: int, max_new_tokens: int) -> Dataset:
    """The model's own sampled answers, as prompt and completion."""
    examples = []
    for start in tqdm(range(0, len(requests), batch_size), desc="answer", unit="batch", disable=None):
        batch = [[{"role": "user", "content": request}] for request in requests[start : start + batch_size]]
        inputs = tokenize(tokenizer, batch)
        output = model.generate(
            **inputs, max_new_tokens=max_new_tokens, do_sample=True, temperature=0.6, top_p=0.9, top_k=0
        )
        for prompt, row in zip(batch, output[:, inputs["input_ids"].shape[1] :], strict=True):
            text = tokenizer.decode(row, skip_special_tokens=True)
            if tokenizer.eos_token_id not in row.tolist():  # cut off: end at the last whole sentence
                text = text[: max(text.rfind(mark) for mark in ".!?") + 1]
            if text.strip():
                examples.append({"prompt": prompt, "completion": [{"role": "assistant", "content": text.strip()}]})
    return Dataset.from_list(examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model that answers the requests; default: SmolLM2-135M-Instruct")
    parser.add_argument("--num-problems", type=int, default=3000)
    parser.add_argument("--num-requests", type=int, default=640)
    parser.add_argument("--max-new-tokens", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/data"))
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    source = options.model or load_smollm2()
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source)
    requests = make_requests(options.num_requests, options.seed)
    answers = answer(model, tokenizer, requests, options.batch_size, options.max_new_tokens)
    held_out = make_word_problems(NUM_RESERVED, seed=HELD_OUT_SEED)
    problems = make_word_problems(options.num_problems, seed=options.seed, exclude=held_out)

    options.output_dir.mkdir(parents=True, exist_ok=True)
    num_test = len(answers) // 16
    parts = {
        "train": [problems, answers.select(range(num_test, len(answers)))],
        "test": [held_out.select(range(32)), answers.select(range(num_test))],
    }
    for name, datasets in parts.items():
        dataset = concatenate_datasets(datasets).shuffle(seed=options.seed)
        dataset.to_json(options.output_dir / f"{name}.jsonl")
        print(f"{name}: {len(dataset)} examples")


if __name__ == "__main__":
    main()
