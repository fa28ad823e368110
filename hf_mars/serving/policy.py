"""From load to threshold."""

import time
from collections.abc import Callable
from dataclasses import dataclass


__all__ = ["Load", "LoadLevels", "ThresholdPolicy"]

POLICIES = ("lossless", "adaptive", "fixed")


@dataclass(frozen=True)
class Load:
    """
    How busy a server is.

    Args:
        running (`int`): Requests that decode or have their prompt read.
        queued (`int`): Requests that wait for a row.
        max_rows (`int`): Rows that can decode at once.
        kv_use (`float`): Share of the memory for keys and values that is promised, between 0 and 1.
    """

    running: int
    queued: int
    max_rows: int
    kv_use: float

    @property
    def pressure(self) -> float:
        """1 is a server whose rows or memory are all in use; above 1 requests wait."""
        return max((self.running + self.queued) / self.max_rows, self.kv_use)


@dataclass(frozen=True)
class LoadLevels:
    """
    The levels between no load and full load.

    Args:
        low, high (`float`, *optional*, defaults to 0.5 and 1.0):
            Pressure up to which nothing moves, and from which on the highest level is reached.
        num_levels (`int`, *optional*, defaults to 4): Steps from one to the other.
        margin (`float`, *optional*, defaults to 0.05): How far the pressure must fall below a level to leave it.

    Raises:
        `ValueError`: If one is out of range.
    """

    low: float = 0.5
    high: float = 1.0
    num_levels: int = 4
    margin: float = 0.05

    def __post_init__(self):
        if not 0 <= self.low < self.high:
            raise ValueError(f"`low` must be at least 0 and below `high`, got {self.low} and {self.high}.")
        if self.num_levels < 1:
            raise ValueError(f"`num_levels` must be at least 1, got {self.num_levels}.")
        if self.margin < 0:
            raise ValueError(f"`margin` must be at least 0, got {self.margin}.")

    def level_of(self, pressure: float) -> int:
        """The level that a pressure has reached."""
        position = (pressure - self.low) / (self.high - self.low)
        return min(max(int(position * self.num_levels + 1e-9), 0), self.num_levels)

    def is_below(self, pressure: float, level: int) -> bool:
        """Whether a pressure lies far enough below a level to leave it."""
        return self.level_of(pressure + self.margin) < level


class ThresholdPolicy:
    """
    Turns the threshold with the load, within bounds and with hysteresis: upwards as soon as the pressure rises, back
    one level at a time once it has stayed below the level for `patience` seconds.

    Lossy decoding accepts more under load, from `threshold_max` down to `threshold_min`: the paper's tradeoff of
    quality for speed (section 3.4). Verified decoding always returns the same text and needs no threshold: how far a
    step drafts is planned by what it costs with the rows that are there, see [`Planner`].

    Args:
        kind (`str`, *optional*, defaults to `"lossless"`):
            `"lossless"`: requests are verified unless they say otherwise. `"adaptive"`: requests are lossy unless they
            say otherwise. `"fixed"`: load changes nothing; the threshold is `threshold_max`, of verified ones too.
        threshold_min, threshold_max (`float`, *optional*, defaults to 0.5 and 0.95):
            Bounds, between 0 and 1.
        verify (`bool`, *optional*, defaults to `False`): Whether `"fixed"` verifies.
        levels ([`LoadLevels`], *optional*): Steps from one bound to the other.
        patience (`float`, *optional*, defaults to 1.0): Seconds that the pressure must stay below a level to leave it.
        clock (`Callable[[], float]`, *optional*): Seconds.

    Raises:
        `ValueError`: If an argument is out of range.
    """

    def __init__(
        self,
        kind: str = "lossless",
        threshold_min: float = 0.5,
        threshold_max: float = 0.95,
        verify: bool = False,
        levels: LoadLevels | None = None,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        if kind not in POLICIES:
            raise ValueError(f"`policy` must be one of {', '.join(POLICIES)}, got {kind!r}.")
        if not 0 <= threshold_min <= threshold_max <= 1:
            raise ValueError(
                "`threshold_min` and `threshold_max` must lie between 0 and 1, the first one not above the second, "
                f"got {threshold_min} and {threshold_max}."
            )
        if verify and kind == "adaptive":
            raise ValueError("`verify` contradicts the policy 'adaptive', which is lossy: use 'lossless'.")
        if patience < 0:
            raise ValueError(f"`patience` must be at least 0, got {patience}.")
        self.kind, self.verify = kind, verify or kind == "lossless"
        self.threshold_min, self.threshold_max = threshold_min, threshold_max
        self.levels, self.patience, self.clock = levels or LoadLevels(), patience, clock
        self.level = 0
        self.pinned: float | None = None
        self._calm_since: float | None = None

    def update(self, load: Load) -> None:
        """Look at the load; called at every step of the server."""
        if self.kind == "fixed":
            return
        wanted = self.levels.level_of(load.pressure)
        if wanted >= self.level:
            self.level, self._calm_since = wanted, None
            return
        if not self.levels.is_below(load.pressure, self.level):
            self._calm_since = None
            return
        now = self.clock()
        if self._calm_since is None:
            self._calm_since = now
        if now - self._calm_since >= self.patience:
            self.level, self._calm_since = self.level - 1, now

    def lossy_threshold(self) -> float:
        """The threshold of requests that are not verified."""
        if self.pinned is not None:
            return self.pinned
        return self.threshold_max - self._shift()

    def draft_threshold(self) -> float | None:
        """The threshold of requests that are verified and start now; `None` where their steps are planned."""
        if self.pinned is not None:
            return self.pinned
        return self.threshold_max if self.kind == "fixed" else None

    def threshold(self) -> float | None:
        """The threshold of requests that set nothing; `None` where their steps are planned."""
        return self.draft_threshold() if self.verify else self.lossy_threshold()

    def pin(self, threshold: float | None) -> None:
        """
        Hold the threshold, whatever the load, or let the load turn it again. Verified requests keep what they started
        with.

        Args:
            threshold (`float`, *optional*): Between 0 and 1; `None` lets go.
        """
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f"`threshold` must be between 0 and 1, got {threshold}.")
        self.pinned = threshold

    def _shift(self) -> float:
        return self.level / self.levels.num_levels * (self.threshold_max - self.threshold_min)
