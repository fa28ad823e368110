"""Answers in OpenAI's form, whole or in chunks."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Literal

from openai import BaseModel
from openai.types import Completion, CompletionChoice, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage, ChatCompletionTokenLogprob
from openai.types.chat.chat_completion import Choice, ChoiceLogprobs
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import ChoiceDelta
from openai.types.chat.chat_completion_chunk import ChoiceLogprobs as ChunkLogprobs
from openai.types.chat.chat_completion_token_logprob import TopLogprob
from openai.types.completion_choice import Logprobs

from ...decoding import AcceptanceCounts
from .answer import Answer
from .told_tokens import NamedToken


__all__ = ["AnswerFormat", "ChatFormat", "CompletionFormat", "count_usage", "summarize_drafts"]


Reason = Literal["stop", "length"] | None


class CompletionChunkChoice(CompletionChoice):
    """A choice whose end may be to come, which the `openai` package has for chats alone."""

    finish_reason: Reason  # pyrefly: ignore[bad-override]


class CompletionChunk(Completion):
    """A part of a text completion."""

    choices: list[CompletionChunkChoice]  # pyrefly: ignore[bad-override]


def count_usage(answers: Sequence[Answer], prompt_tokens: int) -> CompletionUsage:
    """
    Token counts, and how many forward passes the answers took; the prompt's own are not counted.

    Args:
        answers (`Sequence[Answer]`): All choices.
        prompt_tokens (`int`): Tokens of the prompts, each counted once.
    """
    completion_tokens = sum(len(answer.token_ids) for answer in answers)
    forward_passes = sum(answer.num_forward_passes for answer in answers)
    return CompletionUsage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        forward_passes=forward_passes,
        tokens_per_forward=round(completion_tokens / forward_passes, 4) if forward_passes else 0.0,
    )


def summarize_drafts(counts: AcceptanceCounts) -> dict[str, int | float | list[int]]:
    """
    What became of the drafts of an answer: the fields of vLLM's per-request metrics, and the counts as `generate`
    returns them.

    Args:
        counts ([`AcceptanceCounts`]): Of the answer.
    """
    reached = [counts.num_drafts, *counts.num_accepted_tokens_per_pos, 0]  # drafts of which so many tokens held
    return {
        "mean_acceptance_length": counts.mean_acceptance_length,
        "draft_acceptance_rate": counts.acceptance_rate,
        "acceptance_histogram": [longer - shorter for longer, shorter in pairwise(reached)],
        "num_spec_steps": counts.num_drafts,
        "num_accepted_draft_tokens": counts.num_accepted_tokens,
        "num_spec_tokens": len(counts.num_accepted_tokens_per_pos),
        **asdict(counts),
    }


class AnswerFormat:
    """
    What the two endpoints' answers have in common.

    Args:
        model (`str`): Name of the model.
        include_usage (`bool`): Whether a stream ends with a chunk that tells usage.
        include_drafts (`bool`): Whether a single choice tells what became of its drafts.
    """

    prefix: str
    whole_class: type[BaseModel]
    chunk_class: type[BaseModel]
    whole_object: str
    chunk_object: str

    def __init__(self, model: str, include_usage: bool, include_drafts: bool):
        self.model, self.include_usage, self.include_drafts = model, include_usage, include_drafts
        self.id, self.created = f"{self.prefix}-{uuid.uuid4().hex}", int(time.time())

    def choice(self, answer: Answer) -> BaseModel:
        """A whole choice."""
        raise NotImplementedError

    def first_chunk(self, answer: Answer) -> BaseModel | None:
        """The chunk before any text, where there is one."""
        raise NotImplementedError

    def text_chunk(self, answer: Answer, text: str, first_token: int) -> BaseModel:
        """A chunk with text, and the log-probabilities from `first_token` on."""
        raise NotImplementedError

    def final_chunk(self, answer: Answer) -> BaseModel:
        """The chunk that tells why the answer ended."""
        raise NotImplementedError

    def complete(self, answers: Sequence[Answer], usage: CompletionUsage) -> BaseModel:
        """All answers at once."""
        choices = [self.choice(answer) for answer in answers]
        frame = {**self._frame(), **self._metrics(answers)}
        return self.whole_class(**frame, object=self.whole_object, choices=choices, usage=usage)

    def usage_chunk(self, answers: Sequence[Answer], usage: CompletionUsage) -> BaseModel:
        """The last chunk, where usage is wanted."""
        frame = {**self._frame(), **self._metrics(answers)}
        return self.chunk_class(**frame, object=self.chunk_object, choices=[], usage=usage)

    def _metrics(self, answers: Sequence[Answer]) -> dict[str, Any]:
        if not self.include_drafts or len(answers) > 1:
            return {}
        return {"metrics": {"speculative_decoding": summarize_drafts(answers[0].counts)}}

    def _frame(self) -> dict[str, Any]:
        return {"id": self.id, "created": self.created, "model": self.model}

    def _chunk(self, choice: BaseModel) -> BaseModel:
        # Where usage is told at the end, the other chunks hold a null.
        usage: dict[str, None] = {"usage": None} if self.include_usage else {}
        return self.chunk_class(**self._frame(), object=self.chunk_object, choices=[choice], **usage)


class ChatFormat(AnswerFormat):
    """Answers of `/v1/chat/completions`."""

    prefix = "chatcmpl"
    whole_class, whole_object = ChatCompletion, "chat.completion"
    chunk_class, chunk_object = ChatCompletionChunk, "chat.completion.chunk"

    def choice(self, answer: Answer) -> Choice:
        """A whole choice."""
        entries = self._logprobs(answer, 0)
        return Choice(
            index=answer.index,
            message=ChatCompletionMessage(role="assistant", content=answer.text, refusal=None),
            logprobs=None if entries is None else ChoiceLogprobs(content=entries, refusal=None),
            finish_reason=answer.finish_reason or "stop",  # a whole answer has ended
        )

    def first_chunk(self, answer: Answer) -> BaseModel:
        """The chunk that tells the role."""
        return self._delta(answer, ChoiceDelta(role="assistant", content=""))

    def text_chunk(self, answer: Answer, text: str, first_token: int) -> BaseModel:
        """A chunk with text, and the log-probabilities from `first_token` on."""
        entries = self._logprobs(answer, first_token)
        logprobs = None if entries is None else ChunkLogprobs(content=entries, refusal=None)
        return self._delta(answer, ChoiceDelta(content=text), logprobs)

    def final_chunk(self, answer: Answer) -> BaseModel:
        """The chunk that tells why the answer ended."""
        return self._delta(answer, ChoiceDelta(), reason=answer.finish_reason)

    def _delta(
        self, answer: Answer, delta: ChoiceDelta, logprobs: ChunkLogprobs | None = None, reason: Reason = None
    ) -> BaseModel:
        return self._chunk(ChunkChoice(index=answer.index, delta=delta, logprobs=logprobs, finish_reason=reason))

    def _logprobs(self, answer: Answer, first_token: int) -> list[ChatCompletionTokenLogprob] | None:
        if answer.told is None:
            return None
        return [
            ChatCompletionTokenLogprob(
                **to_entry(token.chosen),
                top_logprobs=[TopLogprob(**to_entry(other)) for other in token.alternatives],
            )
            for token in answer.told[first_token:]
        ]


def to_entry(token: NamedToken) -> dict[str, Any]:
    return {"token": token.name, "logprob": token.logprob, "bytes": list(token.data)}


class CompletionFormat(AnswerFormat):
    """Answers of `/v1/completions`."""

    prefix = "cmpl"
    whole_class, whole_object = Completion, "text_completion"
    chunk_class, chunk_object = CompletionChunk, "text_completion"

    def choice(self, answer: Answer) -> CompletionChoice:
        """A whole choice."""
        return CompletionChoice(
            index=answer.index,
            text=answer.text,
            logprobs=self._logprobs(answer, 0),
            finish_reason=answer.finish_reason or "stop",  # a whole answer has ended
        )

    def first_chunk(self, answer: Answer) -> None:
        """Text completions have no role to tell."""
        return None

    def text_chunk(self, answer: Answer, text: str, first_token: int) -> BaseModel:
        """A chunk with text, and the log-probabilities from `first_token` on."""
        return self._text(answer, text, self._logprobs(answer, first_token))

    def final_chunk(self, answer: Answer) -> BaseModel:
        """The chunk that tells why the answer ended."""
        return self._text(answer, "", reason=answer.finish_reason)

    def _text(self, answer: Answer, text: str, logprobs: Logprobs | None = None, reason: Reason = None) -> BaseModel:
        choice = CompletionChunkChoice(index=answer.index, text=text, logprobs=logprobs, finish_reason=reason)
        return self._chunk(choice)

    def _logprobs(self, answer: Answer, first_token: int) -> Logprobs | None:
        if answer.told is None:
            return None
        tokens = answer.told[first_token:]
        return Logprobs(
            tokens=[token.chosen.name for token in tokens],
            token_logprobs=[token.chosen.logprob for token in tokens],
            top_logprobs=[{other.name: other.logprob for other in token.alternatives} for token in tokens],
            text_offset=[token.offset for token in tokens],
        )
