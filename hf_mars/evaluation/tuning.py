"""The fastest way to decode on this machine that stays within what may be lost."""

from collections.abc import Callable
from itertools import product

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..decoding import Mode
from .methods import Method
from .sweep import MethodResult, measure_methods


__all__ = ["candidates", "tune"]

THRESHOLDS = (0.95, 0.9, 0.7, 0.5, 0.3)


def candidates(block_sizes: list[int], lossless: bool) -> list[Method]:
    """Plain decoding, and every method, block size and threshold to try."""
    names = (Mode.VERIFY,) if lossless else (Mode.VERIFY, Mode.LOSSY)
    return [
        Method(Mode.PLAIN),
        *(Method(Mode.VERIFY, block_size=size) for size in block_sizes),
        *(Method(name, tau, block_size=size) for name, size, tau in product(names, block_sizes, THRESHOLDS)),
    ]


def tune(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[list[dict[str, str]]],
    batch_size: int,
    max_loss: float | None = None,
    score: Callable[[list[str]], list[bool]] | None = None,
    block_sizes: list[int] | None = None,
    max_new_tokens: int = 256,
    rounds: int = 3,
) -> tuple[MethodResult, list[MethodResult]]:
    """
    Find the method, block size and threshold with the best measured speed under a constraint.

    All candidates decode a quarter of the prompts; the fastest four of those that keep the constraint, and plain
    decoding, then decode all of them, and the fastest of these is the answer.

    Args:
        model ([`PreTrainedModel`]): A MARS model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        prompts (`list[list[dict]]`): Chat messages, one list a prompt: what the model will be asked.
        batch_size (`int`): Prompts decoded together.
        max_loss (`float`, *optional*):
            Share of the accuracy that may be lost, or of the outputs that may differ from plain decoding's where
            nothing tells right from wrong. Defaults to none: only verified decoding is tried.
        score (`Callable[[list[str]], list[bool]]`, *optional*):
            From the answers to the first prompts to which of them are right, such as [`Task.score`].
        block_sizes (`list[int]`, *optional*): Defaults to the checkpoint's and half of it.
        max_new_tokens (`int`, *optional*, defaults to 256): Limit of an answer.
        rounds (`int`, *optional*, defaults to 3): How often each batch is decoded in the end; the best time counts.

    Returns:
        `tuple[MethodResult, list[MethodResult]]`: The best way, which is plain decoding where nothing is faster, and
        all ways of the last measurement.

    Raises:
        `ValueError`: If there are no prompts or `max_loss` is not between 0 and 1.
    """
    if not prompts:
        raise ValueError("`prompts` is empty: give at least one prompt.")
    if max_loss is not None and not 0 <= max_loss <= 1:
        raise ValueError(f"`max_loss` must be between 0 and 1, got {max_loss}.")
    trained = model.config.mars["block_size"]
    block_sizes = block_sizes or sorted({max(2, trained // 2), trained})
    arguments = {"max_new_tokens": max_new_tokens, "score": score}
    batch_size = min(batch_size, len(prompts))

    def allowed(results: list[MethodResult]) -> list[MethodResult]:
        plain = results[0]
        # Verified answers that differ from plain ones do so at near ties, see `explain_inexactness`.
        return [plain, *(r for r in results[1:] if r.mode == Mode.VERIFY or loss(r, plain) <= (max_loss or 0) + 1e-9)]

    first = prompts[: max(batch_size, len(prompts) // 4)]
    methods = candidates(block_sizes, lossless=max_loss is None)
    _, *rest = allowed(measure_methods(model, tokenizer, first, methods, batch_size, **arguments))
    fastest = sorted(rest, key=lambda result: -result.speedup)[:4]
    finalists = [Method(Mode.PLAIN), *(Method(r.mode, r.threshold, block_size=r.block_size) for r in fastest)]
    results = measure_methods(model, tokenizer, prompts, finalists, batch_size, rounds=rounds, **arguments)
    return max(allowed(results), key=lambda result: result.speedup), results


def loss(result: MethodResult, plain: MethodResult) -> float:
    """What a method loses against plain decoding: accuracy where it was measured, else the share of other outputs."""
    if result.accuracy is not None and plain.accuracy is not None:
        return plain.accuracy - result.accuracy
    return 1 - result.identical
