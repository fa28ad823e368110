"""A causal language model of transformers, to type checkers."""

from typing import TYPE_CHECKING

from transformers import GenerationMixin, PreTrainedModel


__all__ = ["GenerativeModel"]


class GenerativeModel(PreTrainedModel, GenerationMixin):
    """
    An annotation, of which there are no objects: what every causal language model is, and what transformers has no
    public name for. [`~transformers.PreTrainedModel`] alone does not generate.
    """

    if TYPE_CHECKING:  # its signature is lost in a decorator

        def to(self, *args, **kwargs) -> "GenerativeModel": ...  # pyrefly: ignore[bad-override]
