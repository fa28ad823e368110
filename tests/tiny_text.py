"""A real tokenizer and a small data set, made on the spot."""

from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, MixtralConfig, PreTrainedModel, PreTrainedTokenizerFast

from hf_mars import enable_mars, save_pretrained
from hf_mars.modeling import add_mask_token
from tests.tiny import tiny_config, tiny_model


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def counting_examples(num_examples: int) -> Dataset:
    """Prompt-completion pairs with chat messages: count upwards from a number."""
    rows = []
    for index in range(num_examples):
        start = index % 20
        numbers = " ".join(str(start + step) for step in range(1, 9 + index % 3))
        rows.append(
            {
                "prompt": [{"role": "user", "content": f"Count from {start}."}],
                "completion": [{"role": "assistant", "content": numbers}],
            }
        )
    return Dataset.from_list(rows)


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE trained on the examples, with a chat template and unused special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|unused|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [str(row) for row in counting_examples(20)]
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def several_turns(tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """Eight times a conversation with two answers, for a tokenizer whose template then marks what is an answer."""
    tokenizer.chat_template = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
        "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
    )
    messages = [
        {"role": "user", "content": "Count from 3."},
        {"role": "assistant", "content": "3 4 5 6"},
        {"role": "user", "content": "Count from 7."},
        {"role": "assistant", "content": "7 8 9 10"},
    ]
    return Dataset.from_dict({"messages": [messages] * 8})


def mixtral(vocab_size: int) -> PreTrainedModel:
    """A model of experts that tells how they are loaded."""
    config = MixtralConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        output_router_logits=True,
    )
    return AutoModelForCausalLM.from_config(config)


def text_model(tokenizer: PreTrainedTokenizerFast, spare_rows: int = 4, **overrides) -> PreTrainedModel:
    """A small untrained model for the tokenizer, with unused embedding rows."""
    config = tiny_config(
        vocab_size=len(tokenizer) + spare_rows,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **{"hidden_size": 64, "tie_word_embeddings": True, **overrides},
    )
    return AutoModelForCausalLM.from_config(config)


def mars_text_model() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The same untrained model every time, enabled with a block size of 4, and its tokenizer."""
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer)
    return enable_mars(model, mask_token_id=add_mask_token(model, tokenizer), block_size=4), tokenizer


def sharp_text_model(dtype: torch.dtype = torch.float64) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The same random model every time, whose answers depend on the prompt and come in runs, and its tokenizer."""
    tokenizer = byte_level_tokenizer()
    config = tiny_config(
        vocab_size=len(tokenizer) + 4,
        hidden_size=64,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    mask_token_id = tokenizer.convert_tokens_to_ids("<|unused|>")
    model = tiny_model(config, seed=11, sharpness=14.0, similarity=0.7, dtype=dtype, mask_token_id=mask_token_id)
    return model, tokenizer


def save_text_checkpoint(directory: Path) -> Path:
    """Save that model with its tokenizer, and return where."""
    model, tokenizer = mars_text_model()
    save_pretrained(model, directory, tokenizer)
    return directory
