"""Tokens per forward and a sample, printed at every evaluation."""

import pytest
import torch
from transformers import GenerationConfig

from hf_mars import LogRunsCallback, MARSTrainer
from hf_mars.training.log_runs import format_runs
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


@pytest.fixture
def trainer(tmp_path):
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    return MARSTrainer(
        text_model(tokenizer),
        small_config(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2),
        train_dataset=counting_examples(40),
        eval_dataset=counting_examples(8),
        processing_class=tokenizer,
    )


def test_logs_and_prints_runs_at_every_evaluation(trainer, capsys):
    prompts = counting_examples(3)["prompt"]
    config = GenerationConfig(max_new_tokens=24, mars_threshold=0.0)
    trainer.add_callback(LogRunsCallback(trainer, prompts, config))
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "eval_tokens_per_forward" in entry]
    assert [entry["step"] for entry in logged] == [2, 4]
    assert logged[-1]["eval_tokens_per_forward"] > 1
    printed = capsys.readouterr().out
    assert f"step 4, {logged[-1]['eval_tokens_per_forward']:.2f} tokens/forward" in printed
    assert "│" in printed
    assert not trainer.model.training  # ready to generate after the training, callback or not


def test_texts_are_prompts_too(trainer):
    trainer.add_callback(LogRunsCallback(trainer, ["Count from 1."]))
    trainer.evaluate()
    assert trainer.state.log_history[-1]["eval_tokens_per_forward"] >= 1


def test_what_cannot_show_runs_is_refused(trainer):
    with pytest.raises(ValueError, match="prompts"):
        LogRunsCallback(trainer, [])
    with pytest.raises(ValueError, match="mars_threshold"):
        LogRunsCallback(trainer, ["Count."], GenerationConfig(max_new_tokens=4))


def test_a_bar_stands_where_a_forward_ended():
    tokenizer = byte_level_tokenizer()
    token_ids = tokenizer("1 2 3 4", add_special_tokens=False)["input_ids"]
    text = format_runs(tokenizer, token_ids, [2, len(token_ids) - 2])
    assert text.count("│") == 1
    assert text.replace("│", "") == "1 2 3 4"
