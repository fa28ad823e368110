"""Training by the clock instead of by steps."""

import math
import time

from tqdm.auto import tqdm
from transformers import TrainerCallback


__all__ = ["TimedTraining"]


class TimedTraining(TrainerCallback):
    """
    Ends a training after a given time, with a cosine learning rate over that time, and shows a progress bar.

    The number of steps that fit is not known beforehand, so the learning rate is set from the elapsed share of the
    time before every step, after a short warm-up.

    Args:
        seconds (`float`): Duration of the training.
        learning_rate (`float`): Peak learning rate.
        warmup_steps (`int`, *optional*, defaults to 10): Steps of linear warm-up.
    """

    def __init__(self, seconds: float, learning_rate: float, warmup_steps: int = 10):
        self.seconds, self.learning_rate, self.warmup_steps = seconds, learning_rate, warmup_steps
        self.history: list[dict] = []

    def on_train_begin(self, args, state, control, **kwargs):
        self.start = time.monotonic()
        bar_format = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        self.progress = tqdm(total=self.seconds, desc="train", bar_format=bar_format, disable=None)

    def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
        elapsed = min((time.monotonic() - self.start) / self.seconds, 1.0)
        warmup = min(1.0, (state.global_step + 1) / self.warmup_steps)
        for group in optimizer.param_groups if optimizer else ():
            group["lr"] = self.learning_rate * warmup * 0.5 * (1 + math.cos(math.pi * elapsed))

    def on_step_end(self, args, state, control, **kwargs):
        elapsed = time.monotonic() - self.start
        self.progress.update(min(elapsed, self.seconds) - self.progress.n)
        if elapsed >= self.seconds:
            control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **kwargs):
        names = ("ar_loss", "mask_loss", "mask_accuracy")
        values = {name: round(logs[name], 3) for name in names if name in (logs := logs or {})}
        if not values or "train_runtime" in logs:
            return
        elapsed = time.monotonic() - self.start
        self.history.append({"step": state.global_step, "seconds": round(elapsed), **values})
        self.progress.set_postfix(step=state.global_step, **values)
        if self.progress.disable:  # not a terminal: a line a minute instead of a bar
            self._print_each_minute(elapsed, state.global_step, values)

    def on_train_end(self, args, state, control, **kwargs):
        self.progress.close()

    def _print_each_minute(self, elapsed: float, step: int, values: dict[str, float]) -> None:
        minute = int(elapsed // 60)
        if minute > getattr(self, "_last_minute", -1):
            self._last_minute = minute
            summary = ", ".join(f"{name} {value}" for name, value in values.items())
            print(f"train: {elapsed / 60:.1f} of {self.seconds / 60:g} minutes, step {step}, {summary}", flush=True)
