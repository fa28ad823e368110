import functools
import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GenerationMixin, pipeline

from hf_mars import AutoMARSModelForCausalLM, decoding, save_pretrained
from tests.gated import base_and_gated
from tests.hub.without_package import generate_without_package
from tests.tiny import MASK, ragged_prompts, tiny_config, tiny_model
from tests.tiny_text import byte_level_tokenizer, sharp_text_model


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.integration
def test_a_checkpoint_generates_where_the_package_cannot_be_imported(tmp_path, verify):
    model = tiny_model()
    save_pretrained(model, tmp_path / "checkpoint")
    prompts = ragged_prompts([4, 9])
    arguments = {"max_new_tokens": 20, "mars_threshold": 0.3, "mars_verify": verify}
    sequences, acceptance_lengths, positional = generate_without_package(
        tmp_path / "checkpoint", prompts, arguments, cwd=tmp_path
    )
    expected = model.generate(**prompts, **arguments, return_dict_in_generate=True)
    assert sequences == positional == expected.sequences.tolist()
    assert acceptance_lengths == expected.acceptance_lengths
    assert expected.tokens_per_forward > 1.2


def test_a_checkpoint_with_code_of_its_own_leaves_that_of_the_package_alone(tmp_path):
    config = tiny_config(hidden_size=96, intermediate_size=160)
    save_pretrained(tiny_model(config, dtype=torch.bfloat16, sharpness=8.0), tmp_path)
    copy = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True, dtype=torch.bfloat16)
    own = AutoMARSModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    arguments = {**ragged_prompts([9, 4]), "max_new_tokens": 40, "do_sample": False}
    plain = own.generate(**arguments).tolist()
    for model in (own, copy, own):
        assert model.generate(**arguments, mars_verify="exact", mars_threshold=0.3).tolist() == plain


def test_a_checkpoint_names_its_mask_to_parallel_drafters(tmp_path):
    save_pretrained(tiny_model(), tmp_path / "first")
    loaded = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "first", mask_token_id=7)
    save_pretrained(loaded, tmp_path / "second")
    read = lambda name: json.loads((tmp_path / name / "config.json").read_text())["pard_token"]  # noqa: E731
    assert (read("first"), read("second")) == (MASK, 7)


def test_saving_a_loaded_checkpoint_again_keeps_everything(tmp_path):
    save_pretrained(tiny_model(), tmp_path / "first")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "first", trust_remote_code=True, dtype=torch.float64)
    save_pretrained(loaded, tmp_path / "second")
    first, second = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("first", "second"))
    assert first == second


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_models_own_save_writes_the_same(tmp_path):
    model, tokenizer = sharp_text_model()
    save_pretrained(model, tmp_path / "ours", tokenizer)
    tokenizer.save_pretrained(tmp_path / "own")
    model.save_pretrained(tmp_path / "own", max_shard_size="1GB")
    assert files_of(tmp_path / "own") == files_of(tmp_path / "ours")
    assert {"README.md", "custom_generate/generate.py", "tokenizer.json"} <= files_of(tmp_path / "own").keys()
    model.save_pretrained(tmp_path / "second", False)  # by position: not the main process
    assert not (tmp_path / "second").exists() or not list((tmp_path / "second").iterdir())


def test_generation_fields_of_mars_count_wherever_the_code_is(tmp_path):
    model, tokenizer = sharp_text_model()
    inputs = {**tokenizer("Count from 3.", return_tensors="pt"), "max_new_tokens": 24}
    plain = model.generate(**inputs).tolist()
    model.generation_config.mars_threshold, model.generation_config.mars_block_size = 0.3, 3
    lossy = model.generate(**inputs, return_dict_in_generate=True)
    assert lossy.tokens_per_forward > 1.2 and max(lossy.acceptance_lengths[0]) == 3
    assert model.generate(**inputs, mars_threshold=1.0).tolist() == plain, "an argument wins"
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    loaded = [
        AutoMARSModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64),
        AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64, trust_remote_code=True),
    ]
    assert [each.generate(**inputs).tolist() for each in loaded] == [lossy.sequences.tolist()] * 2
    without_code = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert without_code.generate(**inputs).tolist() == plain
    without_code.save_pretrained(tmp_path / "again")
    texts = [
        pipeline("text-generation", str(tmp_path), dtype=torch.float64, trust_remote_code=trusted)(
            "Count from 3.", max_new_tokens=24, do_sample=False, return_full_text=False
        )[0]["generated_text"]
        for trusted in (False, True)
    ]
    length = inputs["input_ids"].shape[1]
    decode = functools.partial(tokenizer.decode, skip_special_tokens=True)
    assert texts == [decode(plain[0][length:]), decode(lossy.sequences[0, length:])]


def test_a_threshold_that_json_cannot_hold_costs_no_save(tmp_path, caplog):
    model = tiny_model()
    config = model.generation_config
    config.mars_threshold, config.mars_verify, config.max_new_tokens = lambda: 0.3, True, 7
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "generation_config.json").read_text())
    assert "mars_threshold" not in written and written["mars_verify"] and written["max_new_tokens"] == 7
    assert any("mars_threshold" in record.getMessage() for record in caplog.records)
    assert config.mars_threshold() == 0.3


def test_the_code_of_a_checkpoint_names_what_it_requires(tmp_path):
    save_pretrained(tiny_model(), tmp_path)
    assert "transformers>=" in (tmp_path / "custom_generate" / "requirements.txt").read_text()
    sources = {path.name: path.read_bytes() for path in Path(decoding.__file__).parent.glob("*.py")}
    copies = {path.name: path.read_bytes() for path in (tmp_path / "custom_generate").glob("*.py")}
    assert copies == sources


def test_a_model_loaded_with_remote_code_saves_as_usual(tmp_path):
    save_pretrained(tiny_model(), tmp_path / "first")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "first", trust_remote_code=True, dtype=torch.float64)
    loaded.save_pretrained(tmp_path / "second")
    prompts = ragged_prompts([4, 9])
    arguments = {"max_new_tokens": 20, "mars_threshold": 0.3}
    again = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "second", dtype=torch.float64)
    assert again.generate(**prompts, **arguments).tolist() == loaded.generate(**prompts, **arguments).tolist()


def test_an_adapter_saved_merged_and_saved_again_loses_nothing(tmp_path):
    torch.manual_seed(0)
    save_pretrained(tiny_model(), tmp_path / "base", byte_level_tokenizer())
    base = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float64)
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    save_pretrained(adapted, tmp_path / "adapter", byte_level_tokenizer())
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["mars"] == base.config.mars
    assert "AutoMARSModelForCausalLM" in (tmp_path / "adapter" / "README.md").read_text()
    loaded = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float64)
    save_pretrained(loaded, tmp_path / "adapter2")
    first, second = ((tmp_path / name / "adapter_config.json").read_text() for name in ("adapter", "adapter2"))
    assert json.loads(first) == json.loads(second)
    save_pretrained(loaded.merge_and_unload(), tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", trust_remote_code=True, dtype=torch.float64)
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("base", "merged")]
    assert configs[0] == configs[1]
    prompts, arguments = ragged_prompts([4, 9]), {"max_new_tokens": 20, "mars_threshold": 0.3}
    outputs = [model.generate(**prompts, **arguments).tolist() for model in (adapted, loaded, merged)]
    assert outputs[0] == outputs[1] == outputs[2]


def test_a_model_without_an_entry_is_refused(tmp_path):
    with pytest.raises(ValueError, match="config.mars"):
        save_pretrained(AutoModelForCausalLM.from_config(tiny_config()), tmp_path)


def test_a_gated_adapter_needs_transformers_and_peft_alone(tmp_path):
    base, model = base_and_gated()
    base.config.__dict__.pop("mars")
    base.save_pretrained(tmp_path / "base")
    model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    save_pretrained(model, tmp_path / "adapter", byte_level_tokenizer())
    byte_level_tokenizer().save_pretrained(tmp_path / "own")
    model.save_pretrained(tmp_path / "own")
    assert files_of(tmp_path / "own") == files_of(tmp_path / "adapter")
    assert "peft>=" in (tmp_path / "adapter" / "custom_generate" / "requirements.txt").read_text()
    card = (tmp_path / "adapter" / "README.md").read_text()
    settings = next(line for line in card.splitlines() if line.startswith("model.config.mars ="))
    assert "masks alone" in card and "merge_and_unload" not in card

    prompts, lossless = ragged_prompts([5, 9, 3, 7]), {"mars_verify": True, "max_new_tokens": 32}
    expected = GenerationMixin.generate(base, **prompts, max_new_tokens=32).tolist()
    model = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float64)
    output = model.generate(**prompts, **lossless, return_dict_in_generate=True)
    assert output.sequences.tolist() == expected and output.tokens_per_forward > 1.2

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float64)
    exec(settings, {"model": model})  # as the card says
    repository = {"custom_generate": str(tmp_path / "adapter"), "trust_remote_code": True}
    again = model.generate(**prompts, **lossless, **repository, return_dict_in_generate=True)
    assert again.sequences.tolist() == expected and again.num_forward_passes == output.num_forward_passes
