"""Methods to decode a batch: plain, MARS, and the peers it is compared with."""

from dataclasses import dataclass, fields
from typing import Any

from transformers import GenerationMixin, PreTrainedModel

from ..decoding import AcceptanceCounts, MARSGenerateOutput, Mode, generate, get_gated_adapter
from .baselines import decode_block_synchronously, decode_jacobi, decode_without_cache
from .clock import ForwardClock


__all__ = ["ASSISTED", "MULTI_TOKEN", "PEERS", "Decoded", "Method", "cut", "decode", "end_of_sequence_ids"]

# Peers by name, and the largest batch that each can decode.
PEERS = {
    "AR, static cache": None,
    "prompt lookup": 1,
    "assisted": 1,
    "assisted, MARS": 1,
    "Jacobi": 1,
    "no cache": None,
    "block-synchronous": None,
}
ASSISTED = ("assisted", "assisted, MARS")  # drafts of one token a forward of the small model, or of a block
LOSSLESS = (Mode.PLAIN, Mode.VERIFY, "AR, static cache", "prompt lookup", *ASSISTED, "Jacobi")
MULTI_TOKEN = (Mode.LOSSY, Mode.VERIFY)


@dataclass(frozen=True)
class Method:
    """
    One way to decode.

    Args:
        name (`str`): A [`Mode`], or one of [`PEERS`].
        threshold (`float`, *optional*):
            `mars_threshold`; `None` for ways that have none, and for verified decoding with planned steps.
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
        if self.name not in MULTI_TOKEN:
            return {}
        arguments: dict[str, Any] = {"mars_verify": self.name == Mode.VERIFY}
        if self.threshold is not None:
            arguments["mars_threshold"] = self.threshold
        if self.metric != "probability":
            arguments["mars_metric"] = self.metric
        if self.block_size is not None:
            arguments["mars_block_size"] = self.block_size
        return arguments

    @property
    def is_lossless(self) -> bool:
        """Whether greedy output is that of plain decoding, up to rounding."""
        is_plain = self.name == Mode.LOSSY and self.threshold == 1 and self.metric != "entropy"
        return self.name in LOSSLESS or is_plain

    def fits(self, batch_size: int) -> bool:
        """Whether it can decode batches of this size."""
        largest = PEERS.get(self.name)
        return largest is None or batch_size <= largest

    def __str__(self) -> str:
        parts = [self.name if self.threshold is None else f"{self.name} {self.threshold:g}"]
        parts += ["planned"] if self.name == Mode.VERIFY and self.threshold is None else []
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
        acceptance_lengths (`list[list[int]]`, *optional*): Tokens that each of them added, where that is known.
        counts ([`AcceptanceCounts`], *optional*): Drafts of all rows, where that is known.
    """

    tokens: list[list[int]]
    forward_passes: list[int]
    acceptance_lengths: list[list[int]] | None = None
    counts: AcceptanceCounts | None = None


def decode(
    model: PreTrainedModel,
    inputs: dict[str, Any],
    method: Method,
    max_new_tokens: int,
    clock: ForwardClock,
    draft: PreTrainedModel | None = None,
) -> Decoded:
    """
    Decode a left-padded batch greedily.

    Args:
        model ([`PreTrainedModel`]): A MARS model.
        inputs (`dict[str, torch.Tensor]`): `input_ids` and `attention_mask`.
        method ([`Method`]): How.
        max_new_tokens (`int`): Limit of a row.
        clock ([`ForwardClock`]): The running clock, which counts the forwards of ways that do not tell theirs.
        draft ([`PreTrainedModel`], *optional*): The small model of [`ASSISTED`] ways.
    """
    prompt_length = inputs["input_ids"].shape[1]
    eos_token_ids = end_of_sequence_ids(model)
    if method.name in MULTI_TOKEN:
        output: Any = generate(
            model=model,
            **inputs,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            return_dict_in_generate=True,
            **method.arguments,
        )
        generated = output.sequences[:, prompt_length:].tolist()
        tokens = [row[: sum(lengths)] for row, lengths in zip(generated, output.acceptance_lengths, strict=True)]
        forward_passes = [len(lengths) for lengths in output.acceptance_lengths]
        return Decoded(tokens, forward_passes, output.acceptance_lengths, sum_counts(output))

    if method.name in ("no cache", "block-synchronous", "Jacobi"):
        settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "eos_token_ids": eos_token_ids}
        if method.name == "Jacobi":
            runs = decode_jacobi(model, inputs, **settings)
        else:
            settings["threshold"] = method.threshold
            settings["block_size"] = method.block_size or model.config.mars["block_size"]
            if method.name == "no cache":
                runs = decode_without_cache(model, inputs, **settings)
            else:
                runs = decode_block_synchronously(model, inputs, cache_block=method.cache_block or 8, **settings)
        tokens = [[token for run in row for token in run] for row in runs]
        lengths = [[len(run) for run in row] for row in runs]
        return Decoded(tokens, [len(row) for row in runs], lengths)

    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "do_sample": False}
    if method.name == "AR, static cache":
        options["cache_implementation"] = "static"
    elif method.name == "prompt lookup":
        options["prompt_lookup_num_tokens"] = 3
    elif method.name in ASSISTED and draft is not None:
        settings_of_draft: Any = draft.generation_config
        settings_of_draft.mars_block_size = 1 if method.name == "assisted" else method.block_size
        options["assistant_model"] = draft
    # The door of transformers itself, so that not even the check for `mars_*` arguments is in the way.
    with get_gated_adapter(model).attached():
        sequences = GenerationMixin.generate(model, **inputs, **options)
    tokens = [cut(row, eos_token_ids) for row in sequences[:, prompt_length:].tolist()]
    if method.name in ("prompt lookup", *ASSISTED):
        return Decoded(tokens, [clock.num_forwards])
    return Decoded(tokens, [len(row) for row in tokens], [[1] * len(row) for row in tokens])


def sum_counts(output: MARSGenerateOutput) -> AcceptanceCounts:
    """The counts of all rows together."""
    counts = AcceptanceCounts()
    for row in zip(*(getattr(output, field.name) for field in fields(AcceptanceCounts)), strict=True):
        counts.add(AcceptanceCounts(*row))
    return counts


def end_of_sequence_ids(model: PreTrainedModel) -> set[int]:
    ids = model.generation_config.eos_token_id
    return set() if ids is None else set(ids) if isinstance(ids, list) else {ids}


def cut(tokens: list[int], eos_token_ids: set[int]) -> list[int]:
    """Tokens up to and with the first end-of-sequence token."""
    return next((tokens[: i + 1] for i, token in enumerate(tokens) if token in eos_token_ids), tokens)
