"""What happens when someone writes, moves the threshold, or stops."""

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
from transformers import PreTrainedTokenizerBase

from ..checking_text import check_text
from ..evaluation import Evaluation, plot_frontier
from ..generative_model import GenerativeModel
from .answer import Answer, Settings, stream_answer
from .knobs import Knobs
from .page import first_difference, render_answer, render_conversation, render_counters, render_message, render_problem


try:  # ZeroGPU; anywhere else the decorator changes nothing
    from spaces import GPU as on_gpu
except ImportError:

    def on_gpu(function):
        return function


__all__ = ["MAX_NEW_TOKENS", "METRICS", "DemoEvents"]

MAX_PROMPT_TOKENS = 1024
MAX_NEW_TOKENS = 512
METRICS = ["probability", "entropy", "margin"]


class DemoEvents:
    """
    What the events do.

    Args:
        model ([`PreTrainedModel`]): A MARS model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        evaluation ([`Evaluation`], *optional*): A sweep that was measured on it.
    """

    def __init__(
        self, model: GenerativeModel, tokenizer: PreTrainedTokenizerBase, evaluation: Evaluation | None = None
    ):
        self.model, self.tokenizer, self.evaluation = model, tokenizer, evaluation
        self.knobs = Knobs()
        self.pictures = tempfile.TemporaryDirectory()

        @on_gpu
        def stream(messages: list[dict[str, str]], settings: Settings, slot: int, number: int) -> Iterator[Answer]:
            yield from stream_answer(
                model,
                tokenizer,
                messages,
                settings,
                read_threshold=lambda: self.knobs.threshold(slot),
                is_stopped=lambda: self.knobs.is_stopped(slot, number),
            )

        self.stream = stream

    def check(self, messages: list[dict[str, str]], settings: Settings) -> None:
        """
        Raises:
            `ValueError`: If the conversation or a setting is beyond its limits; the message is for the user.
        """
        text = messages[-1]["content"]
        if not isinstance(text, str):
            raise ValueError(f"The message must be text, got {text!r}.")
        if not check_text(text, "message").strip():
            raise ValueError("Write something first.")
        encoded: Any = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        ids = encoded["input_ids"]
        if len(ids) > MAX_PROMPT_TOKENS:
            raise ValueError(
                f"The conversation has {len(ids)} tokens, and at most {MAX_PROMPT_TOKENS} are read here: shorten it, "
                "or start a new one."
            )
        if not 1 <= settings.max_new_tokens <= MAX_NEW_TOKENS:
            raise ValueError(f"The length must be between 1 and {MAX_NEW_TOKENS} tokens.")
        largest = 2 * self.model.config.mars["block_size"]
        if settings.block_size is not None and not 2 <= settings.block_size <= largest:
            raise ValueError(f"The block size must be between 2 and {largest}.")
        if settings.metric not in METRICS:
            raise ValueError(f"The metric must be one of {', '.join(METRICS)}.")
        if settings.threshold is not None and not 0 <= settings.threshold <= 1:
            raise ValueError("The threshold must be between 0 and 1.")

    def turn(self, threshold: float, metric: str, request: gr.Request) -> None:
        """The threshold was moved, perhaps while an answer is written."""
        self.knobs.turn(self.knobs.slot(request.session_hash), to_metric(threshold, metric))

    def stop(self, request: gr.Request) -> None:
        self.knobs.stop(self.knobs.slot(request.session_hash))

    def clear(self, request: gr.Request) -> tuple:
        """Drop the answer that is being written, and return an empty page, from the history on."""
        self.knobs.drop(self.knobs.slot(request.session_hash))
        return empty_page()

    def respond(
        self,
        message: str,
        history: list[dict[str, Any]],
        is_on: bool,
        threshold: float,
        block_size: float,
        lossless: bool,
        metric: str,
        temperature: float,
        max_new_tokens: float,
        compare: bool,
        request: gr.Request,
    ) -> Iterator[tuple]:
        """Yields the text box, the history, the conversation, the counters, the plain answer and its counters."""
        settings = Settings(
            threshold=threshold if is_on else None,
            block_size=int(block_size),
            lossless=lossless,
            metric=metric,
            temperature=temperature,
            max_new_tokens=int(max_new_tokens),
            is_planned=lossless,
        )
        turns = [turn["html"] for turn in history]
        messages = [{"role": turn["role"], "content": turn["content"]} for turn in history]
        messages.append({"role": "user", "content": message})
        try:
            self.check(messages, settings)
        except ValueError as error:
            given = message.encode(errors="replace").decode()  # half a character cannot be sent back
            yield given, history, render_conversation([*turns, render_problem(str(error))]), "", "", ""
            return
        slot = self.knobs.slot(request.session_hash)
        number = self.knobs.start(slot, to_metric(threshold, metric))
        turns.append(render_message(message))
        yield "", history, render_conversation(turns), "", "", ""

        answer = Answer()
        shown, counters, compared = "", "", ("", "")
        try:
            for answer in self.stream(messages, settings, slot, number):
                if not self.knobs.is_wanted(slot, number):
                    break
                shown, counters = render_answer(answer), render_counters(answer, note(answer, settings))
                yield "", history, render_conversation([*turns, shown]), counters, "", ""
            if compare and not answer.is_stopped and self.knobs.is_wanted(slot, number):
                greedy = Settings(threshold=None, temperature=temperature, max_new_tokens=settings.max_new_tokens)
                for plain in self.stream(messages, greedy, slot, number):
                    if not self.knobs.is_wanted(slot, number):
                        break
                    differs_at = first_difference(answer, plain)
                    shown = render_answer(answer, differs_at)
                    figures = render_counters(plain, verdict(answer, plain, differs_at))
                    compared = render_answer(plain, differs_at), figures
                    yield "", history, render_conversation([*turns, shown]), counters, *compared
        except Exception as error:  # shown to the user as one line, and to the log in full
            gr.Warning("Something went wrong; the log has the details.")
            yield "", history, render_conversation([*turns, shown, render_problem(describe(error))]), counters, "", ""
            raise
        if not self.knobs.is_wanted(slot, number):
            # What was yielded before may have reached the page after the click, but not after this.
            yield gr.skip(), *empty_page()
            return
        history = [
            *history,
            {"role": "user", "content": message, "html": turns[-1]},
            {"role": "assistant", "content": answer.text, "html": shown},
        ]
        yield "", history, render_conversation([*turns, shown]), counters, *compared

    def generate(
        self,
        message: str,
        threshold: float | None = 0.9,
        block_size: int | None = None,
        lossless: bool = True,
        metric: str = "probability",
        temperature: float = 0.0,
        max_new_tokens: int = 256,
    ) -> dict[str, Any]:
        """
        The API: one answer with its runs.

        Returns:
            `dict`: `text`, `acceptance_lengths`, `num_forward_passes`, `tokens_per_forward` and `seconds`.
        """
        settings = Settings(threshold, block_size, lossless, metric, temperature, max_new_tokens)
        messages = [{"role": "user", "content": message}]
        try:
            self.check(messages, settings)
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error
        session = f"api {uuid.uuid4()}"
        slot = self.knobs.slot(session)
        number = self.knobs.start(slot, 0.0 if threshold is None else to_metric(threshold, metric))
        answer = Answer()
        try:
            for longer in self.stream(messages, settings, slot, number):
                answer = longer
        finally:
            self.knobs.release(session)
        return {
            "text": answer.text,
            "acceptance_lengths": answer.acceptance_lengths,
            "num_forward_passes": len(answer.pieces),
            "tokens_per_forward": answer.tokens_per_forward,
            "seconds": answer.seconds,
        }

    def draw(self, threshold: float) -> str | None:
        """The measured frontier, with this threshold marked."""
        if self.evaluation is None:
            return None
        path = Path(self.pictures.name) / f"frontier_{threshold:.2f}.png"
        if not path.exists():
            results = self.evaluation.main_results()
            title = f"{results[0].task}, {results[0].num_examples} examples, batch {results[0].batch_size}"
            plot_frontier(results, path, title=title, marked_threshold=threshold)
        return str(path)


def empty_page() -> tuple:
    """The history, the conversation, the counters, the plain answer and its counters before there is any."""
    return [], render_conversation([]), "", "", ""


def to_metric(threshold: float, metric: str) -> float:
    """The slider counts confidence upwards; entropy falls as confidence grows: 1 stands for 0 nats, 0.5 for 1."""
    return 2 * (1 - threshold) if metric == "entropy" else threshold


def note(answer: Answer, settings: Settings) -> str:
    if answer.is_stopped:
        return "stopped"
    return "plain" if settings.threshold is None else "lossless" if settings.lossless else "lossy"


def verdict(answer: Answer, plain: Answer, differs_at: int | None) -> str:
    if differs_at is not None:
        return f"differs from token {differs_at + 1} on"
    speedup = plain.seconds / answer.seconds if answer.seconds else 0.0
    return f"same tokens, in {speedup:.2f} times the time" if plain.token_ids == answer.token_ids else "same so far"


def describe(error: Exception) -> str:
    return f"The answer could not be finished: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
