"""The requests of OpenAI's API, as far as they are served: an unknown field or a wrong type is an error."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from ...checking_text import check_text
from ..generation_config import NO_OTHER_CUTS
from .harmless_fields import HarmlessChatFields, HarmlessFields
from .strict_model import StrictModel


__all__ = ["ChatCompletionRequest", "CompletionRequest", "ThresholdRequest"]

MAX_BLOCK_SIZE = 32
MAX_STOP_STRINGS = 16
LOWEST_TEMPERATURE = 1e-3  # below it scores over the temperature overflow, and the answer is the greedy one anyway
TEXT_PART = '{"type": "text", "text": "..."}'


def check_field(text: str, info: ValidationInfo) -> str:
    return check_text(text, info.field_name or "text")


Text = Annotated[str, AfterValidator(check_field)]
Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class StreamOptions(StrictModel):
    include_usage: bool = Field(False, description="true or false")
    include_obfuscation: Literal[False] | None = Field(None, description="false: nothing is obfuscated here")


class TextPart(StrictModel):
    type: Literal["text"] = Field(description="'text': only text parts are read here")
    text: Text = Field(description="a text")


class Message(StrictModel):
    role: Literal["system", "developer", "user", "assistant"] = Field(
        description="'system', 'developer', 'user' or 'assistant'"
    )
    content: Text | list[TextPart] = Field(
        description=f"a text, or a list of parts like {TEXT_PART}: only text parts are read here"
    )
    name: str | None = Field(None, description="a text")

    # Of an answer that is sent back.
    annotations: Annotated[list, Field(max_length=0)] | None = Field(None, description="an empty list")
    tool_calls: Annotated[list, Field(max_length=0)] | None = Field(
        None, description="an empty list: there are no tools here"
    )

    def to_chat(self) -> dict[str, str]:
        """As a chat template takes it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class TextFormat(StrictModel):
    type: Literal["text"] = Field(description="'text': answers have no other format here")


class RequestBase(StrictModel):
    """Fields that both endpoints have, and that count."""

    model: str = Field(description="the name of the model, a text")
    temperature: float | None = Field(None, ge=0, le=2, description="a number from 0 to 2")
    top_p: float | None = Field(None, gt=0, le=1, description="a number above 0, and at most 1")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="a whole number of 64 bits")
    n: int | None = Field(1, ge=1, description="a whole number of at least 1")
    stop: Text | list[Text] | None = Field(None, description="a text, or a list of texts")
    stream: bool | None = Field(False, description="true or false")
    stream_options: StreamOptions | None = Field(None, description="an object with `include_usage`")

    mars_threshold: float | None = Field(None, ge=0, allow_inf_nan=False, description="a number of at least 0")
    mars_verify: bool | None = Field(None, description="true or false")
    mars_metric: Literal["probability", "entropy", "margin"] | None = Field(
        None, description="'probability', 'entropy' or 'margin'"
    )
    mars_block_size: int | None = Field(
        None, ge=1, le=MAX_BLOCK_SIZE, description=f"a whole number from 1 to {MAX_BLOCK_SIZE}"
    )

    @model_validator(mode="after")
    def _check_fields(self) -> "RequestBase":
        if any(not stop for stop in self.stop_strings):
            raise ValueError("`stop` must not hold an empty string")
        if len(self.stop_strings) > MAX_STOP_STRINGS:
            raise ValueError(f"`stop` must hold at most {MAX_STOP_STRINGS} strings")
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` needs `stream`")
        if self.mars_threshold is not None and self.mars_threshold > 1 and self.mars_metric != "entropy":
            raise ValueError("`mars_threshold` must be at most 1, unless `mars_metric` is 'entropy'")
        if self.mars_metric is not None and self.mars_threshold is None:
            raise ValueError("`mars_metric` needs a `mars_threshold`")
        return self

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def mars_arguments(self) -> dict[str, Any]:
        """The `mars_*` arguments of `generate` that the request sets."""
        names = ("mars_threshold", "mars_verify", "mars_metric", "mars_block_size")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def sampling(self) -> dict[str, Any]:
        """Arguments of `generate`. Without `temperature` and `top_p` the checkpoint's own configuration decides."""
        if self.temperature is None and self.top_p is None:
            return {}
        if self.temperature is not None and self.temperature < LOWEST_TEMPERATURE:
            return {"do_sample": False}
        temperature = 1.0 if self.temperature is None else self.temperature
        top_p = 1.0 if self.top_p is None else self.top_p
        return {"do_sample": True, "temperature": temperature, "top_p": top_p, **NO_OTHER_CUTS}


class ChatCompletionRequest(HarmlessChatFields, RequestBase):
    """Body of `/v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, description="a list of at least one message")
    max_tokens: int | None = Field(None, ge=1, description="a whole number of at least 1")
    max_completion_tokens: int | None = Field(None, ge=1, description="a whole number of at least 1")
    logprobs: bool | None = Field(False, description="true or false")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="a whole number from 0 to 20")
    response_format: TextFormat | None = Field(None, description='{"type": "text"}')

    @model_validator(mode="after")
    def _check_chat_fields(self) -> "ChatCompletionRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("`top_logprobs` needs `logprobs`")
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ValueError("`max_completion_tokens` contradicts `max_tokens`")
        return self

    @property
    def limit(self) -> int | None:
        """Most tokens of an answer."""
        return self.max_tokens or self.max_completion_tokens

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives to tell for each token."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(HarmlessFields, RequestBase):
    """Body of `/v1/completions`."""

    prompt: Text | Tokens | Annotated[list[Text] | list[Tokens], Field(min_length=1)] = Field(
        description="a text, a list of tokens (whole numbers of at least 0), or a list of texts or of lists of "
        "tokens, none of them empty"
    )
    max_tokens: int | None = Field(16, ge=1, description="a whole number of at least 1")
    logprobs: int | None = Field(None, ge=0, le=5, description="a whole number from 0 to 5")
    echo: Literal[False] | None = Field(None, description="false: prompts are not sent back here")
    best_of: Literal[1] | None = Field(None, description="1: use `n` for several answers")
    suffix: Literal[""] | None = Field(None, description="an empty text: nothing is inserted here")

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """`prompt` as a list, of texts or of lists of tokens."""
        prompt: Any = self.prompt
        return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt

    @property
    def limit(self) -> int | None:
        """Most tokens of an answer."""
        return self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives to tell for each token."""
        return self.logprobs


class ThresholdRequest(StrictModel):
    """Body of `/admin/threshold`: a number pins the threshold, `null` lets the load turn it again."""

    threshold: float | None = Field(ge=0, le=1, description="a number from 0 to 1, or null")
