"""MARS: fine-tune any instruction-tuned causal language model so that it generates several tokens a forward pass."""

from .decoding import MARSGenerateOutput, generate
from .hub import save_pretrained
from .modeling import AutoMARSModelForCausalLM, enable_mars
from .training import MARSConfig, MARSTrainer


__version__ = "0.1.0.dev0"

__all__ = [
    "AutoMARSModelForCausalLM",
    "MARSConfig",
    "MARSGenerateOutput",
    "MARSTrainer",
    "enable_mars",
    "generate",
    "save_pretrained",
]
