"""What the routes serve: one model, its prompts and its limits."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jinja2 import TemplateError
from openai.types import Model
from transformers import PreTrainedTokenizerBase

from ..config import ServingConfig
from ..engine import Engine
from ..request import GenerationRequest
from .completing import Completing
from .errors import APIError
from .protocol import ChatCompletionRequest, CompletionRequest
from .request_log import log_request


__all__ = ["ServedModel"]


@dataclass(frozen=True)
class ServedModel:
    """
    One model behind the API.

    Args:
        engine ([`Engine`]): Generates.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        config ([`ServingConfig`]): Its name, and the limits of a request.
        max_length (`int`): Tokens of the model's context.
        on_end (`Callable[[Completing], None]`): Called when a request has ended.
        created (`int`, *optional*): When it was loaded, in seconds since 1970; by default now.
    """

    engine: Engine
    tokenizer: PreTrainedTokenizerBase
    config: ServingConfig
    max_length: int
    on_end: Callable[[Completing], None]
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        """The name that requests must give."""
        return self.config.served_model_name

    def describe(self) -> dict[str, Any]:
        """OpenAI's description of a model, with the tokens of its context."""
        model = Model(
            id=self.name, object="model", created=self.created, owned_by="hf_mars", max_model_len=self.max_length
        )
        return model.to_dict()

    def check_name(self, name: str) -> None:
        """
        Raises:
            [`APIError`]: If that is another model.
        """
        if name != self.name:
            message = f"`model` {name!r} is not served here: {self.name!r} is."
            raise APIError(message, "model", 404, "model_not_found")

    def check(self, body: ChatCompletionRequest | CompletionRequest) -> None:
        """
        Raises:
            [`APIError`]: If a request is for another model, or for too many answers.
        """
        self.check_name(body.model)
        if (body.n or 1) > self.config.max_n:
            raise APIError(f"`n` must be at most {self.config.max_n}, got {body.n}.", "n")

    def apply_template(self, body: ChatCompletionRequest) -> list[int]:
        """
        The tokens of a conversation.

        Raises:
            [`APIError`]: If there is no chat template, or it refuses the conversation.
        """
        if self.tokenizer.chat_template is None:
            raise APIError("`messages` need a chat template, which this model lacks: use /v1/completions.", "messages")
        messages = [message.to_chat() for message in body.messages]
        try:
            encoded: Any = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        except TemplateError as error:
            raise APIError(f"`messages` do not fit the model's chat template: {error}", "messages") from error
        return encoded["input_ids"]

    def tokenize(self, body: CompletionRequest) -> list[list[int]]:
        """
        The tokens of each prompt.

        Raises:
            [`APIError`]: If a token is none of the vocabulary.
        """
        return [
            self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else self._check_tokens(prompt)
            for prompt in body.prompts
        ]

    def _check_tokens(self, prompt: list[int]) -> list[int]:
        if max(prompt) >= len(self.tokenizer):
            message = f"`prompt` holds the token {max(prompt)}: the vocabulary ends at {len(self.tokenizer) - 1}."
            raise APIError(message, "prompt")
        return prompt

    def to_requests(
        self, body: ChatCompletionRequest | CompletionRequest, prompt: list[int]
    ) -> list[GenerationRequest]:
        """
        One request of the engine for each choice; each draws its own random numbers.

        Args:
            body ([`ChatCompletionRequest`] or [`CompletionRequest`]): What is asked for.
            prompt (`list[int]`): Tokens of the prompt.

        Raises:
            [`APIError`]: If the prompt is empty, or it or the answer is too long.
        """
        field_name = "messages" if isinstance(body, ChatCompletionRequest) else "prompt"
        if not prompt:
            raise APIError(f"`{field_name}` is empty: it needs at least one token.", field_name)
        longest = min(self.max_length - 1, self.config.max_prompt_tokens or self.max_length)
        if len(prompt) > longest:
            message = f"`{field_name}` has {len(prompt)} tokens, and at most {longest} are read: shorten it."
            raise APIError(message, field_name, code="context_length_exceeded")
        room = min(self.config.max_output_tokens, self.max_length - len(prompt))
        limit = room if body.limit is None else body.limit
        if limit > room:
            raise APIError(f"`max_tokens` must be at most {room} after this prompt, got {limit}.", "max_tokens")
        return [
            GenerationRequest(
                prompt_ids=prompt,
                max_new_tokens=limit,
                mars_arguments=body.mars_arguments,
                sampling=body.sampling,
                seed=None if body.seed is None else (body.seed + choice) % 2**63,
                num_logprobs=body.num_logprobs,
            )
            for choice in range(body.n or 1)
        ]

    def finish(self, completing: Completing) -> None:
        """Take notice of a request that has ended."""
        log_request(completing)
        self.on_end(completing)
