"""What a model has learned once it is trained: several tokens a forward, as many as the evaluation says."""

import pytest
import torch

from hf_mars import MARSTrainer
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


pytestmark = pytest.mark.integration


EXAMPLES = counting_examples(20)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    arguments = {"max_steps": 200, "learning_rate": 7e-3, "per_device_train_batch_size": 8}
    trainer = MARSTrainer(
        text_model(tokenizer),
        small_config(tmp_path_factory.mktemp("run"), **arguments, per_device_eval_batch_size=5),
        train_dataset=EXAMPLES,
        eval_dataset=EXAMPLES,
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


def history(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def generate(trainer, **arguments):
    inputs = trainer.processing_class.apply_chat_template(
        list(EXAMPLES["prompt"]),
        add_generation_prompt=True,
        padding=True,
        return_dict=True,
        return_tensors="pt",
        tokenizer_kwargs={"padding_side": "left"},
    )
    return trainer.model.generate(**inputs, max_new_tokens=60, return_dict_in_generate=True, **arguments)


def test_both_losses_fall(trainer):
    for name in ("ar_loss", "mask_loss"):
        assert history(trainer, name)[-1] < 0.5 * history(trainer, name)[0]
    assert history(trainer, "mask_accuracy")[-1] > 0.6 > history(trainer, "mask_accuracy")[0]
    assert history(trainer, "mean_token_accuracy")[-1] > 0.6


def test_the_model_is_ready_to_generate(trainer):
    """Gradient checkpointing and all."""
    plain = generate(trainer)
    verified = generate(trainer, mars_threshold=0.3, mars_verify=True)
    assert verified.sequences.tolist() == plain.sequences.tolist()
    assert verified.tokens_per_forward > 1.5


def test_expected_tokens_per_forward_is_what_decoding_measures(trainer):
    logs = trainer.evaluate()
    expected = trainer.state.log_history[-1]
    assert expected["eval_mask_accuracy"] > 0.8 and logs["eval_loss"] > 0
    measured = {tau: generate(trainer, mars_threshold=tau).tokens_per_forward for tau in trainer.args.eval_thresholds}
    assert min(measured.values()) < 1.5 and max(measured.values()) > 3, "thresholds that matter"
    for threshold, value in measured.items():
        assert expected[f"eval_expected_tokens_per_forward/{threshold:g}"] == pytest.approx(value, rel=0.05)
