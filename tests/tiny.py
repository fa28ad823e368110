"""Tiny random models whose weights are sharpened so that several tokens a forward really occur."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel

from hf_mars import enable_mars


VOCAB_SIZE = 48
PAD, EOS, MASK = 0, 1, VOCAB_SIZE - 1


def tiny_config(config_class: type[PreTrainedConfig] = LlamaConfig, **overrides) -> PreTrainedConfig:
    arguments = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "pad_token_id": PAD,
        "bos_token_id": None,
        "eos_token_id": EOS,
    }
    return config_class(**{**arguments, **overrides})


def tiny_model(
    config: PreTrainedConfig | None = None,
    seed: int = 0,
    sharpness: float = 4.0,
    similarity: float = 2.0,
    dtype: torch.dtype = torch.float64,
    attn_implementation: str = "sdpa",
    block_size: int = 4,
    mask_token_id: int = MASK,
) -> PreTrainedModel:
    """
    A random model with MARS enabled.

    Args:
        sharpness: Factor on the logits: the higher, the more confident, and the longer the runs.
        similarity: How much all embeddings share, the mask's among them: the higher, the more often a mask predicts
            what the true token would, and the more drafts hold.
    """
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config or tiny_config(), attn_implementation=attn_implementation)
    model = model.to(dtype).eval()
    model.set_experts_implementation("eager")  # the other ones know no float64
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
        embeddings = model.get_input_embeddings().weight
        embeddings.add_(similarity * torch.randn(embeddings.shape[1], dtype=dtype))
        head = model.get_output_embeddings().weight
        head.normal_(std=sharpness / head.shape[1] ** 0.5)
        head[mask_token_id] = 0  # never the most likely token, so that plain generation does not return it either
    return enable_mars(model, mask_token_id=mask_token_id, block_size=block_size)


def ragged_prompts(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Left-padded random prompts of the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths)
    input_ids = torch.full((len(lengths), width), PAD)
    attention_mask = torch.zeros_like(input_ids)
    for row, length in enumerate(lengths):
        input_ids[row, width - length :] = torch.randint(2, MASK, (length,), generator=generator)
        attention_mask[row, width - length :] = 1
    return {"input_ids": input_ids, "attention_mask": attention_mask}
