"""Several ways to decode the same prompts, measured in one run."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase


__all__ = ["Mode", "ModeResult", "format_table", "measure_modes"]


@dataclass(frozen=True)
class Mode:
    """
    One way to decode.

    Args:
        name (`str`): `"AR"`, `"lossy"` or `"verify"`.
        threshold (`float`, *optional*): `mars_threshold`; `None` for plain autoregressive decoding.
    """

    name: str
    threshold: float | None = None

    @property
    def arguments(self) -> dict:
        """The `mars_*` arguments of `generate`; none for plain autoregressive decoding."""
        if self.threshold is None:
            return {}
        return {"mars_threshold": self.threshold, "mars_verify": self.name == "verify"}

    def __str__(self) -> str:
        return self.name if self.threshold is None else f"{self.name} {self.threshold:g}"


@dataclass
class ModeResult:
    """
    What one mode measured.

    Args:
        mode (`str`): Name of the mode.
        threshold (`float`, *optional*): Its threshold.
        batch_size (`int`): Prompts decoded together.
        task (`str`): Name of what was asked.
        num_examples (`int`): Number of prompts.
        accuracy (`float`, *optional*): Share of right answers; `None` without a scorer.
        tokens_per_forward (`float`): Generated tokens over forward passes, row by row.
        tokens_per_second (`float`): Generated tokens over seconds of wall clock, prompts included.
        speedup (`float`): `tokens_per_second` over that of the first mode.
        identical (`float`): Share of outputs that are token for token those of the first mode.
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
    texts: list[str] = field(repr=False)

    @property
    def label(self) -> str:
        """Mode and threshold."""
        return str(Mode(self.mode, self.threshold))


def measure_modes(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[list[dict[str, str]]],
    modes: list[Mode],
    batch_size: int,
    max_new_tokens: int = 256,
    is_correct: Callable[[int, str], bool] | None = None,
    task: str = "prompts",
) -> list[ModeResult]:
    """
    Decode the prompts greedily in every mode. Modes take turns on each batch, so that a machine whose speed drifts
    slows them all alike; one batch is decoded beforehand and not counted.

    Args:
        model ([`PreTrainedModel`]): A MARS model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer, with a chat template.
        prompts (`list[list[dict]]`): Chat messages, one list a prompt.
        modes (`list[Mode]`): The first one is what the others are compared with.
        batch_size (`int`): Prompts decoded together.
        max_new_tokens (`int`, *optional*, defaults to 256): Limit a prompt.
        is_correct (`Callable[[int, str], bool]`, *optional*):
            From a prompt's index and the output to whether it is right.
        task (`str`, *optional*, defaults to `"prompts"`): Name of what is asked.

    Returns:
        `list[ModeResult]`, in the order of `modes`.
    """
    seconds = [0.0] * len(modes)
    outputs: list[list[list[int]]] = [[] for _ in modes]
    forwards = [0] * len(modes)
    starts = range(0, len(prompts), batch_size)
    with tqdm(
        total=len(starts) * len(modes), desc=f"decode, batch {batch_size}", unit="batch", disable=None
    ) as progress:
        for start in starts:
            inputs = tokenize(tokenizer, prompts[start : start + batch_size]).to(model.device)
            for index, mode in enumerate(modes):
                if start == 0:
                    decode_batch(model, inputs, mode, max_new_tokens=8)
                tokens, num_forwards, elapsed = decode_batch(model, inputs, mode, max_new_tokens)
                outputs[index] += tokens
                forwards[index] += num_forwards
                seconds[index] += elapsed
                progress.update()

    results = []
    for index, mode in enumerate(modes):
        texts = tokenizer.batch_decode(outputs[index], skip_special_tokens=True)
        num_tokens = sum(map(len, outputs[index]))
        rate = num_tokens / seconds[index]
        results.append(
            ModeResult(
                mode=mode.name,
                threshold=mode.threshold,
                batch_size=batch_size,
                task=task,
                num_examples=len(prompts),
                accuracy=None if is_correct is None else mean(is_correct(i, text) for i, text in enumerate(texts)),
                tokens_per_forward=num_tokens / forwards[index],
                tokens_per_second=rate,
                speedup=rate / results[0].tokens_per_second if results else 1.0,
                identical=mean(a == b for a, b in zip(outputs[index], outputs[0], strict=True)),
                texts=texts,
            )
        )
    return results


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


def decode_batch(model, inputs, mode: Mode, max_new_tokens: int) -> tuple[list[list[int]], int, float]:
    """Generated tokens of each row (end-of-sequence included, padding not), forward passes row by row, seconds."""
    synchronize(model.device)
    start = time.perf_counter()
    output = model.generate(
        **inputs, max_new_tokens=max_new_tokens, do_sample=False, return_dict_in_generate=True, **mode.arguments
    )
    synchronize(model.device)
    elapsed = time.perf_counter() - start
    generated = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    if mode.threshold is not None:
        lengths = [sum(run_lengths) for run_lengths in output.run_lengths]
        num_forwards = sum(map(len, output.run_lengths))
    else:
        eos = model.generation_config.eos_token_id
        eos = set(eos if isinstance(eos, list) else [eos])
        lengths = [next((i + 1 for i, token in enumerate(row) if token in eos), len(row)) for row in generated]
        num_forwards = sum(lengths)
    return [row[:length] for row, length in zip(generated, lengths, strict=True)], num_forwards, elapsed


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that a clock read afterwards tells the truth."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def format_table(results: list[ModeResult]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| mode | batch | accuracy | tokens/forward | tokens/s | speedup over AR | identical to AR |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for result in results:
        accuracy = "" if result.accuracy is None else f"{result.accuracy:.2f}"
        lines.append(
            f"| {result.label} | {result.batch_size} | {accuracy} | {result.tokens_per_forward:.2f} "
            f"| {result.tokens_per_second:.1f} | {result.speedup:.2f} | {result.identical:.0%} |"
        )
    return "\n".join(lines)
