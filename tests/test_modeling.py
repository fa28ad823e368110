import json

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    MambaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_mars import AutoMARSModelForCausalLM, enable_mars
from hf_mars.modeling import add_mask_token
from tests.tiny import MASK, ragged_prompts, tiny_config, tiny_model
from tests.tiny_text import byte_level_tokenizer, text_model


class TestEnableMars:
    def test_records_the_entry_and_returns_the_model(self):
        model = AutoModelForCausalLM.from_config(tiny_config())
        assert enable_mars(model, mask_token_id=MASK, block_size=8) is model
        assert model.config.mars == {"mask_token_id": MASK, "block_size": 8}

    def test_reads_the_entry(self):
        model = AutoModelForCausalLM.from_config(tiny_config(mars={"mask_token_id": 5, "block_size": 3}))
        enable_mars(model, block_size=6)
        assert model.config.mars == {"mask_token_id": 5, "block_size": 6}

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({}, ValueError, "mask_token_id"),
            ({"mask_token_id": MASK}, ValueError, "block_size"),
            ({"mask_token_id": 10_000, "block_size": 4}, ValueError, "mask_token_id"),
            ({"mask_token_id": -1, "block_size": 4}, ValueError, "mask_token_id"),
            ({"mask_token_id": "<|mask|>", "block_size": 4}, TypeError, "mask_token_id"),
            ({"mask_token_id": MASK, "block_size": 1}, ValueError, "block_size"),
            ({"mask_token_id": MASK, "block_size": True}, TypeError, "block_size"),
        ],
    )
    def test_bad_arguments_are_named(self, arguments, error, message):
        with pytest.raises(error, match=message):
            enable_mars(AutoModelForCausalLM.from_config(tiny_config()), **arguments)

    def test_recurrent_models_are_refused_by_what_they_are(self):
        config = MambaConfig(vocab_size=48, hidden_size=16, num_hidden_layers=1, state_size=4)
        with pytest.raises(ValueError, match="state"):
            enable_mars(AutoModelForCausalLM.from_config(config), mask_token_id=MASK, block_size=4)

    def test_encoder_decoder_models_are_refused_by_what_they_are(self):
        config = T5Config(vocab_size=48, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
        with pytest.raises(ValueError, match="encoder-decoder"):
            enable_mars(T5ForConditionalGeneration(config), mask_token_id=MASK, block_size=4)

    def test_a_model_that_is_not_enabled_refuses_mars_arguments(self):
        model = AutoModelForCausalLM.from_config(tiny_config())
        with pytest.raises(ValueError, match="mars_threshold"):
            model.generate(**ragged_prompts([4]), max_new_tokens=4, mars_threshold=0.5)


class TestAutoModel:
    def test_loads_a_checkpoint_with_an_entry(self, tmp_path):
        model = tiny_model()
        model.save_pretrained(tmp_path)
        loaded = AutoMARSModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
        prompts = ragged_prompts([4, 7])
        expected = model.generate(**prompts, max_new_tokens=12, mars_threshold=0.4)
        assert loaded.generate(**prompts, max_new_tokens=12, mars_threshold=0.4).tolist() == expected.tolist()

    def test_a_checkpoint_without_an_entry_needs_arguments(self, tmp_path):
        AutoModelForCausalLM.from_config(tiny_config()).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="mask_token_id"):
            AutoMARSModelForCausalLM.from_pretrained(tmp_path)
        model = AutoMARSModelForCausalLM.from_pretrained(tmp_path, mask_token_id=MASK, block_size=2)
        assert model.config.mars == {"mask_token_id": MASK, "block_size": 2}

    @pytest.mark.parametrize(("config_class", "model_type"), [(Qwen2Config, "a2d-qwen2"), (Qwen3Config, "a2d-qwen3")])
    def test_loads_the_authors_checkpoints(self, tmp_path, config_class, model_type):
        tokenizer = byte_level_tokenizer()
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|mask|>"]})
        model = AutoModelForCausalLM.from_config(tiny_config(config_class, vocab_size=len(tokenizer) + 4))
        directory = tmp_path / "MARS-Tiny-blk8"
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        config = json.loads((directory / "config.json").read_text())
        config.update(model_type=model_type, architectures=["A2DQwenLMHeadModel"])
        (directory / "config.json").write_text(json.dumps(config))

        loaded = AutoMARSModelForCausalLM.from_pretrained(directory)
        mask_token_id = tokenizer.convert_tokens_to_ids("<|mask|>")
        assert type(loaded) is type(model)
        assert loaded.config.mars == {"mask_token_id": mask_token_id, "block_size": 8}
        prompt = torch.tensor([[5, 6, 7]])
        assert loaded(prompt).logits.equal(model.eval()(prompt).logits)
        again = AutoMARSModelForCausalLM.from_pretrained(directory, block_size=2, mask_token_id=9)
        assert again.config.mars == {"mask_token_id": 9, "block_size": 2}

    def test_an_id_outside_the_embeddings_is_refused(self, tmp_path):
        tiny_model().save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="mask_token_id"):
            AutoMARSModelForCausalLM.from_pretrained(tmp_path, mask_token_id=48)

    def test_cannot_be_instantiated(self):
        with pytest.raises(OSError, match="from_pretrained"):
            AutoMARSModelForCausalLM()


@pytest.mark.parametrize("config_class", [LlamaConfig, Qwen2Config])
@pytest.mark.parametrize("tied", [False, True])
class TestMaskToken:
    def build(self, config_class, tied, spare_rows):
        tokenizer = byte_level_tokenizer()
        config = tiny_config(config_class, vocab_size=len(tokenizer) + spare_rows, tie_word_embeddings=tied)
        return AutoModelForCausalLM.from_config(config), tokenizer

    def test_takes_a_spare_row_without_resizing(self, config_class, tied):
        model, tokenizer = self.build(config_class, tied, spare_rows=9)
        shape = model.get_input_embeddings().weight.shape
        mean = model.get_input_embeddings().weight.detach().mean(0)
        mask_token_id = add_mask_token(model, tokenizer)
        assert tokenizer.mask_token == "<|mask|>"
        assert mask_token_id == tokenizer.mask_token_id == len(tokenizer) - 1
        embeddings = model.get_input_embeddings().weight
        assert embeddings.shape == shape
        torch.testing.assert_close(embeddings[mask_token_id], mean)
        assert (model.get_output_embeddings().weight is embeddings) == tied

    def test_a_token_named_before_keeps_its_row(self, config_class, tied):
        model, tokenizer = self.build(config_class, tied, spare_rows=9)
        mask_token_id = add_mask_token(model, tokenizer)
        with torch.no_grad():
            model.get_input_embeddings().weight[mask_token_id] = 7.0
        assert add_mask_token(model, tokenizer) == mask_token_id
        assert (model.get_input_embeddings().weight[mask_token_id] == 7.0).all()

    def test_the_id_of_a_word_is_not_taken(self, config_class, tied):
        # Ids 3 and 4 are free, and the tokenizer would number a new token 6: the place of the last word.
        vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, "a": 5, "b": 6, "c": 7}
        backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", unk_token="<unk>")
        model = AutoModelForCausalLM.from_config(tiny_config(config_class, vocab_size=16, tie_word_embeddings=tied))
        before = model.get_input_embeddings().weight.clone()
        with pytest.raises(ValueError, match="id 6, which is that of 'b'.*`mask_token`"):
            add_mask_token(model, tokenizer)
        assert torch.equal(model.get_input_embeddings().weight, before)
        assert tokenizer.get_vocab() == vocabulary and tokenizer.mask_token is None

    def test_an_ordinary_word_is_refused(self, config_class, tied):
        model, tokenizer = self.build(config_class, tied, spare_rows=9)
        with pytest.raises(ValueError, match="ordinary word"):
            add_mask_token(model, tokenizer, "a")

    def test_a_token_with_another_use_is_refused(self, config_class, tied):
        model, tokenizer = self.build(config_class, tied, spare_rows=9)
        with pytest.raises(ValueError, match="already uses"):
            add_mask_token(model, tokenizer, "<|im_end|>")

    def test_survives_saving(self, config_class, tied, tmp_path):
        model, tokenizer = self.build(config_class, tied, spare_rows=9)
        mask_token_id = add_mask_token(model, tokenizer)
        tokenizer.save_pretrained(tmp_path)
        assert AutoTokenizer.from_pretrained(tmp_path).mask_token_id == mask_token_id


def test_text_model_has_spare_rows():
    tokenizer = byte_level_tokenizer()
    assert text_model(tokenizer).get_input_embeddings().weight.shape[0] > len(tokenizer)
