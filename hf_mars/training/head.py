"""The head of a language model, from hidden states to log-probabilities, as a function of a few columns."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


__all__ = ["Head"]


@dataclass
class Head:
    """
    The output embeddings and what comes after them.

    Args:
        weight (`torch.Tensor` of shape `(vocab_size, hidden_size)`): Whole, also where the model is sharded.
        bias (`torch.Tensor` of shape `(vocab_size,)`, *optional*): Its bias.
        scale (`float`): Factor on the logits.
        softcapping (`float`, *optional*): Where the logits are bent to stay below.
        mask_token_id (`int`): The token that is never generated.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    scale: float
    softcapping: float | None
    mask_token_id: int

    @classmethod
    def of(cls, model: PreTrainedModel, mask_token_id: int) -> "Head":
        """
        The head of a model. What is done to the logits is read from the configuration, as in TRL's
        `add_fused_lm_head`.
        """
        config = model.config.get_text_config()
        head: Any = model.get_output_embeddings()
        tensors: list[Any] = [
            tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            for tensor in (head.weight, getattr(head, "bias", None))
        ]
        weight, bias = tensors
        scale = next(
            (
                getattr(config, name)
                for name in ("logit_scale", "output_multiplier", "lm_head_multiplier")
                if getattr(config, name, None) is not None
            ),
            1.0,
        )
        divisor = getattr(config, "logits_scaling", None)
        if divisor is not None:
            scale = divisor if config.model_type == "hyperclovax" else 1 / divisor
        return cls(weight, bias, scale, getattr(config, "final_logit_softcapping", None), mask_token_id)

    def log_probabilities(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """
        Log-probabilities in float32, or better where the model is better; those of the mask token are the lowest
        finite number.

        Args:
            hidden_states (`torch.Tensor` of shape `(num_columns, hidden_size)`): Last hidden states.
        """
        logits = torch.nn.functional.linear(hidden_states.to(self.weight.dtype), self.weight, self.bias)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.softcapping is not None:
            logits = self.softcapping * torch.tanh(logits / self.softcapping)
        mask = torch.tensor([self.mask_token_id], device=logits.device)
        return logits.index_fill(1, mask, torch.finfo(logits.dtype).min).log_softmax(-1)
