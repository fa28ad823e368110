"""One rule for every decoder-only architecture: lossy equals the oracle, verified equals greedy, past the window."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BambaConfig,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GenerationMixin,
    GPT2Config,
    GPTNeoConfig,
    Llama4TextConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OlmoConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    StableLmConfig,
    Starcoder2Config,
)

from hf_mars import enable_mars
from tests.oracle import decode_without_cache
from tests.tiny import EOS, MASK, PAD, ragged_prompts, tiny_config, tiny_model


LENGTHS = [4, 13, 7]
NEW_TOKENS = 24
WINDOW = 8

CONFIGS = {
    "llama": tiny_config(LlamaConfig),
    "qwen2": tiny_config(Qwen2Config),
    "qwen2-mixed-windows": tiny_config(
        Qwen2Config,
        use_sliding_window=True,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "qwen3": tiny_config(Qwen3Config, head_dim=8),
    "smollm3": tiny_config(SmolLM3Config, no_rope_layers=[1, 0]),
    "gpt2": GPT2Config(
        vocab_size=48, n_positions=64, n_embd=32, n_layer=2, n_head=4, eos_token_id=EOS, pad_token_id=PAD
    ),
    "mistral-window": tiny_config(MistralConfig, sliding_window=WINDOW),
    "gemma2": tiny_config(Gemma2Config, head_dim=8, sliding_window=WINDOW, query_pre_attn_scalar=8),
    "gemma3": tiny_config(Gemma3TextConfig, head_dim=8, sliding_window=WINDOW, query_pre_attn_scalar=8),
    "phi3": tiny_config(Phi3Config, sliding_window=WINDOW),
    "olmo": tiny_config(OlmoConfig),
    "stablelm": tiny_config(StableLmConfig),
    "starcoder2": tiny_config(Starcoder2Config, sliding_window=WINDOW),
    "mixtral": tiny_config(MixtralConfig, num_local_experts=4, num_experts_per_tok=2),
    "qwen3-moe": tiny_config(
        Qwen3MoeConfig, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def model(request):
    # Soft-capped logits need the backend that can cap attention scores too.
    attention = "eager" if request.param == "gemma2" else "sdpa"
    return tiny_model(CONFIGS[request.param], sharpness=16.0, similarity=1.5, attn_implementation=attention)


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_lossy_equals_the_oracle(model, threshold):
    prompts = ragged_prompts(LENGTHS)
    output = model.generate(
        **prompts, max_new_tokens=NEW_TOKENS, mars_threshold=threshold, return_dict_in_generate=True
    )
    width = prompts["input_ids"].shape[1]
    assert width + NEW_TOKENS > 2 * WINDOW
    for row, length in enumerate(LENGTHS):
        prompt = prompts["input_ids"][row, -length:].tolist()
        expected, acceptance_lengths = decode_without_cache(model, prompt, threshold, 4, NEW_TOKENS, [EOS])
        assert output.sequences[row, width : width + len(expected)].tolist() == expected
        assert output.acceptance_lengths[row] == acceptance_lengths
    assert output.tokens_per_forward > 1


def test_verified_equals_greedy(model):
    prompts = ragged_prompts(LENGTHS)
    width = prompts["input_ids"].shape[1]
    output = model.generate(
        **prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.0, mars_verify=True, return_dict_in_generate=True
    )
    for row, length in enumerate(LENGTHS):
        # Each row alone: padded rows of eager attention are NaN in float64 for plain generation.
        prompt = prompts["input_ids"][row : row + 1, -length:]
        expected = GenerationMixin.generate(model, prompt, max_new_tokens=NEW_TOKENS)[0, length:].tolist()
        assert output.sequences[row, width : width + len(expected)].tolist() == expected
    assert output.tokens_per_forward > 1


def test_hybrid_models_are_refused_by_what_they_are():
    config = tiny_config(
        BambaConfig, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=8
    )
    with pytest.raises(ValueError, match="state"):
        enable_mars(AutoModelForCausalLM.from_config(config), mask_token_id=MASK, block_size=4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BloomConfig(vocab_size=48, hidden_size=32, n_layer=2, n_head=4), "ALiBi"),
        (tiny_config(FalconConfig, alibi=True), "ALiBi"),
        (
            GPTNeoConfig(
                vocab_size=48,
                hidden_size=32,
                num_layers=2,
                num_heads=4,
                attention_types=[[["global", "local"], 1]],
                window_size=4,
            ),
            "local attention",
        ),
        (
            tiny_config(
                Llama4TextConfig, attention_chunk_size=4, num_local_experts=2, head_dim=8, intermediate_size_mlp=64
            ),
            "chunked_attention",
        ),
    ],
)
def test_models_that_count_columns_are_refused_by_what_they_are(config, message):
    with pytest.raises(ValueError, match=message):
        enable_mars(AutoModelForCausalLM.from_config(config), mask_token_id=MASK, block_size=4)


class TestBackends:
    @pytest.mark.parametrize("name", ["llama", "qwen2-mixed-windows"])
    @pytest.mark.parametrize("verify", [False, True])
    def test_eager_equals_sdpa(self, name, verify):
        arguments = {**ragged_prompts(LENGTHS), "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.4}
        results = [
            tiny_model(CONFIGS[name], sharpness=16.0, similarity=1.5, attn_implementation=attention).generate(
                **arguments, mars_verify=verify
            )
            for attention in ("sdpa", "eager")
        ]
        assert results[0].tolist() == results[1].tolist()

    @pytest.mark.slow  # compiles for more than a minute on a CPU
    @pytest.mark.timeout(600)
    def test_flex_equals_sdpa(self):
        arguments = {**ragged_prompts(LENGTHS), "max_new_tokens": 12, "mars_threshold": 0.4}
        models = [
            tiny_model(sharpness=16.0, similarity=1.5, dtype=torch.float32, attn_implementation=attention)
            for attention in ("sdpa", "flex_attention")
        ]
        for verify in (False, True):
            results = [model.generate(**arguments, mars_verify=verify).tolist() for model in models]
            assert results[0] == results[1]

    def test_flash_attention_is_told_to_use_sdpa(self):
        model = tiny_model(sharpness=16.0, similarity=1.5)
        model.config._attn_implementation = "flash_attention_2"
        with pytest.raises(ValueError, match="attn_implementation='sdpa'"):
            model.generate(**ragged_prompts(LENGTHS), max_new_tokens=4, mars_threshold=0.4)

    def test_an_unpadded_batch_of_one_leaves_the_mask_to_the_backend(self):
        """Plain causal windows need no mask of ours, so flash attention can take them."""
        model = tiny_model(sharpness=16.0, similarity=1.5)
        masks = []
        hook = model.register_forward_pre_hook(
            lambda module, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
        )
        output = model.generate(
            ragged_prompts([6])["input_ids"], max_new_tokens=12, mars_threshold=0.4, return_dict_in_generate=True
        )
        hook.remove()
        assert masks == [None] * output.num_forward_passes
        assert output.tokens_per_forward > 1


def test_float32_verified_equals_greedy_in_float32():
    model = tiny_model(sharpness=16.0, similarity=1.5, dtype=torch.float32)
    prompts = ragged_prompts(LENGTHS)
    output = model.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.3, mars_verify=True)
    assert output.tolist() == GenerationMixin.generate(model, **prompts, max_new_tokens=NEW_TOKENS).tolist()
