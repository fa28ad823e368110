"""What a session may turn while its answer is being generated."""

import multiprocessing
import threading


__all__ = ["Knobs"]


class Knobs:
    """
    A threshold, a stop flag and the number of the running answer for each session.

    They live in shared memory: on ZeroGPU an answer is generated in a forked process, which could not see a change to
    an ordinary variable.

    Args:
        num_sessions (`int`, *optional*, defaults to 1024): Sessions at a time; the oldest makes room for a new one.
    """

    def __init__(self, num_sessions: int = 1024):
        self._thresholds = multiprocessing.Array("d", num_sessions, lock=False)
        self._stops = multiprocessing.Array("b", num_sessions, lock=False)
        self._numbers = multiprocessing.Array("q", num_sessions, lock=False)
        self._slots: dict[str, int] = {}
        self._free = list(reversed(range(num_sessions)))
        self._lock = threading.Lock()

    def slot(self, session: str | None) -> int:
        """The place of a session, given at its first call."""
        session = session or ""
        with self._lock:
            slot = self._slots.pop(session, None)
            if slot is None:
                slot = self._free.pop() if self._free else self._slots.pop(next(iter(self._slots)))
            self._slots[session] = slot  # the most recent one comes last
        return slot

    def release(self, session: str) -> None:
        """Give up the place of a session."""
        with self._lock:
            slot = self._slots.pop(session, None)
            if slot is not None:
                self._free.append(slot)

    def start(self, slot: int, threshold: float) -> int:
        """Begin an answer with this threshold; returns its number."""
        self._thresholds[slot], self._stops[slot] = threshold, False
        return self.drop(slot)

    def drop(self, slot: int) -> int:
        """Whatever is being written is wanted no more; returns the number of what comes next."""
        with self._lock:
            self._numbers[slot] += 1
            return self._numbers[slot]

    def turn(self, slot: int, threshold: float) -> None:
        self._thresholds[slot] = threshold

    def stop(self, slot: int) -> None:
        self._stops[slot] = True

    def threshold(self, slot: int) -> float:
        return self._thresholds[slot]

    def is_wanted(self, slot: int, number: int) -> bool:
        """Whether the answer of that number was neither dropped nor followed by another."""
        return self._numbers[slot] == number

    def is_stopped(self, slot: int, number: int) -> bool:
        """Whether the answer of that number is to end at the next step."""
        return bool(self._stops[slot]) or not self.is_wanted(slot, number)
