"""What else `generate` takes and returns."""

import pytest
import torch
from transformers import DynamicCache, GenerationMixin, StaticCache, pipeline
from transformers.generation import GenerateDecoderOnlyOutput

from hf_mars import enable_mars
from tests.oracle import decode_without_cache
from tests.tiny import EOS, MASK, ragged_prompts, tiny_config, tiny_model
from tests.tiny_text import byte_level_tokenizer, text_model


NEW_TOKENS = 24


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=8.0, similarity=2.0)


@pytest.fixture
def prompts():
    return ragged_prompts([5, 9, 3])


class TestScores:
    @pytest.mark.parametrize("arguments", [{}, {"repetition_penalty": 1.2}])
    def test_verified_scores_and_logits_equal_those_of_plain_generation(self, model, prompts, arguments):
        arguments = {
            **prompts,
            **arguments,
            "max_new_tokens": NEW_TOKENS,
            "return_dict_in_generate": True,
            "output_scores": True,
            "output_logits": True,
        }
        expected = GenerationMixin.generate(model, **arguments)
        output = model.generate(**arguments, mars_threshold=0.3, mars_verify=True)
        assert isinstance(output, GenerateDecoderOnlyOutput)
        assert output.tokens_per_forward > 1
        assert len(output.scores) == len(output.logits) == len(expected.scores) == output.sequences.shape[1] - 9
        others = [token for token in range(48) if token != MASK]
        for index in range(len(expected.scores)):
            for row, acceptance_lengths in enumerate(output.acceptance_lengths):
                if index < sum(acceptance_lengths):
                    actual, reference = output.scores[index][row], expected.scores[index][row]
                    torch.testing.assert_close(actual[others], reference[others], atol=1e-5, rtol=1e-5)
                    assert actual[MASK] == -torch.inf
                    torch.testing.assert_close(
                        output.logits[index][row], expected.logits[index][row], atol=1e-5, rtol=1e-5
                    )
                else:
                    assert (output.scores[index][row] == 0).all()

    def test_lossy_scores_are_those_that_chose_the_tokens(self, model, prompts):
        output = model.generate(
            **prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.3, return_dict_in_generate=True, output_scores=True
        )
        assert output.num_forward_passes < max(map(sum, output.acceptance_lengths))
        for row, acceptance_lengths in enumerate(output.acceptance_lengths):
            chosen = [output.scores[index][row].argmax().item() for index in range(sum(acceptance_lengths))]
            assert chosen == output.sequences[row, 9 : 9 + sum(acceptance_lengths)].tolist()
        transition = model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
        assert torch.isfinite(transition[:, 0]).all()

    def test_nothing_is_recorded_unless_asked_for(self, model, prompts):
        output = model.generate(**prompts, max_new_tokens=4, mars_threshold=0.3, return_dict_in_generate=True)
        assert output.scores is None and output.logits is None


class TestInputs:
    @pytest.mark.parametrize("verify", [False, True])
    def test_without_a_cache_the_tokens_are_the_same(self, model, prompts, verify):
        arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3, "mars_verify": verify}
        expected = model.generate(**arguments, return_dict_in_generate=True)
        output = model.generate(**arguments, use_cache=False, return_dict_in_generate=True)
        assert output.sequences.tolist() == expected.sequences.tolist()
        assert output.acceptance_lengths == expected.acceptance_lengths
        assert output.num_forward_passes < max(map(sum, output.acceptance_lengths))

    @pytest.mark.parametrize("verify", [False, True])
    def test_embeddings_as_prompt(self, model, prompts, verify):
        arguments = {"max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3, "mars_verify": verify}
        embeds = model.get_input_embeddings()(prompts["input_ids"])
        output = model.generate(inputs_embeds=embeds, attention_mask=prompts["attention_mask"], **arguments)
        assert output.tolist() == model.generate(**prompts, **arguments)[:, 9:].tolist()
        both = model.generate(**prompts, inputs_embeds=embeds, **arguments)
        assert both.tolist() == model.generate(**prompts, **arguments).tolist()

    @pytest.mark.parametrize("chunk_size", [1, 4, 9, 100])
    def test_prefill_in_chunks(self, model, prompts, chunk_size):
        arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3, "return_dict_in_generate": True}
        expected = model.generate(**arguments)
        output = model.generate(**arguments, prefill_chunk_size=chunk_size)
        assert output.sequences.tolist() == expected.sequences.tolist()
        assert output.acceptance_lengths == expected.acceptance_lengths

    def test_prefill_of_embeddings_in_chunks(self, model, prompts):
        arguments = {"attention_mask": prompts["attention_mask"], "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3}
        embeds = model.get_input_embeddings()(prompts["input_ids"])
        expected = model.generate(inputs_embeds=embeds, **arguments)
        assert model.generate(inputs_embeds=embeds, prefill_chunk_size=2, **arguments).tolist() == expected.tolist()

    def test_logits_to_keep_changes_nothing(self, model, prompts):
        arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3}
        assert model.generate(**arguments, logits_to_keep=2).tolist() == model.generate(**arguments).tolist()

    def test_gaps_in_the_attention_mask(self, model, prompts):
        prompts["attention_mask"][1, 3:5] = 0
        expected = GenerationMixin.generate(model, **prompts, max_new_tokens=NEW_TOKENS)
        output = model.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.3, mars_verify=True)
        assert output.tolist() == expected.tolist()

    def test_to_the_end_of_learned_positions(self):
        from transformers import GPT2Config

        config = GPT2Config(vocab_size=48, n_positions=32, n_embd=32, n_layer=2, n_head=4, eos_token_id=None)
        model = tiny_model(config, sharpness=8.0, similarity=2.0)
        prompts = ragged_prompts([5, 9])
        for verify in (False, True):
            output = model.generate(**prompts, max_length=32, mars_threshold=0.0, mars_verify=verify, pad_token_id=0)
            assert output.shape[1] == 32
        assert output.tolist() == GenerationMixin.generate(model, **prompts, max_length=32, pad_token_id=0).tolist()


@pytest.mark.parametrize("verify", [False, True])
class TestEarlierTurns:
    def test_continue_from_the_cache_of_the_output(self, model, prompts, verify):
        arguments = {
            "mars_threshold": 0.3,
            "mars_verify": verify,
            "return_dict_in_generate": True,
            "eos_token_id": None,
        }
        first = model.generate(prompts["input_ids"][1:2], max_new_tokens=10, **arguments)
        turn = torch.cat([first.sequences, torch.tensor([[5, 6, 7]])], dim=1)
        expected = model.generate(turn, max_new_tokens=12, **arguments)
        assert isinstance(first.cache, DynamicCache)
        assert 9 + 10 - 5 <= first.cache.get_seq_length() < 9 + 10
        second = model.generate(turn, cache=first.cache, max_new_tokens=12, **arguments)
        assert second.sequences.tolist() == expected.sequences.tolist()
        assert second.num_forward_passes < 12
        # Plain generation continues from it just as well.
        third = torch.cat([second.sequences, torch.tensor([[8]])], dim=1)
        plain = GenerationMixin.generate(model, third, cache=second.cache, max_new_tokens=8, eos_token_id=None)
        assert plain.tolist() == GenerationMixin.generate(model, third, max_new_tokens=8, eos_token_id=None).tolist()

    def test_a_passed_cache_is_updated_in_place_for_every_row(self, model, prompts, verify):
        cache = DynamicCache(config=model.config)
        arguments = {"mars_threshold": 0.3, "mars_verify": verify, "eos_token_id": [EOS, 41]}
        first = model.generate(**prompts, cache=cache, max_new_tokens=10, **arguments)
        assert first.tolist() == model.generate(**prompts, max_new_tokens=10, **arguments).tolist()
        assert 9 <= cache.get_seq_length() < first.shape[1]
        turn = torch.cat([first, torch.full((3, 2), 7)], dim=1)
        mask = torch.cat([prompts["attention_mask"], (turn[:, 9:] != 0).long()], dim=1)
        expected = model.generate(turn, attention_mask=mask, max_new_tokens=12, **arguments)
        second = model.generate(turn, attention_mask=mask, cache=cache, max_new_tokens=12, **arguments)
        assert second.tolist() == expected.tolist()

    def test_a_cache_without_a_configuration(self, model, prompts, verify):
        cache = DynamicCache()
        arguments = {"max_new_tokens": 8, "mars_threshold": 0.3, "mars_verify": verify}
        first = model.generate(**prompts, cache=cache, **arguments)
        assert first.tolist() == model.generate(**prompts, **arguments).tolist()
        assert len(cache.layers) == 2 and cache.get_seq_length() >= 9

    def test_only_the_new_tokens_are_passed(self, model, prompts, verify):
        prompt = prompts["input_ids"][1:2]
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(prompt[:, :6], cache=cache, use_cache=True)
        arguments = {"max_new_tokens": 12, "mars_threshold": 0.3, "mars_verify": verify}
        expected = model.generate(prompt, **arguments)
        output = model.generate(prompt[:, 6:], attention_mask=torch.ones(1, 9), cache=cache, **arguments)
        assert output[0, 3:].tolist() == expected[0, 9:].tolist()

    def test_a_cache_of_a_sliding_window(self, verify):
        from transformers import MistralConfig

        model = tiny_model(tiny_config(MistralConfig, sliding_window=8), sharpness=8.0, similarity=2.0)
        prompt = ragged_prompts([13])["input_ids"]
        arguments = {
            "mars_threshold": 0.3,
            "mars_verify": verify,
            "return_dict_in_generate": True,
            "eos_token_id": None,
        }
        first = model.generate(prompt, max_new_tokens=10, **arguments)
        turn = torch.cat([first.sequences, torch.tensor([[5, 6]])], dim=1)
        expected = model.generate(turn, max_new_tokens=12, **arguments)
        second = model.generate(turn, cache=first.cache, max_new_tokens=12, **arguments)
        assert second.sequences.tolist() == expected.sequences.tolist()

    def test_other_caches_are_refused(self, model, prompts, verify):
        cache = StaticCache(model.config, max_cache_len=64)
        with pytest.raises(ValueError, match="DynamicCache"):
            model.generate(**prompts, cache=cache, max_new_tokens=4, mars_threshold=0.3, mars_verify=verify)

    def test_a_cache_that_holds_everything_is_an_error(self, model, prompts, verify):
        prompt = prompts["input_ids"][1:2]
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(prompt, cache=cache, use_cache=True)
        with pytest.raises(ValueError, match="`cache` holds"):
            model.generate(prompt, cache=cache, max_new_tokens=4, mars_threshold=0.3, mars_verify=verify)


class TestWrappers:
    def test_pipeline(self):
        tokenizer = byte_level_tokenizer()
        tokenizer.add_special_tokens({"mask_token": "<|mask|>"})
        model = text_model(tokenizer)
        enable_mars(model, mask_token_id=tokenizer.mask_token_id, block_size=4)
        generator = pipeline("text-generation", model=model, tokenizer=tokenizer)
        arguments = {"max_new_tokens": 16, "do_sample": False}
        plain = generator("Count from 3.", **arguments)
        verified = generator("Count from 3.", **arguments, mars_threshold=0.0, mars_verify=True)
        assert verified == plain

    @pytest.mark.parametrize("enable_first", [False, True])
    def test_peft(self, prompts, enable_first):
        from peft import LoraConfig, get_peft_model

        model = tiny_model(sharpness=8.0, similarity=2.0, dtype=torch.float32)
        lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        adapted = get_peft_model(model, lora)
        if not enable_first:
            enable_mars(adapted)
        arguments = {**prompts, "max_new_tokens": NEW_TOKENS}
        plain = adapted.generate(**arguments)
        output = adapted.generate(**arguments, mars_threshold=0.3, mars_verify=True, return_dict_in_generate=True)
        assert output.sequences.tolist() == plain.tolist()
        assert output.tokens_per_forward > 1
        with adapted.disable_adapter():
            assert adapted.generate(**arguments, mars_threshold=0.3).tolist() != plain.tolist()

    def test_device_map(self, tmp_path, prompts):
        from hf_mars import AutoMARSModelForCausalLM

        model = tiny_model(sharpness=8.0, similarity=2.0)
        model.save_pretrained(tmp_path)
        loaded = AutoMARSModelForCausalLM.from_pretrained(tmp_path, device_map="cpu", dtype=torch.float64)
        arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3}
        assert loaded.generate(**arguments).tolist() == model.generate(**arguments).tolist()

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_quantized_weights(self, prompts):
        model = tiny_model(sharpness=8.0, similarity=2.0, dtype=torch.float32)
        quantized = torch.ao.quantization.quantize_dynamic(model.model, {torch.nn.Linear}, dtype=torch.qint8)
        model.model = quantized
        prompt = prompts["input_ids"][1:2]
        for threshold in (0.0, 0.3):
            output = model.generate(
                prompt, max_new_tokens=NEW_TOKENS, mars_threshold=threshold, return_dict_in_generate=True
            )
            assert output.tokens_per_forward > 1
        expected, _ = decode_without_cache(model, prompt[0].tolist(), 0.0, 4, 4, [EOS])
        assert model.generate(prompt, max_new_tokens=4, mars_threshold=0.0)[0, 9:].tolist() == expected
