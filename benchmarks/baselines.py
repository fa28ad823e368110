"""Slower ways to decode MARS, written from sections 3.4 and 4.5 of the paper, to compare with."""

import copy
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel


__all__ = ["BaselineOutput", "decode_block_synchronously", "decode_without_cache"]


@dataclass
class BaselineOutput:
    """
    Args:
        tokens (`list[list[int]]`): Generated tokens of each row, end-of-sequence included.
        forward_passes (`list[int]`): Forward passes that ran until each row was done.
    """

    tokens: list[list[int]]
    forward_passes: list[int] = field(default_factory=list)


def read_masks(logits: torch.Tensor, mask_token_id: int) -> tuple[list, list]:
    """Most likely tokens and their probabilities, mask token excluded, as nested lists."""
    logits = logits.float()
    logits[..., mask_token_id] = -torch.inf
    probabilities, tokens = logits.softmax(-1).max(-1)
    return tokens.tolist(), probabilities.tolist()


def accept(tokens: list[int], probabilities: list[float], threshold: float) -> list[int]:
    """The autoregressive token and the leading masks whose probability passes the threshold."""
    run = tokens[:1]
    for token, probability in zip(tokens[1:], probabilities[1:], strict=True):
        if probability < threshold:
            break
        run.append(token)
    return run


@torch.no_grad()
def decode_without_cache(
    model: PreTrainedModel, inputs, threshold: float, block_size: int, max_new_tokens: int, eos_token_id: int
) -> BaselineOutput:
    """Forward the whole sequence and the masks at every step (section 3.4)."""
    mask = model.config.mars["mask_token_id"]
    prompts = [
        ids[keep.bool()].tolist() for ids, keep in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    ]
    output = BaselineOutput([[] for _ in prompts], [0] * len(prompts))
    active = list(range(len(prompts)))
    while active:
        sequences = [prompts[row] + output.tokens[row] + [mask] * (block_size - 1) for row in active]
        width = max(map(len, sequences))
        input_ids = torch.tensor([[mask] * (width - len(s)) + s for s in sequences], device=model.device)
        lengths = torch.tensor([len(s) for s in sequences], device=model.device)
        attention_mask = (torch.arange(width, device=model.device) >= width - lengths[:, None]).long()
        position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        logits = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=block_size,
        ).logits
        tokens, probabilities = read_masks(logits, mask)
        for index, row in enumerate(list(active)):
            output.forward_passes[row] += 1
            if extend(
                output.tokens[row],
                accept(tokens[index], probabilities[index], threshold),
                max_new_tokens,
                eos_token_id,
            ):
                active.remove(row)
    return output


@torch.no_grad()
def decode_block_synchronously(
    model: PreTrainedModel,
    inputs,
    threshold: float,
    block_size: int,
    max_new_tokens: int,
    eos_token_id: int,
    cache_block: int,
) -> BaselineOutput:
    """
    Fill blocks of `cache_block` tokens (section 4.5): every inner step copies the prefix cache and forwards the whole
    block; rows that have filled theirs wait for the slowest; one more forward writes the block into the cache.
    """
    mask = model.config.mars["mask_token_id"]
    rows = len(inputs["input_ids"])
    output = BaselineOutput([[] for _ in range(rows)], [0] * rows)
    done = [False] * rows
    attention_mask = inputs["attention_mask"]
    cache = DynamicCache(config=model.config)
    # The last prompt token is read again with each block: its logits give the block's first token.
    last = inputs["input_ids"][:, -1:]
    position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    model(
        input_ids=inputs["input_ids"][:, :-1],
        attention_mask=attention_mask[:, :-1],
        position_ids=position_ids[:, :-1],
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    position = position_ids[:, -1:]

    while not all(done):
        blocks = [[] for _ in range(rows)]
        attention_mask = torch.cat([attention_mask, attention_mask.new_ones(rows, cache_block)], dim=1)
        positions = position + torch.arange(cache_block, device=model.device)

        def forward(cache, blocks=blocks, positions=positions, attention_mask=attention_mask, last=last):
            filled = [block + [mask] * (cache_block - len(block)) for block in blocks]
            input_ids = torch.cat([last, torch.tensor(filled, device=model.device)[:, :-1]], dim=1)
            for row in range(rows):
                output.forward_passes[row] += not done[row]
            return model(
                input_ids=input_ids,
                attention_mask=attention_mask[:, :-1],
                position_ids=positions,
                cache=cache,
                use_cache=True,
            ).logits

        while any(len(block) < cache_block and not done[row] for row, block in enumerate(blocks)):
            tokens, probabilities = read_masks(forward(copy.deepcopy(cache)), mask)
            for row, block in enumerate(blocks):
                if done[row] or len(block) == cache_block:
                    continue
                window = slice(len(block), min(len(block) + block_size, cache_block))
                run = accept(tokens[row][window], probabilities[row][window], threshold)
                before = len(output.tokens[row])
                done[row] = extend(output.tokens[row], run, max_new_tokens, eos_token_id)
                block += output.tokens[row][before:]
        if not all(done):
            forward(cache)  # writes the finished block
            last = torch.tensor([[(block or [mask])[-1]] for block in blocks], device=model.device)
            position = position + cache_block
    return output


def extend(tokens: list[int], run: list[int], max_new_tokens: int, eos_token_id: int) -> bool:
    """Append a run, cut at the end of the sequence; return whether the row is done."""
    for token in run:
        tokens.append(token)
        if token == eos_token_id or len(tokens) == max_new_tokens:
            return True
    return False
