import inspect
import json
import math

import pytest
import torch
from accelerate import ParallelismConfig
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from hf_mars import MARSConfig, MARSTrainer
from hf_mars.training.support import check_prepared
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


@pytest.fixture
def tokenizer():
    return byte_level_tokenizer()


def config(tmp_path, **overrides):
    return small_config(tmp_path, **{"per_device_train_batch_size": 8, "learning_rate": 5e-3, **overrides})


def history(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def test_the_arguments_are_those_of_the_parent():
    own, parents = (inspect.signature(trainer.__init__).parameters.values() for trainer in (MARSTrainer, SFTTrainer))
    assert [(p.name, p.kind, p.default) for p in own] == [(p.name, p.kind, p.default) for p in parents]


def test_a_saved_checkpoint_is_complete(tmp_path, tokenizer):
    trainer = MARSTrainer(
        text_model(tokenizer), config(tmp_path), train_dataset=counting_examples(16), processing_class=tokenizer
    )
    trainer.save_model(str(tmp_path / "saved"))
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())
    mask_token_id = tokenizer.convert_tokens_to_ids("<|mask|>")
    assert saved["mars"] == {"mask_token_id": mask_token_id, "block_size": 4}
    assert (tmp_path / "saved" / "custom_generate" / "generate.py").exists()
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").mask_token_id == mask_token_id
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", trust_remote_code=True)
    assert reloaded.generate.keywords["model"] is reloaded


def test_model_by_path_and_default_arguments(tmp_path, tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text_model(tokenizer).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    trainer = MARSTrainer(str(tmp_path / "base"), train_dataset=counting_examples(16))
    assert isinstance(trainer.args, MARSConfig)
    assert trainer.args.output_dir == "base-MARS"
    assert trainer.model.config.mars["block_size"] == 4


def test_losses_add_up_with_their_weight(tmp_path, tokenizer):
    dataset = counting_examples(8)
    for ar_weight in (0.0, 0.5, 1.0):
        trainer = MARSTrainer(
            text_model(tokenizer),
            config(tmp_path, ar_weight=ar_weight, block_phase="fixed"),
            train_dataset=dataset,
            processing_class=tokenizer,
        )
        batch = next(iter(trainer.get_train_dataloader()))
        loss = trainer.compute_loss(trainer.model, dict(batch)).item()
        metrics = {name: values[0] for name, values in trainer._metrics["train"].items()}
        num_tokens = (batch["labels"][:, 1:] != -100).sum().item()
        num_masks = num_tokens - len(batch["labels"])  # the last token of each response has no mask before it
        expected = ar_weight * metrics["ar_loss"] + metrics["mask_loss"] * num_masks / num_tokens
        assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.integration
def test_language_modelling_and_text_prompt_completion_data(tmp_path, tokenizer):
    for dataset in (
        Dataset.from_dict({"text": ["one two three four five six"] * 8}),
        Dataset.from_dict({"prompt": ["one two"] * 8, "completion": [" three four five"] * 8}),
        Dataset.from_dict(
            {"messages": [counting_examples(1)[0]["prompt"] + counting_examples(1)[0]["completion"]] * 8}
        ),
    ):
        trainer = MARSTrainer(
            text_model(tokenizer), config(tmp_path), train_dataset=dataset, processing_class=byte_level_tokenizer()
        )
        trainer.train()
        assert all(math.isfinite(loss) for loss in history(trainer, "mask_loss"))
        assert len(history(trainer, "mask_loss")) == 2


def test_evaluation_logs_the_same_metrics(tmp_path, tokenizer):
    trainer = MARSTrainer(
        text_model(tokenizer),
        config(tmp_path),
        train_dataset=counting_examples(8),
        eval_dataset=counting_examples(8),
        processing_class=tokenizer,
    )
    metrics = trainer.evaluate()
    logged = trainer.state.log_history[-1]
    assert math.isfinite(metrics["eval_loss"])
    assert {"eval_ar_loss", "eval_mask_loss", "eval_mask_accuracy", "eval_mean_token_accuracy"} <= set(logged)


def test_a_batch_without_supervised_tokens_gives_a_finite_zero(tmp_path, tokenizer):
    trainer = MARSTrainer(
        text_model(tokenizer), config(tmp_path), train_dataset=counting_examples(8), processing_class=tokenizer
    )
    batch = next(iter(trainer.get_train_dataloader()))
    batch["labels"].fill_(-100)
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    assert loss.item() == 0
    assert all(torch.isfinite(p.grad).all() for p in trainer.model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [({"loss_type": "dft"}, "loss_type"), ({"label_smoothing_factor": 0.1}, "label_smoothing_factor")],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, tokenizer, overrides, name):
    with pytest.raises(ValueError, match=name):
        MARSTrainer(
            text_model(tokenizer),
            config(tmp_path, **overrides),
            train_dataset=counting_examples(8),
            processing_class=tokenizer,
        )


def test_a_loss_function_of_ones_own_is_refused_by_name(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="compute_loss_func"):
        MARSTrainer(
            text_model(tokenizer),
            config(tmp_path),
            train_dataset=counting_examples(8),
            processing_class=tokenizer,
            compute_loss_func=lambda *args, **kwargs: None,
        )


@pytest.mark.parametrize("sizes", [{"cp_size": 2}, {"sp_size": 2}])
def test_processes_that_split_a_row_are_refused_by_name(tmp_path, tokenizer, sizes):
    trainer = MARSTrainer(
        text_model(tokenizer), config(tmp_path), train_dataset=counting_examples(8), processing_class=tokenizer
    )
    # Splitting needs several accelerators, so only the check is run.
    trainer.accelerator.state.parallelism_config = ParallelismConfig(**sizes)
    with pytest.raises(ValueError, match="parallelism_config"):
        check_prepared(trainer)


def test_flash_attention_is_refused_with_advice(tmp_path, tokenizer):
    model = text_model(tokenizer)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="attn_implementation='sdpa'"):
        MARSTrainer(model, config(tmp_path), train_dataset=counting_examples(8), processing_class=tokenizer)


def test_a_dataset_without_supervised_tokens_is_refused(tmp_path, tokenizer):
    dataset = Dataset.from_dict({"input_ids": [[5, 6, 7]] * 4, "labels": [[-100] * 3] * 4})
    with pytest.raises(ValueError, match="train_dataset"):
        MARSTrainer(text_model(tokenizer), config(tmp_path), train_dataset=dataset, processing_class=tokenizer)


@pytest.mark.parametrize("name", ["eos_token", "pad_token"])
def test_a_mask_token_that_the_arguments_also_name_otherwise_is_refused(tmp_path, tokenizer, name):
    arguments = {"mask_token": "<|unused|>", name: "<|unused|>"}
    with pytest.raises(ValueError, match=f"`mask_token` and `{name}`"):
        MARSTrainer(
            text_model(tokenizer),
            config(tmp_path, **arguments),
            train_dataset=counting_examples(8),
            processing_class=tokenizer,
        )


def test_a_tokenizer_that_disagrees_with_the_model_is_refused(tmp_path, tokenizer):
    model = text_model(tokenizer)
    model.config.mars = {"mask_token_id": 7, "block_size": 4}
    with pytest.raises(ValueError, match="mask token id 7"):
        MARSTrainer(model, config(tmp_path), train_dataset=counting_examples(8), processing_class=tokenizer)


def test_other_arguments_than_a_mars_config_are_refused(tmp_path, tokenizer):
    with pytest.raises(TypeError, match="MARSConfig"):
        MARSTrainer(
            text_model(tokenizer),
            SFTConfig(output_dir=str(tmp_path), bf16=False),
            train_dataset=counting_examples(8),
            processing_class=tokenizer,
        )


def test_a_full_vocabulary_names_the_tokens_that_could_serve(tmp_path, tokenizer):
    with pytest.raises(ValueError, match=r"mask_token.*<\|unused\|>"):
        MARSTrainer(
            text_model(tokenizer, spare_rows=0),
            config(tmp_path),
            train_dataset=counting_examples(8),
            processing_class=tokenizer,
        )


def test_a_named_special_token_serves_where_no_row_is_spare(tmp_path, tokenizer):
    trainer = MARSTrainer(
        text_model(tokenizer, spare_rows=0),
        config(tmp_path, mask_token="<|unused|>"),
        train_dataset=counting_examples(8),
        processing_class=tokenizer,
    )
    trainer.train()
    assert trainer.model.config.mars["mask_token_id"] == tokenizer.convert_tokens_to_ids("<|unused|>")
