"""
Lossless multi-token decoding of MARS checkpoints inside vLLM.

```bash
vllm serve CHECKPOINT --speculative-config '{"model": "hf_mars_vllm.MARSProposer", "num_speculative_tokens": 6}'
```
"""

from .proposer import MARSProposer


__all__ = ["MARSProposer"]

__version__ = "0.1.0"
