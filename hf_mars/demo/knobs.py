"""What a session may turn while its answer is being generated."""

import multiprocessing
import threading


__all__ = ["Knobs"]


class Knobs:
    """
    A threshold and a stop flag for each session.

    They live in shared memory: on ZeroGPU an answer is generated in a forked process, which could not see a change to
    an ordinary variable.

    Args:
        num_sessions (`int`, *optional*, defaults to 1024): Sessions at a time; the oldest makes room for a new one.
    """

    def __init__(self, num_sessions: int = 1024):
        self._thresholds = multiprocessing.Array("d", num_sessions, lock=False)
        self._stops = multiprocessing.Array("b", num_sessions, lock=False)
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

    def start(self, slot: int, threshold: float) -> None:
        """Begin an answer with this threshold."""
        self._thresholds[slot], self._stops[slot] = threshold, False

    def turn(self, slot: int, threshold: float) -> None:
        self._thresholds[slot] = threshold

    def stop(self, slot: int) -> None:
        self._stops[slot] = True

    def threshold(self, slot: int) -> float:
        return self._thresholds[slot]

    def is_stopped(self, slot: int) -> bool:
        return bool(self._stops[slot])
