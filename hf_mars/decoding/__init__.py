"""Multi-token decoding for any causal language model trained with MARS.

This folder imports torch and transformers only, with relative imports, because it is copied as it stands into the
`custom_generate/` folder of a checkpoint: the package and the Hub run the same source.
"""

from .cache import MARSCache, MARSCacheLayer
from .generate import generate, prepare
from .joining import join, leave
from .options import DecodingOptions
from .output import MARSGenerateOutput
from .rows import Step
from .strategy import MARSDecoder


__all__ = [
    "DecodingOptions",
    "MARSCache",
    "MARSCacheLayer",
    "MARSDecoder",
    "MARSGenerateOutput",
    "Step",
    "generate",
    "join",
    "leave",
    "prepare",
]
