"""Tiny models with a gated adapter that was trained, so that several tokens a forward really occur."""

import copy
import functools

import torch
from peft import LoraConfig, get_peft_model
from transformers import GemmaConfig, GenerationMixin, GPT2Config, LlamaConfig, Phi3Config, Qwen2Config, Qwen3Config

from hf_mars import enable_mars
from hf_mars.training.gated_adapters import gated_config
from tests.tiny import MASK, VOCAB_SIZE, ragged_prompts, tiny_config, tiny_model


ARCHITECTURES = {
    "llama": lambda: tiny_config(LlamaConfig, tie_word_embeddings=True),
    "qwen2": lambda: tiny_config(Qwen2Config),
    "qwen3": lambda: tiny_config(Qwen3Config, head_dim=8, tie_word_embeddings=True),
    "gemma": lambda: tiny_config(GemmaConfig, head_dim=8, tie_word_embeddings=True),
    "phi3": lambda: tiny_config(Phi3Config),
    "gpt2": lambda: GPT2Config(vocab_size=VOCAB_SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=256, eos_token_id=1),
}


def train_adapter(base, steps=120):
    """An adapter whose masks say what the base model says to some prompts, in part."""
    model = get_peft_model(base, gated_config(LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"), base, MASK))
    model = enable_mars(model, mask_token_id=MASK, block_size=4).eval()
    prompts = ragged_prompts([5, 9, 3, 7])
    texts = GenerationMixin.generate(base, **prompts, max_new_tokens=32, eos_token_id=None)
    attention_mask = torch.cat([prompts["attention_mask"], torch.ones(4, 32, dtype=torch.long)], dim=1)
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=2e-2)
    for step in range(steps):
        start = 9 + 7 * step % 28
        window = torch.cat([texts[:, :start], torch.full((4, 3), MASK)], dim=1)
        logits = model(window, attention_mask=attention_mask[:, : start + 3], alora_offsets=[3] * 4).logits[:, -3:]
        loss = torch.nn.functional.cross_entropy(logits.mT, texts[:, start + 1 : start + 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@functools.cache
def trained(architecture):
    base = tiny_model(ARCHITECTURES[architecture](), sharpness=10.0)
    base.requires_grad_(False)  # as PEFT does: torch chooses between kernels that round differently by it
    return base, train_adapter(copy.deepcopy(base))


def base_and_gated(architecture="llama", dtype=torch.float64):
    return tuple(copy.deepcopy(model).to(dtype) for model in trained(architecture))
