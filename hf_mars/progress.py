"""How far something is, in a terminal and out of one."""

import sys
import time

from tqdm.auto import tqdm


__all__ = ["Progress"]

SECONDS = 10  # between two lines where there is no terminal


class Progress:
    """
    A bar in a terminal, else a line from time to time; both tell how long it will take.

    ```python
    >>> with Progress("answers", total=64, unit="answer") as progress:
    ...     progress.update(8, note="31.5 tokens/s")
    ```

    Args:
        name (`str`): What is done.
        total (`int`): How much there is of it.
        unit (`str`, *optional*, defaults to `"batch"`): What is counted; bytes are `"B"`.
        done (`int`, *optional*, defaults to 0): What is there from before, and tells nothing about the speed.

    Attributes:
        seconds (`float`): Since the beginning.
    """

    def __init__(self, name: str, total: int, unit: str = "batch", done: int = 0):
        self.name, self.total, self.unit, self.done = name, total, unit, done
        self.num_made = 0
        self.start = self.last = time.monotonic()
        self.bar = tqdm(
            total=total, initial=done, desc=name, unit=unit, unit_scale=unit == "B", disable=not sys.stderr.isatty()
        )

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.start, 1e-9)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.close()

    def skip(self, count: int = 1) -> None:
        """Count what was there from before."""
        self.done += count
        self.bar.update(count)

    def update(self, count: int = 1, note: str = "") -> None:
        """
        Count what was done.

        Args:
            count (`int`, *optional*, defaults to 1): How much it was.
            note (`str`, *optional*): What else to tell.
        """
        self.num_made += count
        self.bar.update(count)
        if note:
            self.bar.set_postfix_str(note)
        now = time.monotonic()
        if self.bar.disable and (now - self.last >= SECONDS or self.done + self.num_made == self.total):
            self.last = now
            print(", ".join(filter(None, [self._describe(), note, self._time_left()])), flush=True)

    def _describe(self) -> str:
        done = self.done + self.num_made
        if self.unit == "B":
            return f"{self.name}: {done / 1e6:.0f} of {self.total / 1e6:.0f} MB"
        plural = f"{self.unit}es" if self.unit.endswith("ch") else f"{self.unit}s"
        return f"{self.name}: {done} of {self.total} {plural}"

    def _time_left(self) -> str:
        num_left, elapsed = self.total - self.done - self.num_made, self.seconds
        if num_left == 0:
            return in_words(elapsed)
        return f"about {in_words(num_left * elapsed / max(self.num_made, 1))} left"


def in_words(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.1f} minutes"
