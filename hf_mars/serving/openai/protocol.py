"""The requests of OpenAI's API, as far as they are served: an unknown field or a wrong type is an error."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


__all__ = ["ChatCompletionRequest", "CompletionRequest", "ThresholdRequest"]

MAX_BLOCK_SIZE = 32
MAX_STOP_STRINGS = 16
LOWEST_TEMPERATURE = 1e-3  # below it scores over the temperature overflow, and the answer is the greedy one anyway


def check_text(text: str) -> str:
    """A string that has an encoding."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is no character") from error
    return text


Text = Annotated[str, AfterValidator(check_text)]


class StrictModel(BaseModel):
    """Refuses what it does not know, unless it is null: clients send fields that they leave unset as null."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_unset_fields(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None or name in cls.model_fields}


class StreamOptions(StrictModel):
    include_usage: bool = False


class TextPart(StrictModel):
    type: Literal["text"]
    text: Text


class Message(StrictModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    name: str | None = None
    annotations: Annotated[list, Field(max_length=0)] | None = None  # of an answer that is sent back

    def to_chat(self) -> dict[str, str]:
        """As a chat template takes it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class TextFormat(StrictModel):
    type: Literal["text"]


class RequestBase(StrictModel):
    """Fields that both endpoints have."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n: Annotated[int, Field(ge=1)] | None = 1
    stop: Text | list[Text] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None

    mars_threshold: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    mars_verify: bool | None = None
    mars_metric: Literal["probability", "entropy", "margin"] | None = None
    mars_block_size: Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)] | None = None

    # Clients send these with values that change nothing; others are refused.
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    logit_bias: Annotated[dict, Field(max_length=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_whole_floats(cls, values: Any) -> Any:
        # JSON has one kind of number: a penalty of 0.0 is one of 0.
        if isinstance(values, dict):
            penalties = ("frequency_penalty", "presence_penalty")
            zero = {name: 0 for name in penalties if type(values.get(name)) is float and values[name] == 0}
            return {**values, **zero}
        return values

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
        return {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}


class ChatCompletionRequest(RequestBase):
    """Body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: TextFormat | None = None

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


class CompletionRequest(RequestBase):
    """Body of `/v1/completions`."""

    prompt: (
        Text
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
        | Annotated[list[Text], Field(min_length=1)]
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: None = None

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

    threshold: Annotated[float, Field(ge=0, le=1)] | None
