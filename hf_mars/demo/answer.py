"""An answer as it comes: one piece of text for each forward pass."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from ..generative_model import GenerativeModel
from ..text_stream import TextStream


__all__ = ["Answer", "Piece", "Settings", "stream_answer"]


@dataclass(frozen=True)
class Settings:
    """
    How to generate.

    Args:
        threshold (`float`, *optional*): `mars_threshold` at the start; `None` for plain decoding.
        block_size (`int`, *optional*): `mars_block_size`.
        lossless (`bool`, *optional*, defaults to `True`): `mars_verify`.
        metric (`str`, *optional*, defaults to `"probability"`): `mars_metric`.
        temperature (`float`, *optional*, defaults to 0.0): 0 is greedy.
        max_new_tokens (`int`, *optional*, defaults to 256): Limit of the answer.
        is_planned (`bool`, *optional*, defaults to `False`):
            Whether each step drafts as far as it pays, whatever the threshold: for lossless answers.
    """

    threshold: float | None = 0.9
    block_size: int | None = None
    lossless: bool = True
    metric: str = "probability"
    temperature: float = 0.0
    max_new_tokens: int = 256
    is_planned: bool = False

    def arguments(self, read_threshold: Callable[[], float]) -> dict[str, Any]:
        """Arguments of `generate`; the threshold is read anew at every step."""
        arguments: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "do_sample": self.temperature > 0}
        if self.temperature > 0:
            arguments["temperature"] = self.temperature
        if self.threshold is not None:
            arguments["mars_verify"] = self.lossless
            if not self.is_planned:
                arguments |= {"mars_threshold": read_threshold, "mars_metric": self.metric}
            if self.block_size is not None:
                arguments["mars_block_size"] = self.block_size
        return arguments


@dataclass
class Piece:
    """
    What one forward pass added.

    Args:
        text (`str`): Whole characters; those that a token leaves unfinished come with a later piece.
        token_ids (`list[int]`): Its tokens.
        confidences (`list[float]`, *optional*): One for each token; `None` in plain decoding.
        threshold (`float`, *optional*): The threshold at that moment.
    """

    text: str
    token_ids: list[int]
    confidences: list[float] | None = None
    threshold: float | None = None


@dataclass
class Answer:
    """Pieces so far, and what they took."""

    pieces: list[Piece] = field(default_factory=list)
    seconds: float = 0.0
    is_stopped: bool = False

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def token_ids(self) -> list[int]:
        return [token for piece in self.pieces for token in piece.token_ids]

    @property
    def acceptance_lengths(self) -> list[int]:
        return [len(piece.token_ids) for piece in self.pieces]

    @property
    def tokens_per_forward(self) -> float:
        return len(self.token_ids) / len(self.pieces) if self.pieces else 0.0

    @property
    def tokens_per_second(self) -> float:
        return len(self.token_ids) / self.seconds if self.seconds else 0.0


class Stopped(Exception):
    """Raised in the generating thread to end it."""


class QueueStreamer(BaseStreamer):
    """Passes runs to another thread."""

    def __init__(self, is_stopped: Callable[[], bool]):
        self.queue: queue.Queue = queue.Queue()
        self.is_stopped, self.has_prompt = is_stopped, False

    def put(self, value: torch.Tensor) -> None:
        if self.has_prompt:
            self.put_accepted(value, None)
        self.has_prompt = True

    def put_accepted(self, token_ids: torch.Tensor, confidences: torch.Tensor | None) -> None:
        if self.is_stopped():
            raise Stopped
        values = None if confidences is None else confidences.tolist()
        self.queue.put((token_ids.flatten().tolist(), values, time.perf_counter()))

    def end(self) -> None:
        pass  # the generating thread tells when it is done


def stream_answer(
    model: GenerativeModel,
    tokenizer: PreTrainedTokenizerBase,
    messages: list[dict[str, str]],
    settings: Settings,
    read_threshold: Callable[[], float],
    is_stopped: Callable[[], bool],
) -> Iterator[Answer]:
    """
    Generate an answer in another thread, and yield it, longer by one forward pass each time. Closing the iterator ends
    the generation.

    Args:
        model ([`PreTrainedModel`]): A MARS model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer, with a chat template.
        messages (`list[dict]`): The conversation.
        settings ([`Settings`]): How to generate.
        read_threshold (`Callable[[], float]`): The threshold of the next step.
        is_stopped (`Callable[[], bool]`): Whether to end at the next step.
    """
    inputs: Any = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    is_closed = threading.Event()
    streamer = QueueStreamer(lambda: is_closed.is_set() or is_stopped())
    start = time.perf_counter()

    def generate() -> None:
        outcome = None
        try:
            model.generate(**inputs.to(model.device), streamer=streamer, **settings.arguments(read_threshold))
        except Stopped as stopped:
            outcome = stopped
        except Exception as error:
            outcome = error
        streamer.queue.put((None, outcome, time.perf_counter()))

    thread = threading.Thread(target=generate, daemon=True)
    thread.start()
    answer, text_stream = Answer(), TextStream(tokenizer)
    try:
        while True:
            token_ids, values, now = streamer.queue.get()
            answer.seconds = now - start
            if token_ids is None:
                break
            threshold = None if settings.threshold is None or settings.is_planned else read_threshold()
            answer.pieces.append(Piece(text_stream.push(token_ids), token_ids, values, threshold))
            yield answer
        if isinstance(values, Stopped):
            answer.is_stopped = True
        elif values is not None:
            raise values
        if answer.pieces:
            answer.pieces[-1].text += text_stream.finish()
        yield answer
    finally:
        is_closed.set()
        thread.join(timeout=30)
