"""The estimate of decoding speed belongs to one evaluation, and to those who ask for it."""

import pytest

from hf_mars import MARSTrainer
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


pytestmark = pytest.mark.integration


def make_trainer(tmp_path, eval_dataset, **overrides):
    # Hardly trained, the model is sure of nothing: these thresholds are passed by some masks and not by others.
    overrides = {"eval_thresholds": [0.2, 0.02], "max_steps": 30, "learning_rate": 5e-3, **overrides}
    tokenizer = byte_level_tokenizer()
    return MARSTrainer(
        text_model(tokenizer),
        small_config(tmp_path, **overrides),
        train_dataset=counting_examples(16),
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
    )


def estimates(logs):
    return {name: value for name, value in logs.items() if "expected_tokens_per_forward" in name}


def test_each_evaluation_and_each_of_its_datasets_is_counted_alone(tmp_path):
    examples = counting_examples(11)
    few, many = examples.select(range(3)), examples.select(range(3, 11))
    trainer = make_trainer(tmp_path, {"few": few, "many": many})
    trainer.train()
    alone = [estimates(trainer.evaluate(trainer.eval_dataset[name])) for name in ("few", "many")]
    trainer.predict(trainer.eval_dataset["few"])
    trainer.evaluate()
    together = [estimates(entry) for entry in trainer.state.log_history[-2:]]
    assert together == alone
    assert alone[0] != alone[1]
    assert alone[0].keys() == {"eval_expected_tokens_per_forward/0.2", "eval_expected_tokens_per_forward/0.02"}


def test_without_thresholds_nothing_is_estimated(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_mars.training.expected_speed.count_expected_forwards", None)
    trainer = make_trainer(tmp_path, counting_examples(3), eval_thresholds=[])
    assert estimates(trainer.evaluate()) == {}
