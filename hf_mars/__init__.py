"""MARS: fine-tune any instruction-tuned causal language model so that it generates several tokens a forward pass."""

from typing import TYPE_CHECKING

from .decoding import DecodingOptions, MARSGenerateOutput, generate
from .evaluation import Evaluation, load_evaluation
from .hub import push_to_hub, save_pretrained
from .modeling import AutoMARSModelForCausalLM, enable_mars
from .text_stream import TextStream


if TYPE_CHECKING:
    from .training import LogRunsCallback, MARSConfig, MARSTrainer


__version__ = "0.1.0"

__all__ = [
    "AutoMARSModelForCausalLM",
    "DecodingOptions",
    "Evaluation",
    "LogRunsCallback",
    "MARSConfig",
    "MARSGenerateOutput",
    "MARSTrainer",
    "TextStream",
    "enable_mars",
    "generate",
    "load_evaluation",
    "push_to_hub",
    "save_pretrained",
]


def __getattr__(name: str):
    # TRL takes seconds to import, and decoding does not need it.
    if name in ("LogRunsCallback", "MARSConfig", "MARSTrainer"):
        from . import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
