"""Adapters that act on the masks alone: what they may be, and that the base model is what it was."""

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GPT2Config

from hf_mars import AutoMARSModelForCausalLM, MARSTrainer
from hf_mars.decoding.gated_adapter import is_gated
from hf_mars.modeling import add_mask_token
from hf_mars.training.gated_adapters import gated_config
from tests.tiny_text import byte_level_tokenizer, counting_examples, mixtral, text_model
from tests.training.runs import small_config


def lora(**overrides):
    return LoraConfig(**{"r": 4, "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"], **overrides})


def gated(tmp_path, model, tokenizer=None, peft_config=None, **overrides):
    arguments = {"mask_gated": True, "learning_rate": 1e-2, "max_steps": 8, "gradient_checkpointing": False}
    return MARSTrainer(
        model,
        small_config(tmp_path, **{**arguments, **overrides}),
        train_dataset=counting_examples(16),
        processing_class=tokenizer,
        peft_config=peft_config,
    )


def sure_model(tokenizer, **overrides):
    """One that is sure enough of its random answers that there is something to learn from it."""
    torch.manual_seed(0)
    model = text_model(tokenizer, **overrides)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(10)
    return model


def save_base(directory, **overrides):
    tokenizer = byte_level_tokenizer()
    sure_model(tokenizer, **overrides).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


def gpt2(tokenizer):
    return AutoModelForCausalLM.from_config(
        GPT2Config(vocab_size=len(tokenizer) + 4, n_positions=128, n_embd=32, n_layer=2, n_head=4)
    )


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.integration
def test_the_base_stays_to_the_bit_and_peft_loads_the_rest(tmp_path, tied):
    base = AutoModelForCausalLM.from_pretrained(save_base(tmp_path / "base", tie_word_embeddings=tied)).eval()
    user_config = lora()
    trainer = gated(tmp_path, str(tmp_path / "base"), peft_config=user_config)
    assert user_config.alora_invocation_tokens is None, "the passed configuration is not changed"
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))

    mask = trainer.model.config.mars["mask_token_id"]
    for name, parameter in trainer.model.get_base_model().named_parameters():
        if "lora" not in name and "token_adapter.trainable" not in name:
            name = name.replace(".base_layer", "").replace(".token_adapter", "")
            assert torch.equal(parameter, base.get_parameter(name)), name
    by_peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    loaded = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "adapter")
    assert loaded.config.mars == {"mask_token_id": mask, "block_size": 4}
    assert is_gated(loaded.active_peft_config, mask) and is_gated(by_peft.active_peft_config, mask)

    prompt = torch.arange(5, 25).view(2, 10)
    window = torch.cat([prompt, torch.full((2, 3), mask)], dim=1)
    with torch.no_grad():
        own = trainer.model(window, alora_offsets=[3, 3]).logits
        for model in (trainer.model, loaded.eval(), by_peft.eval()):
            assert torch.equal(model(prompt).logits, base(prompt).logits)
            logits = model(window, alora_offsets=[3, 3]).logits
            assert torch.equal(logits, own)
            assert torch.equal(logits[:, :10], base(window).logits[:, :10])
            assert not torch.allclose(logits[:, 10:], base(window).logits[:, 10:])


def test_only_the_adapter_and_the_mask_row_are_saved(tmp_path):
    from safetensors.torch import load_file

    trainer = gated(tmp_path, save_base(tmp_path / "base"), max_steps=1)
    trainer.save_model(str(tmp_path / "adapter"))
    weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    rows = weights.pop("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta")
    assert rows.shape == (1, 64)
    embeddings = trainer.model.get_input_embeddings().original_module.weight
    torch.testing.assert_close(rows[0], embeddings.mean(0))  # where a new mask token begins
    assert all(".lora_" in name for name in weights)
    # By default rank 64 on all linear layers.
    assert len(weights) == 2 * 7 * 2 and weights[min(weights)].shape == (64, 64)


@pytest.mark.integration
def test_training_goes_on_with_an_adapter_that_was_loaded(tmp_path):
    base = save_base(tmp_path / "base")
    trainer = gated(tmp_path, base)
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    tokenizer = trainer.processing_class
    model = AutoModelForCausalLM.from_pretrained(base)
    model = PeftModel.from_pretrained(model, tmp_path / "adapter", is_trainable=True)
    again = gated(tmp_path, model, tokenizer, max_steps=1, learning_rate=0.0)
    again.train()
    before, after = (run.state.log_history[index]["mask_loss"] for run, index in ((trainer, 0), (again, 0)))
    assert after < 0.9 * before


@pytest.mark.parametrize(
    ("peft_config", "error", "message"),
    [
        (lora(use_dora=True), ValueError, "use_dora"),
        (lora(bias="all"), ValueError, "bias"),
        (lora(init_lora_weights="pissa"), ValueError, "init_lora_weights"),
        (lora(modules_to_save=["lm_head"]), ValueError, "modules_to_save"),
        (lora(trainable_token_indices=[5]), ValueError, "trainable_token_indices"),
        (lora(target_parameters=["mlp.up_proj.weight"]), ValueError, "target_parameters"),
        (lora(target_modules=["q_proj", "embed_tokens"]), ValueError, "target_modules.*embed_tokens"),
        (lora(target_modules=["q_proj", "lm_head"]), ValueError, "target_modules.*head"),
        (lora(alora_invocation_tokens=[3], task_type="CAUSAL_LM"), ValueError, "alora_invocation_tokens"),
        (IA3Config(target_modules=["q_proj"], feedforward_modules=[]), TypeError, "IA3Config"),
    ],
)
def test_what_cannot_be_gated_is_refused_by_name(tmp_path, peft_config, error, message):
    tokenizer = byte_level_tokenizer()
    with pytest.raises(error, match=message):
        gated(tmp_path, text_model(tokenizer), tokenizer, peft_config)


def test_a_ready_made_adapter_of_another_kind_is_refused(tmp_path):
    tokenizer = byte_level_tokenizer()
    with pytest.raises(ValueError, match="mask_gated.*is_trainable"):
        gated(tmp_path, get_peft_model(text_model(tokenizer), lora()), tokenizer)


def test_an_adapter_that_was_loaded_not_to_be_trained_is_refused(tmp_path):
    base = save_base(tmp_path / "base")
    trainer = gated(tmp_path, base, max_steps=1)
    trainer.save_model(str(tmp_path / "adapter"))
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter")
    with pytest.raises(ValueError, match="is_trainable"):
        gated(tmp_path, model, trainer.processing_class)


def test_quantisation_that_peft_cannot_gate_is_refused_by_name():
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer)

    class Quantizer:
        class quantization_config:
            quant_method = "gptq"

    model.hf_quantizer = Quantizer()
    with pytest.raises(ValueError, match="gptq"):
        gated_config(None, model, add_mask_token(model, tokenizer, initialize=False))


def test_merging_is_refused_by_name(tmp_path):
    tokenizer = byte_level_tokenizer()
    trainer = gated(tmp_path, text_model(tokenizer), tokenizer, max_steps=1)
    for merge in (trainer.model.merge_adapter, trainer.model.merge_and_unload):
        with pytest.raises(NotImplementedError, match="aLoRA does not support merging"):
            merge()


@pytest.mark.integration
def test_a_quantised_base_trains_saves_and_reloads(tmp_path):
    pytest.importorskip("bitsandbytes")
    base = save_base(tmp_path / "base")
    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    )
    arguments = {"quantization_config": quantization, "dtype": torch.float32}
    untouched = AutoModelForCausalLM.from_pretrained(base, **arguments).eval()
    trainer = gated(tmp_path, AutoModelForCausalLM.from_pretrained(base, **arguments), byte_level_tokenizer())
    trainer.train()
    losses = [entry["mask_loss"] for entry in trainer.state.log_history if "mask_loss" in entry]
    assert losses[-1] < losses[0]
    trainer.save_model(str(tmp_path / "adapter"))
    prompt = torch.arange(5, 15)[None]
    mask = trainer.model.config.mars["mask_token_id"]
    window = torch.cat([prompt, torch.full((1, 3), mask)], dim=1)
    loaded = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, **arguments), tmp_path / "adapter"
    ).eval()
    with torch.no_grad():
        for model in (trainer.model, loaded):
            assert torch.equal(model(prompt).logits, untouched(prompt).logits)
        # TRL trains adapters on a quantised base in bfloat16.
        own, logits = (model(window, alora_offsets=[3]).logits for model in (trainer.model, loaded))
        torch.testing.assert_close(logits, own, atol=0.05, rtol=0.05)


@pytest.mark.integration
def test_other_names_of_layers_and_experts(tmp_path):
    tokenizer = byte_level_tokenizer()
    for model in (gpt2(tokenizer), mixtral(len(tokenizer) + 4)):
        reference = {name: value.clone() for name, value in model.state_dict().items()}
        trainer = gated(tmp_path, model, byte_level_tokenizer(), max_steps=2)
        trainer.train()
        base = trainer.model.unload()
        assert all(torch.equal(value, reference[name]) for name, value in base.state_dict().items())
