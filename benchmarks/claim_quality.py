"""What [`claims.py`](claims.py) measures of a model: right answers, and how it sees answers that are held out."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy import stats
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_mars.evaluation import Method, measure_methods
from hf_mars.evaluation.tasks import Task


__all__ = ["judge", "perplexity_interval", "read_answers", "share_interval"]


@torch.no_grad()
def read_answers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: Dataset
) -> list[dict[str, Any]]:
    """
    Read held-out answers, one at a time.

    Args:
        model ([`PreTrainedModel`]): The model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        examples ([`~datasets.Dataset`]): With the columns `prompt` and `completion`, chat messages both.

    Returns:
        `list[dict]`: Of each answer the summed negative log-likelihood in nats (`loss`), its `tokens`, and the
        likeliest token at each of its places (`best`).
    """
    read = []
    for example in tqdm(examples, desc="held-out answers", disable=None):
        prompt = tokenizer.apply_chat_template(example["prompt"], add_generation_prompt=True, return_dict=False)
        full = tokenizer.apply_chat_template([*example["prompt"], *example["completion"]], return_dict=False)
        answer = torch.tensor(full[len(prompt) :], device=model.device)
        logits = model(torch.tensor([full], device=model.device)).logits[0, len(prompt) - 1 : -1].float()
        loss = torch.nn.functional.cross_entropy(logits, answer, reduction="sum")
        read.append({"loss": loss.item(), "tokens": len(answer), "best": logits.argmax(-1).tolist()})
    return read


def judge(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task, methods: list[Method], **kwargs: Any
) -> list[dict[str, Any]]:
    """Of each way to decode its tokens a forward, and of each answer whether it is right."""
    results = measure_methods(model, tokenizer, task.prompts, methods, task=task.name, **kwargs)
    return [
        {
            "tokens_per_forward": result.tokens_per_forward,
            "identical": result.identical,
            "is_correct": [task.is_correct(index, text) for index, text in enumerate(result.texts)],
        }
        for result in results
    ]


def share_interval(is_true: Sequence[bool]) -> str:
    """A share with its 95 % confidence interval (Wilson)."""
    interval = stats.binomtest(sum(is_true), len(is_true)).proportion_ci(method="wilson")
    return f"{sum(is_true) / len(is_true):.2f} ({interval.low:.2f} to {interval.high:.2f})"


def perplexity_interval(answers: Sequence[dict[str, Any]]) -> str:
    """Perplexity a token, with its 95 % confidence interval: a bootstrap over the answers."""
    loss = np.array([answer["loss"] for answer in answers])
    tokens = np.array([answer["tokens"] for answer in answers])

    def per_token(loss, tokens, axis=-1):
        return loss.sum(axis) / tokens.sum(axis)

    interval = stats.bootstrap(
        (loss, tokens), per_token, paired=True, n_resamples=2000, method="percentile", rng=0
    ).confidence_interval
    low, high = math.exp(interval.low), math.exp(interval.high)
    return f"{math.exp(per_token(loss, tokens)):.3f} ({low:.3f} to {high:.3f})"
