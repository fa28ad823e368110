"""What belongs to a row follows the row, or is refused by name."""

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig, get_peft_model
from transformers import GPT2Config

from hf_mars import enable_mars
from hf_mars.decoding.row_arguments import check_row_arguments
from tests.tiny import EOS, MASK, ragged_prompts, tiny_config, tiny_model


ARGUMENTS = {"max_new_tokens": 24, "do_sample": False, "return_dict_in_generate": True}


@pytest.fixture
def model():
    return tiny_model(sharpness=8.0, similarity=2.0)


@pytest.fixture
def eager_model():
    """A model whose attention function stays what it is in a call, as changing that walks over the modules too."""
    return tiny_model(sharpness=8.0, similarity=2.0, attn_implementation="eager")


def count_walks(model, monkeypatch):
    """A list that grows with every walk over the modules of a model."""
    walks, modules = [], model.modules
    monkeypatch.setattr(model, "modules", lambda: walks.append(1) or modules())
    return walks


class TestAdapterNames:
    @pytest.fixture
    def adapted(self, model):
        torch.manual_seed(0)
        lora = LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False, r=4)
        adapted = get_peft_model(model, lora, adapter_name="a")
        adapted.add_adapter("b", lora)
        return adapted.double().eval()

    @pytest.mark.parametrize("arguments", [{}, {"cache_implementation": "static"}, {"num_return_sequences": 1}])
    def test_each_row_keeps_its_adapter_as_others_end(self, adapted, arguments):
        names = ["a", "b", "__base__", "b", "a"]
        prompts = ragged_prompts([5, 9, 3, 12, 7])
        arguments = {**prompts, **ARGUMENTS, **arguments, "eos_token_id": [EOS, 22, 39, 41], "adapter_names": names}
        plain = adapted.generate(**{**arguments, "cache_implementation": None})
        output = adapted.generate(**arguments, mars_threshold=0.2, mars_verify=True)
        assert output.sequences.tolist() == plain.sequences.tolist()
        assert len({sum(row) for row in output.acceptance_lengths}) > 1, "rows end at different times"
        assert output.tokens_per_forward > 1.1
        without = adapted.generate(**{**arguments, "adapter_names": ["a"] * 5})
        assert without.sequences.tolist() != plain.sequences.tolist()

    def test_without_names_rows_leave_as_ever(self, adapted):
        rows = []
        adapted.get_base_model().register_forward_pre_hook(
            lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
        )
        arguments = {**ragged_prompts([5, 9, 3, 12, 7]), **ARGUMENTS, "eos_token_id": [18, 34]}
        adapted.generate(**arguments, mars_threshold=0.2)
        assert rows[-1] < rows[0]

    @pytest.mark.parametrize("names", [None, ["a"] * 2])
    def test_their_layers_are_walked_over_once(self, eager_model, monkeypatch, names):
        adapted = get_peft_model(eager_model, LoraConfig(target_modules=["q_proj"], r=4), adapter_name="a")
        adapted.double().eval()
        walks = count_walks(adapted.get_base_model(), monkeypatch)
        adapted.generate(**ragged_prompts([5, 9]), **ARGUMENTS, mars_threshold=0.2, adapter_names=names)
        assert len(walks) == 1

    def test_a_model_without_adapters_is_not_walked_over(self, eager_model, monkeypatch):
        walks = count_walks(eager_model, monkeypatch)
        eager_model.generate(**ragged_prompts([5, 9]), **ARGUMENTS, mars_threshold=0.2)
        assert not walks


class TestRefused:
    @pytest.mark.parametrize("verify", [False, True])
    def test_token_type_ids(self, verify):
        model = tiny_model(tiny_config(GPT2Config, n_embd=32, n_layer=2, n_head=4, n_positions=64))
        prompts = ragged_prompts([6, 4])
        with pytest.raises(ValueError, match="`token_type_ids`"):
            model.generate(
                **prompts,
                token_type_ids=torch.full_like(prompts["input_ids"], 7),
                max_new_tokens=8,
                mars_threshold=0.5,
                mars_verify=verify,
            )

    @pytest.mark.parametrize("value", [torch.zeros(2, 5), torch.zeros(2), ["a", "b"], (1, 2)])
    def test_whatever_has_an_entry_for_each_row(self, value):
        with pytest.raises(ValueError, match="`anything`"):
            check_row_arguments({"anything": value}, batch_size=2)

    def test_what_has_none_is_passed_on(self):
        check_row_arguments({"a": True, "b": "ab", "c": torch.tensor(2), "d": torch.zeros(3, 2)}, batch_size=2)

    @pytest.mark.parametrize("config_class", [PromptTuningConfig, PrefixTuningConfig, PromptEncoderConfig])
    @pytest.mark.parametrize("verify", [False, True])
    def test_prompt_learning(self, model, config_class, verify):
        adapted = get_peft_model(model, config_class(task_type="CAUSAL_LM", num_virtual_tokens=4)).double().eval()
        prompts = ragged_prompts([6])
        with pytest.raises(ValueError, match=config_class.__name__):
            adapted.generate(**prompts, max_new_tokens=8, mars_threshold=0.5, mars_verify=verify)
        model.generate(**prompts, max_new_tokens=8, mars_threshold=0.5)  # the model inside is what it was

    def test_activated_lora(self, model):
        lora = LoraConfig(
            task_type="CAUSAL_LM",
            target_modules=["q_proj"],
            r=4,
            alora_invocation_tokens=[5, 6],
            init_lora_weights=False,
        )
        adapted = enable_mars(get_peft_model(model, lora).double().eval(), mask_token_id=MASK, block_size=4)
        prompt = torch.tensor([[3, 4, 5, 6, 7, 8]])
        adapted.generate(input_ids=prompt, max_new_tokens=8)
        with pytest.raises(ValueError, match="activated LoRA"):
            adapted.generate(input_ids=prompt, max_new_tokens=8, mars_threshold=0.5, mars_verify=True)
        plain = adapted.generate(input_ids=prompt, max_new_tokens=8, mars_threshold=1.0)
        assert plain.tolist() == adapted.generate(input_ids=prompt, max_new_tokens=8).tolist()
