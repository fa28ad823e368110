"""Ways to decode a batch: plain, MARS, and the peers it is compared with."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationMixin, PreTrainedModel

from .baselines import decode_block_synchronously, decode_jacobi, decode_without_cache
from .clock import ForwardClock


__all__ = ["Decoded", "Mode", "PEERS", "decode"]

# Peers by name, and the largest batch that each can decode.
PEERS = {
    "AR, static cache": None,
    "prompt lookup": 1,
    "assisted": 1,
    "Jacobi": 1,
    "no cache": None,
    "block-synchronous": None,
}
LOSSLESS = ("AR", "AR, static cache", "prompt lookup", "assisted", "Jacobi", "verify")


@dataclass(frozen=True)
class Mode:
    """
    One way to decode.

    Args:
        name (`str`): `"AR"`, `"lossy"`, `"verify"`, or one of [`PEERS`].
        threshold (`float`, *optional*): `mars_threshold`; `None` for ways that have none.
        metric (`str`, *optional*, defaults to `"probability"`): `mars_metric`.
        block_size (`int`, *optional*): `mars_block_size`. Defaults to that of the checkpoint.
        cache_block (`int`, *optional*): Tokens that `"block-synchronous"` fills before it moves on. Defaults to 8.
    """

    name: str
    threshold: float | None = None
    metric: str = "probability"
    block_size: int | None = None
    cache_block: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The `mars_*` arguments of `generate`; none for ways that are not MARS's."""
        if self.name not in ("lossy", "verify"):
            return {}
        arguments = {"mars_threshold": self.threshold, "mars_verify": self.name == "verify"}
        if self.metric != "probability":
            arguments["mars_metric"] = self.metric
        if self.block_size is not None:
            arguments["mars_block_size"] = self.block_size
        return arguments

    @property
    def is_lossless(self) -> bool:
        """Whether greedy output is that of plain decoding, up to rounding."""
        is_plain = self.name == "lossy" and self.threshold == 1 and self.metric != "entropy"
        return self.name in LOSSLESS or is_plain

    def fits(self, batch_size: int) -> bool:
        """Whether it can decode batches of this size."""
        largest = PEERS.get(self.name)
        return largest is None or batch_size <= largest

    def __str__(self) -> str:
        parts = [self.name if self.threshold is None else f"{self.name} {self.threshold:g}"]
        parts += [self.metric] if self.metric != "probability" else []
        parts += [f"B {self.block_size}"] if self.block_size is not None else []
        parts += [f"cache block {self.cache_block}"] if self.cache_block is not None else []
        return ", ".join(parts)


@dataclass
class Decoded:
    """
    What one way made of a batch.

    Args:
        tokens (`list[list[int]]`): Generated tokens of each row, end-of-sequence included, padding not.
        forward_passes (`list[int]`): Forward passes of each row, until it was done.
        run_lengths (`list[list[int]]`, *optional*): Tokens that each of them added, where that is known.
    """

    tokens: list[list[int]]
    forward_passes: list[int]
    run_lengths: list[list[int]] | None = None


def decode(
    model: PreTrainedModel,
    inputs: dict[str, torch.Tensor],
    mode: Mode,
    max_new_tokens: int,
    clock: ForwardClock,
    draft: PreTrainedModel | None = None,
) -> Decoded:
    """
    Decode a left-padded batch greedily.

    Args:
        model ([`PreTrainedModel`]): A MARS model.
        inputs (`dict[str, torch.Tensor]`): `input_ids` and `attention_mask`.
        mode ([`Mode`]): How.
        max_new_tokens (`int`): Limit of a row.
        clock ([`ForwardClock`]): The running clock, which counts the forwards of ways that do not tell theirs.
        draft ([`PreTrainedModel`], *optional*): The small model of `"assisted"`.
    """
    prompt_length = inputs["input_ids"].shape[1]
    eos_token_ids = end_of_sequence_ids(model)
    if mode.name in ("lossy", "verify"):
        output = model.generate(
            **inputs, max_new_tokens=max_new_tokens, do_sample=False, return_dict_in_generate=True, **mode.arguments
        )
        generated = output.sequences[:, prompt_length:].tolist()
        tokens = [row[: sum(lengths)] for row, lengths in zip(generated, output.run_lengths, strict=True)]
        return Decoded(tokens, [len(lengths) for lengths in output.run_lengths], output.run_lengths)

    if mode.name in ("no cache", "block-synchronous", "Jacobi"):
        settings = {"max_new_tokens": max_new_tokens, "eos_token_ids": eos_token_ids}
        if mode.name == "Jacobi":
            runs = decode_jacobi(model, inputs, **settings)
        else:
            settings["threshold"] = mode.threshold
            settings["block_size"] = mode.block_size or model.config.mars["block_size"]
            if mode.name == "no cache":
                runs = decode_without_cache(model, inputs, **settings)
            else:
                runs = decode_block_synchronously(model, inputs, cache_block=mode.cache_block or 8, **settings)
        tokens = [[token for run in row for token in run] for row in runs]
        lengths = [[len(run) for run in row] for row in runs]
        return Decoded(tokens, [len(row) for row in runs], lengths)

    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "do_sample": False}
    if mode.name == "AR, static cache":
        options["cache_implementation"] = "static"
    elif mode.name == "prompt lookup":
        options["prompt_lookup_num_tokens"] = 3
    elif mode.name == "assisted":
        options["assistant_model"] = draft
    # The door of transformers itself, so that not even the check for `mars_*` arguments is in the way.
    sequences = GenerationMixin.generate(model, **inputs, **options)
    tokens = [cut(row, eos_token_ids) for row in sequences[:, prompt_length:].tolist()]
    if mode.name in ("prompt lookup", "assisted"):
        return Decoded(tokens, [clock.num_forwards])
    return Decoded(tokens, [len(row) for row in tokens], [[1] * len(row) for row in tokens])


def end_of_sequence_ids(model: PreTrainedModel) -> set[int]:
    ids = model.generation_config.eos_token_id
    return set() if ids is None else set(ids) if isinstance(ids, list) else {ids}


def cut(tokens: list[int], eos_token_ids: set[int]) -> list[int]:
    """Tokens up to and with the first end-of-sequence token."""
    return next((tokens[: i + 1] for i, token in enumerate(tokens) if token in eos_token_ids), tokens)
