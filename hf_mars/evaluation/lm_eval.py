"""
lm-eval with counters: the command line of `lm_eval`, and a model `hf-mars` that reports tokens per forward.

```bash
python -m hf_mars.evaluation.lm_eval run --model hf-mars --model_args pretrained=CHECKPOINT --tasks gsm8k \
    --apply_chat_template --gen_kwargs mars_threshold=0.9,mars_verify=True
```

`lm_eval run --model hf --model_args pretrained=CHECKPOINT,trust_remote_code=True` gives the same scores without them.
"""

from typing import Any

import torch
from lm_eval.__main__ import cli_evaluate
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from ..modeling import enable_mars, get_base_model
from .methods import cut, end_of_sequence_ids


__all__ = ["COUNTS", "MARSLM", "main"]

# What all models of this process generated, and the forward passes that it took, row by row.
COUNTS = {"tokens": 0, "forward_passes": 0}


@register_model("hf-mars")
class MARSLM(HFLM):
    """
    `hf` of lm-eval on a MARS checkpoint, with or without `trust_remote_code`. `--gen_kwargs` takes the `mars_*`
    arguments of `generate`. Every call adds to [`COUNTS`].
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        model: Any = self.model
        enable_mars(model)

    def _model_generate(self, context: torch.Tensor, max_length: int, stop: list[str], **generation_kwargs):
        output: Any = super()._model_generate(
            context, max_length, stop, return_dict_in_generate=True, **generation_kwargs
        )
        acceptance_lengths = getattr(output, "acceptance_lengths", None)
        if acceptance_lengths is None:
            end = end_of_sequence_ids(get_base_model(self.model))
            acceptance_lengths = [[1] * len(cut(row, end)) for row in output.sequences[:, context.shape[1] :].tolist()]
        COUNTS["tokens"] += sum(map(sum, acceptance_lengths))
        COUNTS["forward_passes"] += sum(map(len, acceptance_lengths))
        return output.sequences


def main() -> None:
    """Run lm-eval's own command line, then print what was counted."""
    cli_evaluate()
    if COUNTS["forward_passes"]:
        ratio = COUNTS["tokens"] / COUNTS["forward_passes"]
        print(f"{COUNTS['tokens']} tokens in {COUNTS['forward_passes']} forward passes: {ratio:.2f} tokens/forward")


if __name__ == "__main__":
    main()
