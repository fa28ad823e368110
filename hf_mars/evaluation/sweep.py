"""Several ways to decode the same prompts, measured in one run."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..decoding import AcceptanceCounts, Mode
from ..exactness import explain_inexactness
from ..extras import check_installed
from ..generation_fields import mars_fields, set_aside
from ..modeling import get_base_model
from ..progress import Progress
from .clock import ForwardClock
from .intervals import ratio_interval, share_interval
from .journal import Journal
from .methods import Method, decode
from .metrics import load_metric


__all__ = ["MethodResult", "measure_methods", "tokenize"]

logger = logging.get_logger(__name__)

POSITION_BUCKET = 16  # tokens


@dataclass
class MethodResult:
    """
    What one method measured.

    Args:
        mode (`str`): Name of the method, see [`Method`].
        threshold (`float`, *optional*): Its threshold.
        batch_size (`int`): Prompts decoded together.
        task (`str`): Name of what was asked.
        num_examples (`int`): Number of prompts.
        accuracy (`float`, *optional*): Share of right answers; `None` without a scorer.
        tokens_per_forward (`float`): Generated tokens over forward passes, row by row.
        tokens_per_second (`float`): Generated tokens over seconds of wall clock, prompts included.
        speedup (`float`): `tokens_per_second` over that of the first method.
        identical (`float`): Share of outputs that are token for token those of the first method.
        accuracy_interval (`list[float]`, *optional*): Ends of the 95% interval of `accuracy`, see [`share_interval`].
        tokens_per_forward_interval (`list[float]`, *optional*): Those of `tokens_per_forward`, [`ratio_interval`].
        metric (`str`, *optional*, defaults to `"probability"`): `mars_metric`.
        block_size (`int`, *optional*): `mars_block_size`; `None` for that of the checkpoint.
        cache_block (`int`, *optional*): Cache block of block-synchronous decoding, where it is not 8.
        lossless (`bool`, *optional*, defaults to `False`): Whether greedy output is plain decoding's by construction.
        first_token_seconds (`float`, *optional*): Mean seconds from the call to the end of its first forward.
        outside_forwards (`float`, *optional*): Share of the wall clock that is not spent in the model's forward.
        columns (`float`, *optional*): Mean columns of a forward after the first.
        peak_memory (`int`, *optional*): Bytes, of the accelerator, or of the whole process on a CPU.
        acceptance_lengths (`list[int]`, *optional*): How many forwards added 0, 1, 2, ... tokens.
        acceptance_rate (`float`, *optional*): Accepted over draft tokens, see [`AcceptanceCounts`].
        mean_acceptance_length (`float`, *optional*): Mean tokens of a forward with drafts.
        acceptance_by_position (`list[float]`, *optional*):
            Share of the drafts whose first, second, ... token was accepted.
        tokens_per_forward_by_position (`list[float]`, *optional*):
            Mean acceptance length of the forwards that began in the first 16 tokens of an answer, in the next 16, ...
        texts (`list[str]`): The decoded outputs.
    """

    mode: str
    threshold: float | None
    batch_size: int
    task: str
    num_examples: int
    accuracy: float | None
    tokens_per_forward: float
    tokens_per_second: float
    speedup: float
    identical: float
    accuracy_interval: list[float] | None = None
    tokens_per_forward_interval: list[float] | None = None
    metric: str = "probability"
    block_size: int | None = None
    cache_block: int | None = None
    lossless: bool = False
    first_token_seconds: float | None = None
    outside_forwards: float | None = None
    columns: float | None = None
    peak_memory: int | None = None
    acceptance_lengths: list[int] | None = None
    acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    acceptance_by_position: list[float] | None = None
    tokens_per_forward_by_position: list[float] | None = None
    texts: list[str] = field(default_factory=list, repr=False)

    @property
    def label(self) -> str:
        """Method, threshold, and what differs from the defaults."""
        return str(Method(self.mode, self.threshold, self.metric, self.block_size, self.cache_block))


@dataclass
class Measurement:
    """One batch, decoded once in one method; see [`Decoded`] and [`ForwardClock`]."""

    tokens: list[list[int]]
    forward_passes: list[int]
    acceptance_lengths: list[list[int]] | None
    seconds: float
    in_forwards: float
    first_token_seconds: float
    columns: float
    peak_memory: int | None
    counts: AcceptanceCounts | None = None

    def __post_init__(self):
        if isinstance(self.counts, dict):  # from a journal
            self.counts = AcceptanceCounts(**self.counts)


def measure_methods(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[list[dict[str, str]]],
    methods: list[Method],
    batch_size: int,
    max_new_tokens: int = 256,
    score: Callable[[list[str]], list[bool]] | None = None,
    task: str = "prompts",
    rounds: int = 1,
    journal: Journal | None = None,
    draft: PreTrainedModel | None = None,
) -> list[MethodResult]:
    """
    Decode the prompts greedily in every way. They take turns on each batch, so that a machine whose speed drifts
    slows them all alike; one batch is decoded beforehand and not counted. Of several rounds the best one counts.

    Args:
        model ([`PreTrainedModel`] or [`~peft.PeftModel`]): A MARS model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer, with a chat template.
        prompts (`list[list[dict]]`): Chat messages, one list a prompt.
        methods (`list[Method]`): The first one is what the others are compared with.
        batch_size (`int`): Prompts decoded together. Modes that cannot decode so many are left out.
        max_new_tokens (`int`, *optional*, defaults to 256): Limit a prompt.
        score (`Callable[[list[str]], list[bool]]`, *optional*):
            From all outputs to which of them are right, such as [`Task.score`].
        task (`str`, *optional*, defaults to `"prompts"`): Name of what is asked.
        rounds (`int`, *optional*, defaults to 1): How often every batch is decoded.
        journal ([`Journal`], *optional*): Where measurements are kept, and found again.
        draft ([`PreTrainedModel`], *optional*): The small model of assisted decoding.

    Returns:
        `list[MethodResult]`, in the order of `methods`.

    Raises:
        `ImportError`: If `evaluate` or `scipy` is not installed.
    """
    check_installed("eval", "evaluate", "scipy")  # now, and not when all is decoded
    model = get_base_model(model)  # the doors and hooks of a PEFT model are those of the model inside
    methods = [method for method in methods if method.fits(batch_size)]
    starts = range(0, len(prompts), batch_size)
    best: dict[tuple[int, int], Measurement] = {}
    total = rounds * len(starts) * len(methods)
    warm = set()
    with Progress(f"{task}, batch size {batch_size}, {len(methods)} ways to decode", total) as progress:
        for round_index in range(rounds):
            for start in starts:
                inputs = tokenize(tokenizer, prompts[start : start + batch_size]).to(model.device)
                for index, method in enumerate(methods):
                    key = f"{task}|batch {batch_size}|{start}|round {round_index}|{method}"
                    values = journal.get(key) if journal is not None else None
                    if values is None:
                        if index not in warm:
                            measure(model, inputs, method, 8, draft)
                            warm.add(index)
                        measurement = measure(model, inputs, method, max_new_tokens, draft)
                        if journal is not None:
                            journal.add(key, asdict(measurement))
                        progress.update()
                    else:
                        measurement = Measurement(**values)
                        progress.skip()
                    previous = best.get((index, start))
                    if previous is None or measurement.seconds < previous.seconds:
                        best[index, start] = measurement

    inexactness = explain_inexactness(model)
    if inexactness is not None and any(method.is_lossless and method.name != Mode.PLAIN for method in methods):
        logger.warning_once(f"Verified decoding of this model is not lossless: {inexactness}.")
    results: list[MethodResult] = []
    reference: list[list[int]] = []
    for index, method in enumerate(methods):
        measurements = [best[index, start] for start in starts]
        tokens = [row for measurement in measurements for row in measurement.tokens]
        reference = reference or tokens
        texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        correct = None if score is None else score(texts)
        counts = ([len(row) for row in tokens], [passes for m in measurements for passes in m.forward_passes])
        rate = sum(map(len, tokens)) / sum(m.seconds for m in measurements)
        results.append(
            MethodResult(
                mode=method.name,
                threshold=method.threshold,
                batch_size=batch_size,
                task=task,
                num_examples=len(prompts),
                accuracy=None if correct is None else mean(correct),
                accuracy_interval=None if correct is None else share_interval(correct),
                tokens_per_forward=measure_tokens_per_forward(*counts),
                tokens_per_forward_interval=ratio_interval(*counts),
                tokens_per_second=rate,
                speedup=rate / results[0].tokens_per_second if results else 1.0,
                identical=mean(a == b for a, b in zip(tokens, reference, strict=True)),
                metric=method.metric,
                block_size=method.block_size,
                cache_block=method.cache_block,
                lossless=method.name == Mode.PLAIN or (method.is_lossless and inexactness is None),
                first_token_seconds=mean(m.first_token_seconds for m in measurements),
                outside_forwards=1 - sum(m.in_forwards for m in measurements) / sum(m.seconds for m in measurements),
                columns=mean(m.columns for m in measurements),
                peak_memory=max((m.peak_memory for m in measurements if m.peak_memory), default=None),
                texts=texts,
                **summarize_lengths([row for m in measurements for row in m.acceptance_lengths or []]),
                **summarize_counts([m.counts for m in measurements if m.counts is not None]),
            )
        )
    return results


def measure(model, inputs, method: Method, max_new_tokens: int, draft: PreTrainedModel | None) -> Measurement:
    config = model.generation_config
    with set_aside(config, mars_fields(config)), ForwardClock(model) as clock:  # the method says how to decode
        decoded = decode(model, inputs, method, max_new_tokens, clock, draft)
    return Measurement(
        tokens=decoded.tokens,
        forward_passes=decoded.forward_passes,
        acceptance_lengths=decoded.acceptance_lengths,
        seconds=clock.seconds,
        in_forwards=clock.in_forwards,
        first_token_seconds=clock.first_forward,
        columns=clock.columns,
        peak_memory=clock.peak_memory,
        counts=decoded.counts,
    )


def measure_tokens_per_forward(tokens: list[int], forward_passes: list[int]) -> float:
    counted: Any = load_metric("tokens_per_forward").compute(tokens=tokens, forward_passes=forward_passes)
    return counted["tokens_per_forward"]


def summarize_counts(measured: list[AcceptanceCounts]) -> dict[str, Any]:
    """What became of the drafts, where there were any."""
    counts = AcceptanceCounts()
    for batch in measured:
        counts.add(batch)
    if counts.num_drafts == 0:
        return {}
    return {
        "acceptance_rate": counts.acceptance_rate,
        "mean_acceptance_length": counts.mean_acceptance_length,
        "acceptance_by_position": [count / counts.num_drafts for count in counts.num_accepted_tokens_per_pos],
    }


def summarize_lengths(rows: list[list[int]]) -> dict[str, Any]:
    """Histogram of the acceptance lengths, and their mean by position in the answer."""
    if not rows:
        return {}
    counts = Counter(length for row in rows for length in row)
    tokens, forwards = Counter(), Counter()
    for row in rows:
        position = 0
        for length in row:
            bucket = position // POSITION_BUCKET
            tokens[bucket] += length
            forwards[bucket] += 1
            position += length
    return {
        "acceptance_lengths": [counts[length] for length in range(max(counts) + 1)],
        "tokens_per_forward_by_position": [tokens[b] / forwards[b] for b in sorted(forwards)],
    }


def tokenize(tokenizer: PreTrainedTokenizerBase, prompts: list[list[dict[str, str]]]):
    """Left-padded inputs for `generate`."""
    return tokenizer.apply_chat_template(
        prompts,
        add_generation_prompt=True,
        padding=True,
        return_dict=True,
        return_tensors="pt",
        tokenizer_kwargs={"padding_side": "left"},
    )


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)
