"""
Slower ways to decode, to compare with: MARS as the paper's sections 3.4 and 4.5 do it, and Jacobi decoding.

Each returns, for every row, the runs that its forward passes added: lists of tokens, empty where a forward added none.
"""

import copy

import torch
from transformers import DynamicCache, PreTrainedModel


__all__ = ["decode_block_synchronously", "decode_jacobi", "decode_without_cache"]

JACOBI_WINDOW = 32  # guesses beyond the settled prefix; more never settle together, and cost columns

Runs = list[list[list[int]]]


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
    model: PreTrainedModel, inputs, threshold: float, block_size: int, max_new_tokens: int, eos_token_ids: set[int]
) -> Runs:
    """Forward the whole sequence and the masks at every step (section 3.4)."""
    mask = model.config.mars["mask_token_id"]
    prompts = [
        ids[keep.bool()].tolist() for ids, keep in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    ]
    runs: Runs = [[] for _ in prompts]
    tokens: list[list[int]] = [[] for _ in prompts]
    active = list(range(len(prompts)))
    while active:
        sequences = [prompts[row] + tokens[row] + [mask] * (block_size - 1) for row in active]
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
        choices, probabilities = read_masks(logits, mask)
        for index, row in enumerate(list(active)):
            run = accept(choices[index], probabilities[index], threshold)
            run, is_done = cut_run(run, max_new_tokens - len(tokens[row]), eos_token_ids)
            runs[row].append(run)
            tokens[row] += run
            if is_done:
                active.remove(row)
    return runs


@torch.no_grad()
def decode_block_synchronously(
    model: PreTrainedModel,
    inputs,
    threshold: float,
    block_size: int,
    max_new_tokens: int,
    eos_token_ids: set[int],
    cache_block: int,
) -> Runs:
    """
    Fill blocks of `cache_block` tokens (section 4.5): every inner step copies the prefix cache and forwards the whole
    block; rows that have filled theirs wait for the slowest; one more forward writes the block into the cache.
    """
    mask = model.config.mars["mask_token_id"]
    rows = len(inputs["input_ids"])
    runs: Runs = [[] for _ in range(rows)]
    lengths = [0] * rows
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
                if not done[row]:
                    runs[row].append([])
            return model(
                input_ids=input_ids,
                attention_mask=attention_mask[:, :-1],
                position_ids=positions,
                cache=cache,
                use_cache=True,
            ).logits

        while any(len(block) < cache_block and not done[row] for row, block in enumerate(blocks)):
            choices, probabilities = read_masks(forward(copy.deepcopy(cache)), mask)
            for row, block in enumerate(blocks):
                if done[row] or len(block) == cache_block:
                    continue
                window = slice(len(block), min(len(block) + block_size, cache_block))
                run = accept(choices[row][window], probabilities[row][window], threshold)
                run, done[row] = cut_run(run, max_new_tokens - lengths[row], eos_token_ids)
                runs[row][-1] = run
                lengths[row] += len(run)
                block += run
        if not all(done):
            forward(cache)  # writes the finished block
            last = torch.tensor([[(block or [mask])[-1]] for block in blocks], device=model.device)
            position = position + cache_block
    return runs


@torch.no_grad()
def decode_jacobi(model: PreTrainedModel, inputs, max_new_tokens: int, eos_token_ids: set[int]) -> Runs:
    """
    Jacobi decoding of one row: guess the next tokens at random, forward them all, replace each by the model's greedy
    choice after the guesses before it, and repeat. Guesses that were right, and the choice after them, are settled.
    """
    device = model.device
    generator = torch.Generator().manual_seed(0)
    cache = DynamicCache()  # keeps everything, so that it can be cropped on sliding-window models too
    prompt = inputs["input_ids"]
    logits = model(input_ids=prompt, cache=cache, use_cache=True, logits_to_keep=1).logits
    last = logits[0, -1].argmax().item()
    run, is_done = cut_run([last], max_new_tokens, eos_token_ids)
    runs, length = [run], 1
    guesses: list[int] = []
    while not is_done:
        missing = min(JACOBI_WINDOW, max_new_tokens - length) - len(guesses)
        guesses += torch.randint(len(logits[0, -1]), (max(missing, 0),), generator=generator).tolist()
        window = torch.tensor([[last, *guesses]], device=device)
        choices = model(input_ids=window, cache=cache, use_cache=True).logits[0].argmax(-1).tolist()
        settled = 0
        while settled < len(guesses) and guesses[settled] == choices[settled]:
            settled += 1
        run, is_done = cut_run(choices[: settled + 1], max_new_tokens - length, eos_token_ids)
        runs.append(run)
        length += len(run)
        if settled < len(guesses):
            cache.crop(settled - len(guesses))  # drops the keys and values of guesses that were wrong
        last, guesses = choices[settled], choices[settled + 1 :]
    return [runs]


def cut_run(run: list[int], budget: int, eos_token_ids: set[int]) -> tuple[list[int], bool]:
    """The run up to its end-of-sequence token and its budget, and whether the row is done with it."""
    for index, token in enumerate(run):
        if token in eos_token_ids or index + 1 == budget:
            return run[: index + 1], True
    return run, False
