"""A model's own answers to any prompts: the data from which masks learn what the model itself would say."""

from .answering import Answer, Answerer, AnswerSettings, ModelAnswerer, ServerAnswerer
from .prompts import Prompt, select_prompts
from .regenerate import regenerate
from .templates import make_prompts


__all__ = [
    "Answer",
    "AnswerSettings",
    "Answerer",
    "ModelAnswerer",
    "Prompt",
    "ServerAnswerer",
    "make_prompts",
    "regenerate",
    "select_prompts",
]
