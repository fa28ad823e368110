"""How far a mean of few examples can be trusted: bootstrap confidence intervals."""

import numpy as np

from ..extras import check_installed


__all__ = ["CONFIDENCE_LEVEL", "ratio_interval", "share_interval"]

CONFIDENCE_LEVEL = 0.95
SEED = 0  # of the resampling, so that the same measurements give the same interval


def share_interval(outcomes: list[bool]) -> list[float]:
    """
    Interval of the share of examples that came out right.

    Where all came out alike every resample is the same and a bootstrap would claim certainty; there it is the exact
    binomial interval (Clopper and Pearson): none of 24 may still be 14%.

    Args:
        outcomes (`list[bool]`): One of each example.

    Returns:
        `list[float]`: Its ends, between 0 and 1.
    """
    check_installed("eval", "scipy")
    from scipy.stats import binomtest

    right = sum(outcomes)
    if right in (0, len(outcomes)):
        interval = binomtest(right, len(outcomes)).proportion_ci(CONFIDENCE_LEVEL)
        return [float(interval.low), float(interval.high)]
    return bootstrap_interval([np.array(outcomes, dtype=float)], np.mean)


def ratio_interval(numerators: list[int], denominators: list[int]) -> list[float] | None:
    """
    Interval of the ratio of two sums over the same examples.

    Args:
        numerators (`list[int]`): One of each example.
        denominators (`list[int]`): One of each example.

    Returns:
        `list[float]`, *optional*: Its ends. `None` for a single example, which says nothing of others.
    """
    check_installed("eval", "scipy")
    above, below = np.array(numerators), np.array(denominators)
    if len(above) < 2:
        return None
    if len(np.unique(above / below)) == 1:  # such as one token a forward
        return [float(above[0] / below[0])] * 2
    return bootstrap_interval([above, below], lambda a, b, axis: a.sum(axis) / b.sum(axis))


def bootstrap_interval(columns: list[np.ndarray], statistic) -> list[float]:
    """Bias-corrected and accelerated; the columns are resampled together."""
    from scipy.stats import bootstrap

    interval = bootstrap(
        columns, statistic, paired=True, vectorized=True, confidence_level=CONFIDENCE_LEVEL, batch=1000, rng=SEED
    ).confidence_interval
    return [float(interval.low), float(interval.high)]
