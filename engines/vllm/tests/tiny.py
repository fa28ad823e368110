"""A tiny random model, sharpened so that drafts at its masks often hold, and a tokenizer for it."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


__all__ = ["BLOCK_SIZE", "MASK", "save_tiny_checkpoint"]

NAMED = ["<|endoftext|>", "<|mask|>"]
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
EOS, MASK = 0, 1
BLOCK_SIZE = 4


def save_tiny_checkpoint(directory: Path, sharpness: float = 14.0, similarity: float = 1.0, seed: int = 11) -> Path:
    """
    Save the same random model every time.

    Args:
        directory (`Path`): Where to.
        sharpness (`float`, *optional*, defaults to 14.0): Factor on the logits.
        similarity (`float`, *optional*, defaults to 1.0):
            How much all embeddings share, the mask's among them: the higher, the more often a mask predicts what the
            true token would, and the less answers depend on their prompts.
        seed (`int`, *optional*, defaults to 11): Of the weights.
    """
    vocabulary = {token: index for index, token in enumerate(NAMED + LETTERS)}
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=EOS,
        mars={"mask_token_id": MASK, "block_size": BLOCK_SIZE},
        pard_token=MASK,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
        embeddings = model.get_input_embeddings().weight
        embeddings.add_(similarity * torch.randn(embeddings.shape[1]))
        head = model.get_output_embeddings().weight
        head.normal_(std=sharpness / head.shape[1] ** 0.5)
        head[MASK] = 0  # never the most likely token: plain vLLM would answer with it
    model.save_pretrained(directory)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=NAMED[EOS], mask_token=NAMED[MASK], chat_template=template
    ).save_pretrained(directory)
    return directory
