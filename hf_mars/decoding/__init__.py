"""Multi-token decoding for any causal language model trained with MARS.

This folder imports torch, numpy and transformers only, with relative imports, because it is copied as it stands into
the `custom_generate/` folder of a checkpoint: the package and the Hub run the same source.
"""

from .acceptance_counts import AcceptanceCounts
from .attention import use_attention
from .batch import Batch
from .cache import MARSCache, MARSCacheLayer
from .decode import decoding_mode
from .decoder import MARSDecoder
from .gated_adapter import get_gated_adapter
from .generate import generate, prepare
from .options import DecodingOptions, Mode, Threshold
from .output import MARSGenerateOutput, StepOutput
from .sampling import SamplingParams
from .streaming import AcceptedTokensStreamer


__all__ = [
    "AcceptanceCounts",
    "AcceptedTokensStreamer",
    "Batch",
    "DecodingOptions",
    "MARSCache",
    "MARSCacheLayer",
    "MARSDecoder",
    "MARSGenerateOutput",
    "Mode",
    "SamplingParams",
    "StepOutput",
    "Threshold",
    "decoding_mode",
    "get_gated_adapter",
    "generate",
    "prepare",
    "use_attention",
]
