"""Fields that clients send with values that change nothing; other values would be promises that are not kept."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .strict_model import StrictModel


__all__ = ["HarmlessChatFields", "HarmlessFields"]

ONLY_ZERO = ("frequency_penalty", "presence_penalty")
Nothing = Annotated[list, Field(max_length=0)]
NoTools = Annotated[Nothing | None, Field(description="an empty list: there are no tools here")]
NoChoice = Annotated[
    Literal["none", "auto"] | None, Field(description="'none' or 'auto': there are no tools to choose from here")
]
NoPenalty = Annotated[Literal[0] | None, Field(description="0: there are no penalties here")]


class HarmlessFields(StrictModel):
    """Those of both endpoints."""

    user: str | None = Field(None, description="a text")
    frequency_penalty: NoPenalty = None
    presence_penalty: NoPenalty = None
    logit_bias: Annotated[dict, Field(max_length=0)] | None = Field(
        None, description="an empty object: there are no biases here"
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_whole_floats(cls, values: Any) -> Any:
        # JSON has one kind of number: a penalty of 0.0 is one of 0.
        if isinstance(values, dict):
            zero = {name: 0 for name in ONLY_ZERO if type(values.get(name)) is float and values[name] == 0}
            return {**values, **zero}
        return values


class HarmlessChatFields(HarmlessFields):
    """Those of chats: no tools, nothing stored, one tier, text alone, and names for what is not there."""

    tools: NoTools = None
    functions: NoTools = None
    tool_choice: NoChoice = None
    function_call: NoChoice = None
    parallel_tool_calls: bool | None = Field(None, description="true or false")
    store: Literal[False] | None = Field(None, description="false: nothing is stored here")
    metadata: dict[str, str] | None = Field(None, description="an object of texts")
    service_tier: Literal["auto", "default"] | None = Field(None, description="'auto' or 'default': there is one tier")
    modalities: Annotated[list[Literal["text"]], Field(min_length=1)] | None = Field(
        None, description='["text"]: answers are text'
    )
    reasoning_effort: Literal["none"] | None = Field(None, description="'none': there is no effort to set here")
    verbosity: Literal["medium"] | None = Field(None, description="'medium': there is no verbosity to set here")
    safety_identifier: str | None = Field(None, description="a text")
    prompt_cache_key: str | None = Field(None, description="a text")
    prompt_cache_retention: Literal["in_memory", "24h"] | None = Field(None, description="'in_memory' or '24h'")
