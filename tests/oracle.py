"""An independent decoder to compare with: one row, no cache, plain lists, the rule of section 3.4 written out."""

from collections.abc import Collection

import torch
from transformers import LogitsProcessorList


def decode_without_cache(
    model,
    prompt: list[int],
    threshold: float,
    block_size: int,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
    processors: LogitsProcessorList | None = None,
) -> tuple[list[int], list[int]]:
    """Generated tokens of one unpadded prompt, and how many each forward added."""
    mask = model.config.mars["mask_token_id"]
    tokens, acceptance_lengths = list(prompt), []
    while True:
        input_ids = torch.tensor([tokens + [mask] * (block_size - 1)])
        with torch.no_grad():
            logits = model(input_ids, use_cache=False).logits[0, len(tokens) - 1 :].float()
        logits[:, mask] = -torch.inf
        acceptance_lengths.append(0)
        for index, scores in enumerate(logits):
            if processors:
                scores = processors(torch.tensor([tokens]), scores[None])[0]
            probability, choice = scores.softmax(-1).max(-1)
            if index > 0 and probability < threshold:
                break
            tokens.append(choice.item())
            acceptance_lengths[-1] += 1
            if tokens[-1] in eos_token_ids or len(tokens) == len(prompt) + max_new_tokens:
                return tokens[len(prompt) :], acceptance_lengths


def verify_without_cache(
    model, prompt: list[int], threshold: float, block_size: int, max_new_tokens: int
) -> tuple[list[int], list[tuple[int, int]]]:
    """
    Generated tokens of verified decoding, not cut at the limit, and of each forward how many draft tokens it had and
    how many of them held.
    """
    mask = model.config.mars["mask_token_id"]
    tokens, drafts, counts = list(prompt), [], []
    while len(tokens) < len(prompt) + max_new_tokens:
        num_masks = min(block_size, len(prompt) + max_new_tokens - len(tokens)) - 1
        with torch.no_grad():
            logits = model(torch.tensor([tokens + drafts + [mask] * num_masks]), use_cache=False).logits[0].float()
        logits[:, mask] = -torch.inf
        confidences, choices = (column.tolist() for column in logits[len(tokens) - 1 :].softmax(-1).max(-1))
        num_accepted = 0
        while num_accepted < len(drafts) and drafts[num_accepted] == choices[num_accepted]:
            num_accepted += 1
        counts.append((len(drafts), num_accepted))
        tokens += choices[: num_accepted + 1]
        confident = (
            list(zip(choices, confidences, strict=True))[len(drafts) + 1 :] if num_accepted == len(drafts) else []
        )
        drafts = []
        for choice, confidence in confident:
            if confidence < threshold:
                break
            drafts.append(choice)
    return tokens[len(prompt) :], counts
