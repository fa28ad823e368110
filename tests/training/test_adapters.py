import pytest
import torch
from datasets import Dataset
from peft import (
    IA3Config,
    LoHaConfig,
    LoraConfig,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)

from hf_mars import AutoMARSModelForCausalLM, MARSTrainer, enable_mars
from hf_mars.modeling import add_mask_token
from tests.tiny_text import byte_level_tokenizer, text_model
from tests.training.runs import small_config


# Read as it is: what is trained on does not matter here.
DATASET = Dataset.from_list([{"input_ids": list(range(5, 15)), "labels": [-100] * 4 + list(range(9, 15))}] * 4)


def lora(**overrides):
    return LoraConfig(**{"r": 2, "target_modules": ["q_proj"], **overrides})


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Where a base model is saved, by whether its embeddings are tied to the head."""
    return {tied: save_base(tmp_path_factory.mktemp("base"), tied) for tied in (False, True)}


def save_base(directory, tied, with_mars=False):
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer, tie_word_embeddings=tied)
    if with_mars:
        enable_mars(model, mask_token_id=add_mask_token(model, tokenizer), block_size=4)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def make_trainer(tmp_path, model, tokenizer=None, **arguments):
    config = small_config(tmp_path, max_steps=1, learning_rate=0.05, bf16=False, max_length=None)
    return MARSTrainer(model, config, train_dataset=DATASET, processing_class=tokenizer, **arguments)


def check_that_it_trains_and_reloads(tmp_path, base, peft_config, row_trains=True):
    trainer = make_trainer(tmp_path, str(base), peft_config=peft_config)
    mask = torch.tensor([trainer.model.config.mars["mask_token_id"]])
    before = trainer.model.get_input_embeddings()(mask).detach().clone()
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    assert torch.equal(trainer.model.get_input_embeddings()(mask), before) is not row_trains
    loaded = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
    window = torch.cat([torch.tensor([9, 10, 11]), mask, mask])[None]
    with torch.no_grad():
        expected, logits = trainer.model(window).logits, loaded(window).logits
    # The mask token is never generated: its column of the head is no part of what is trained.
    expected[..., mask] = logits[..., mask] = 0
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    "peft_config",
    [
        lora(modules_to_save=["embed_tokens"]),
        lora(modules_to_save=["model.embed_tokens"]),
        lora(modules_to_save=["lm_head", "embed_tokens"]),
        lora(target_modules=["q_proj", "embed_tokens"], modules_to_save=["embed_tokens"]),
        lora(target_modules=r".*(q_proj|embed_tokens)", exclude_modules=["embed_tokens"]),
        lora(target_modules="all-linear"),
        lora(trainable_token_indices=[5]),
        lora(trainable_token_indices={"model.embed_tokens": [5]}),
        IA3Config(target_modules=["q_proj"], feedforward_modules=[], modules_to_save=["embed_tokens"]),
        LoHaConfig(target_modules=["q_proj"], modules_to_save=["model.embed_tokens"]),
        VeraConfig(target_modules=["q_proj"], modules_to_save=["embed_tokens"]),
    ],
)
@pytest.mark.integration
def test_what_can_save_the_mask_row_trains_and_reloads(tmp_path, bases, tied, peft_config):
    check_that_it_trains_and_reloads(tmp_path, bases[tied], peft_config)


def test_a_head_of_its_own_trains_and_reloads(tmp_path, bases):
    check_that_it_trains_and_reloads(tmp_path, bases[False], lora(modules_to_save=["lm_head"]))


@pytest.mark.integration
def test_a_row_that_the_base_has_learned_needs_no_training(tmp_path):
    base = save_base(tmp_path / "base", True, with_mars=True)
    peft_config = IA3Config(task_type="CAUSAL_LM", target_modules=["q_proj"], feedforward_modules=[])
    check_that_it_trains_and_reloads(tmp_path, base, peft_config, row_trains=False)
    check_that_it_trains_and_reloads(tmp_path, base, lora(target_modules=["q_proj", "embed_tokens"]))


@pytest.mark.parametrize(
    ("peft_config", "message"),
    [
        (lora(target_modules=["q_proj", "embed_tokens"]), "target_modules.*embed_tokens"),
        (lora(target_modules=["model.embed_tokens"]), "target_modules.*model.embed_tokens"),
        (lora(target_modules=r".*(q_proj|embed_tokens)"), "target_modules.*embed_tokens"),
        (lora(target_parameters=["embed_tokens.weight"]), "target_parameters.*embed_tokens.weight"),
        (lora(target_modules=["q_proj", "lm_head"]), "target_modules.*head"),
        (lora(target_parameters=["lm_head.weight"]), "target_parameters.*head"),
        (lora(modules_to_save=["lm_head"]), "modules_to_save"),
        (lora(modules_to_save=["lm_head"], ensure_weight_tying=True), "modules_to_save"),
        (IA3Config(target_modules=["q_proj"], feedforward_modules=[]), "IA3Config"),
        (VeraConfig(target_modules=["q_proj"]), "VeraConfig"),
        (PromptTuningConfig(num_virtual_tokens=4), "PromptTuningConfig"),
        (PrefixTuningConfig(num_virtual_tokens=4), "PrefixTuningConfig"),
        (PromptEncoderConfig(num_virtual_tokens=4), "PromptEncoderConfig"),
    ],
)
def test_what_could_not_be_loaded_again_is_refused_at_the_start(tmp_path, peft_config, message):
    tokenizer = byte_level_tokenizer()
    with pytest.raises(ValueError, match=f"peft_config.*{message}"):
        make_trainer(tmp_path, text_model(tokenizer), tokenizer, peft_config=peft_config)


def test_a_ready_made_adapter_with_a_tied_head_is_refused(tmp_path):
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer)
    mask_token_id = add_mask_token(model, tokenizer)
    config = lora(modules_to_save=["lm_head"], trainable_token_indices={"model.embed_tokens": [mask_token_id]})
    with pytest.raises(ValueError, match="modules_to_save"):
        make_trainer(tmp_path, get_peft_model(model, config), tokenizer)


def test_another_object_is_refused(tmp_path):
    tokenizer = byte_level_tokenizer()
    with pytest.raises(TypeError, match="peft_config"):
        make_trainer(tmp_path, text_model(tokenizer), tokenizer, peft_config={"r": 2})
