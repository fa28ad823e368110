"""A sweep as a Markdown table."""

from .intervals import CONFIDENCE_LEVEL
from .sweep import MethodResult


__all__ = ["format_table"]


def format_table(results: list[MethodResult], dtype: str | None = None) -> str:
    """
    One row a result; an accuracy is followed by its interval. Columns in which nothing was measured are left out.

    Args:
        results (`list[MethodResult]`): What was measured.
        dtype (`str`, *optional*): Data type of the model that was measured, for a column of that name.
    """
    has_intervals = any(result.accuracy_interval for result in results)
    columns = {
        "task": [result.task for result in results],
        "batch": [str(result.batch_size) for result in results],
        "dtype": [dtype or "" for _ in results],
        "mode": [result.label for result in results],
        "lossless": ["yes" if result.lossless else "no" for result in results],
        "n": [str(result.num_examples) for result in results],
        f"accuracy ({CONFIDENCE_LEVEL:.0%})" if has_intervals else "accuracy": [accuracy(r) for r in results],
        "tokens/forward": [number(result.tokens_per_forward, ".2f") for result in results],
        "accepted": [number(result.acceptance_rate, ".0%") for result in results],
        "by position": [shares(result.acceptance_by_position) for result in results],
        "tokens/s": [number(result.tokens_per_second, ".1f") for result in results],
        "speedup": [number(result.speedup, ".2f") for result in results],
        "identical": [number(result.identical, ".0%") for result in results],
        "first token, ms": [number(scaled(result.first_token_seconds, 1e3), ".0f") for result in results],
        "outside forwards": [number(result.outside_forwards, ".0%") for result in results],
        "columns": [number(result.columns, ".1f") for result in results],
        "peak memory, GB": [number(scaled(result.peak_memory, 1e-9), ".2f") for result in results],
    }
    if len(set(columns["task"])) == 1:
        del columns["task"]
    columns = {name: values for name, values in columns.items() if any(values)}
    alignment = ["---" if name in ("task", "dtype", "mode", "lossless") else "---:" for name in columns]
    lines = [list(columns), alignment, *zip(*columns.values(), strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def accuracy(result: MethodResult) -> str:
    text = number(result.accuracy, ".2f")
    if result.accuracy_interval is None:
        return text
    return "{} ({:.2f} to {:.2f})".format(text, *result.accuracy_interval)


def number(value: float | None, pattern: str) -> str:
    return "" if value is None else format(value, pattern)


def shares(values: list[float] | None) -> str:
    return " ".join(format(value, ".2f") for value in values or [])


def scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
