"""Bodies of requests: what is not accepted is refused with a text that says what is."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError


__all__ = ["StrictModel"]

IN_WORDS = "in_words"  # the type of an error that has words of its own
MAX_SHOWN = 60  # characters of a value that is quoted


class StrictModel(BaseModel):
    """
    Refuses what it does not know, unless it is null: clients send fields that they leave unset as null. The
    description of each field says what it accepts.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_unset_fields(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None or name in cls.model_fields}

    @model_validator(mode="wrap")
    @classmethod
    def _say_what_is_accepted(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            # What a check of ours says is more to the point than that another type is accepted too.
            errors = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "value_error")
            raise ValidationError.from_exception_data(cls.__name__, [cls._explain(each) for each in errors]) from None

    @classmethod
    def _explain(cls, error: Mapping[str, Any]) -> InitErrorDetails:
        """Whole sentences name the field themselves; the others go on after its name."""
        path = error["loc"]
        if error["type"] == IN_WORDS:
            text = error["msg"]
        elif error["type"] == "value_error":
            path, text = path[:1], str(error["ctx"]["error"])
        elif not path:
            text = f"must be an object with {cls._list_fields()}"
        else:
            path, text = path[:1], cls._refuse(path[0], error)  # what follows is the name of a type, not of a field
        # The text is no template, as braces in one are replaced.
        kind = PydanticCustomError(IN_WORDS, "{text}", {"text": text})
        details: Any = {"type": kind, "loc": path, "input": error["input"]}
        return details

    @classmethod
    def _refuse(cls, name: str, error: Mapping[str, Any]) -> str:
        if error["type"] == "extra_forbidden":
            return f"is not known here: there are {cls._list_fields()}"
        accepted = cls.model_fields[name].description
        if error["type"] == "missing":
            return f"is missing: it must be {accepted}"
        return f"must be {accepted}, got {shorten(error['input'])}"

    @classmethod
    def _list_fields(cls) -> str:
        return ", ".join(f"`{name}`" for name in cls.model_fields)


def shorten(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN - 3]}..."
