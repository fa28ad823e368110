"""How far it is, in a terminal and out of one."""

import sys
import time

from tqdm.auto import tqdm


__all__ = ["AnswerProgress"]

SECONDS = 30  # between two lines where there is no terminal


class AnswerProgress:
    """
    A bar in a terminal, else a line from time to time: answers, tokens a second, and how long it will take.

    Args:
        total (`int`): Answers to make.
        done (`int`): Answers that are there from before.
    """

    def __init__(self, total: int, done: int):
        self.total, self.done = total, done
        self.num_made = self.num_tokens = 0
        self.start = self.last = time.monotonic()
        self.bar = tqdm(total=total, initial=done, desc="answers", unit="answer", disable=not sys.stderr.isatty())

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / max(time.monotonic() - self.start, 1e-9)

    def update(self, num_answers: int, num_tokens: int) -> None:
        """Count a batch."""
        self.num_made += num_answers
        self.num_tokens += num_tokens
        self.bar.update(num_answers)
        self.bar.set_postfix_str(f"{self.tokens_per_second:.1f} tokens/s")
        now = time.monotonic()
        if self.bar.disable and (now - self.last >= SECONDS or self.done + self.num_made == self.total):
            self.last = now
            left = (self.total - self.done - self.num_made) * (now - self.start) / self.num_made
            print(
                f"answers: {self.done + self.num_made} of {self.total}, {self.tokens_per_second:.1f} tokens/s, "
                f"about {left / 60:.1f} minutes left",
                flush=True,
            )

    def close(self) -> None:
        self.bar.close()
