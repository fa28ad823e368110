"""Runs to answers in OpenAI's form, whole or in chunks."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..request import Run, TokenLogprob
from .stop_strings import StoppingTextStream
from .token_bytes import token_bytes


__all__ = ["Answer", "AnswerFormat", "ChatFormat", "CompletionFormat", "usage"]


@dataclass
class Answer:
    """
    One choice as it grows.

    Args:
        index (`int`): Which choice it is.
        text_stream ([`StoppingTextStream`]): Turns its tokens into text.
    """

    index: int
    text_stream: StoppingTextStream
    text: str = ""
    num_forward_passes: int = 0
    finish_reason: str | None = None
    thresholds: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text_offset: int = 0  # of the next token whose log-probability is told

    def add(self, run: Run) -> str:
        """Take in a run, and return the text that can be shown now."""
        self.num_forward_passes += 1
        self.thresholds.append(run.threshold)
        before = self.text_stream.num_tokens
        shown = self.text_stream.push(run.token_ids)
        if self.text_stream.is_stopped:
            self.finish_reason = "stop"
        elif run.finish_reason is not None:
            self.finish_reason = run.finish_reason
            shown += self.text_stream.finish()
            if self.text_stream.is_stopped:
                self.finish_reason = "stop"
        num_tokens = self.text_stream.num_tokens - before
        self.token_ids += run.token_ids[:num_tokens]
        self.logprobs += (run.logprobs or [])[:num_tokens]
        self.text += shown
        return shown


def usage(answers: Sequence[Answer], prompt_tokens: int) -> dict[str, Any]:
    """Token counts, and how many forward passes the answers took; the prompt's own are not counted."""
    completion_tokens = sum(len(answer.token_ids) for answer in answers)
    forward_passes = sum(answer.num_forward_passes for answer in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "forward_passes": forward_passes,
        "tokens_per_forward": round(completion_tokens / forward_passes, 4) if forward_passes else 0.0,
    }


class AnswerFormat:
    """
    What the two endpoints' answers have in common.

    Args:
        model (`str`): Name of the model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        include_usage (`bool`, *optional*, defaults to `False`): Whether a stream ends with a chunk that tells usage.
    """

    prefix: str
    whole: str
    chunk: str

    def __init__(self, model: str, tokenizer: PreTrainedTokenizerBase, include_usage: bool = False):
        self.tokenizer, self.include_usage = tokenizer, include_usage
        self.id, self.created, self.model = f"{self.prefix}-{uuid.uuid4().hex}", int(time.time()), model

    def _frame(self, kind: str, choices: list[dict[str, Any]], **more) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices} | more

    def complete(self, answers: Sequence[Answer], usage: dict[str, Any]) -> dict[str, Any]:
        """All answers at once."""
        return self._frame(self.whole, [self.choice(answer) for answer in answers], usage=usage)

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The last chunk, where usage is wanted."""
        return self._frame(self.chunk, [], usage=usage)

    def _token(self, token_id: int) -> str:
        return self.tokenizer.decode([token_id])


class ChatFormat(AnswerFormat):
    """Answers of `/v1/chat/completions`."""

    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, answer: Answer) -> dict[str, Any]:
        """A whole choice."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        logprobs = self._logprobs(answer, 0)
        return {
            "index": answer.index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": answer.finish_reason,
        }

    def first_chunk(self, answer: Answer) -> dict[str, Any] | None:
        """The chunk that tells the role."""
        return self._chunk(answer, {"role": "assistant", "content": ""}, None)

    def text_chunk(self, answer: Answer, text: str, first_token: int) -> dict[str, Any]:
        """A chunk with text, and the log-probabilities from `first_token` on."""
        return self._chunk(answer, {"content": text}, self._logprobs(answer, first_token))

    def final_chunk(self, answer: Answer) -> dict[str, Any]:
        """The chunk that tells why the answer ended."""
        return self._chunk(answer, {}, None, answer.finish_reason)

    def _chunk(self, answer: Answer, delta: dict, logprobs: dict | None, reason: str | None = None) -> dict[str, Any]:
        choice = {"index": answer.index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._frame(self.chunk, [choice])

    def _logprobs(self, answer: Answer, first_token: int) -> dict[str, Any] | None:
        if not answer.logprobs:
            return None
        entries = [
            self._entry(token_id, entry.logprob)
            | {"top_logprobs": [self._entry(other, logprob) for other, logprob in entry.alternatives]}
            for token_id, entry in zip(answer.token_ids[first_token:], answer.logprobs[first_token:], strict=True)
        ]
        return {"content": entries, "refusal": None}

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        entry = {"token": self._token(token_id), "logprob": logprob}
        return entry | {"bytes": list(token_bytes(self.tokenizer, token_id))}


class CompletionFormat(AnswerFormat):
    """Answers of `/v1/completions`."""

    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def choice(self, answer: Answer) -> dict[str, Any]:
        """A whole choice."""
        return self._choice(answer, answer.text, 0, answer.finish_reason)

    def first_chunk(self, answer: Answer) -> dict[str, Any] | None:
        """Text completions have no role to tell."""
        return None

    def text_chunk(self, answer: Answer, text: str, first_token: int) -> dict[str, Any]:
        """A chunk with text, and the log-probabilities from `first_token` on."""
        return self._frame(self.chunk, [self._choice(answer, text, first_token, None)])

    def final_chunk(self, answer: Answer) -> dict[str, Any]:
        """The chunk that tells why the answer ended."""
        return self._frame(self.chunk, [self._choice(answer, "", len(answer.token_ids), answer.finish_reason)])

    def _choice(self, answer: Answer, text: str, first_token: int, reason: str | None) -> dict[str, Any]:
        logprobs = self._logprobs(answer, first_token)
        return {"index": answer.index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, answer: Answer, first_token: int) -> dict[str, Any] | None:
        if not answer.logprobs or first_token == len(answer.token_ids):
            return None
        tokens = [self._token(token_id) for token_id in answer.token_ids[first_token:]]
        *offsets, answer.text_offset = accumulate(map(len, tokens), initial=answer.text_offset)
        logprobs = answer.logprobs[first_token:]
        return {
            "tokens": tokens,
            "token_logprobs": [entry.logprob for entry in logprobs],
            "top_logprobs": [
                {self._token(other): logprob for other, logprob in entry.alternatives} for entry in logprobs
            ],
            "text_offset": offsets,
        }
