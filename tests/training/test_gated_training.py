"""Runs with `mask_gated`: the same numbers however the work is cut, and the logs of what is learned."""

import math

import pytest
import torch
from peft import LoraConfig

from hf_mars import MARSConfig, MARSTrainer
from hf_mars.training.mask_losses import MASK_LOSSES
from hf_mars.training.streams import IGNORED
from tests.tiny_text import byte_level_tokenizer, counting_examples, several_turns, text_model
from tests.training.runs import small_config


pytestmark = pytest.mark.integration


def make_trainer(tmp_path, train_dataset=None, eval_dataset=None, tokenizer=None, dtype=None, **overrides):
    arguments = {"mask_gated": True, "mask_phases": 4, "mask_decay": 1.0, "mask_loss": "kl"}
    arguments["gradient_checkpointing"] = False
    tokenizer = tokenizer or byte_level_tokenizer()
    torch.manual_seed(0)
    model = text_model(tokenizer)
    with torch.no_grad():  # sure enough of its random answers that there is something to learn from it
        model.get_output_embeddings().weight.mul_(10)
    return MARSTrainer(
        model if dtype is None else model.to(dtype),
        small_config(tmp_path, **{"learning_rate": 5e-3, "max_steps": 3, **arguments, **overrides}),
        train_dataset=train_dataset or counting_examples(24),
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, target_modules="all-linear"),
    )


def train(tmp_path, resume=None, **overrides):
    trainer = make_trainer(tmp_path, **overrides)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def logged(trainer, name="loss"):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def trained(trainer):
    return [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]


def check_equal(first, second, **tolerance):
    assert logged(first) == pytest.approx(logged(second), rel=1e-4)
    for a, b in zip(trained(first), trained(second), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def test_accumulated_gradients_equal_one_batch(tmp_path):
    arguments = {"data_seed": 1, "max_grad_norm": 0.0, "learning_rate": 1e-3}
    whole = train(tmp_path, per_device_train_batch_size=4, **arguments)
    parts = train(tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=4, **arguments)
    check_equal(whole, parts, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing_and_evaluates(tmp_path, use_reentrant):
    reference = train(tmp_path, eval_dataset=counting_examples(4))
    trainer = train(
        tmp_path,
        eval_dataset=counting_examples(4),
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": use_reentrant},
    )
    check_equal(trainer, reference, atol=1e-5, rtol=1e-4)
    for _ in range(2):  # without a backward pass in between
        assert trainer.evaluate()["eval_mask_loss"] == pytest.approx(reference.evaluate()["eval_mask_loss"], rel=1e-4)


def test_resuming_continues_the_same_trajectory(tmp_path):
    arguments = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "mask_phases": 1, "noisy_ratio": 0.7}
    arguments["mask_decay"] = 0.5
    whole = train(tmp_path, **arguments)
    resumed = train(tmp_path, resume=str(tmp_path / "trainer" / "checkpoint-3"), **arguments)
    assert logged(resumed)[-3:] == pytest.approx(logged(whole)[-3:], rel=1e-6)
    check_equal(whole, resumed, atol=1e-6, rtol=1e-5)


def test_bf16_autocast_and_a_bf16_base_are_close(tmp_path):
    reference = train(tmp_path)
    for dtype in (None, torch.bfloat16):
        trainer = train(tmp_path, dtype=dtype, bf16=True, use_cpu=True)
        assert logged(trainer) == pytest.approx(logged(reference), rel=0.05)
        assert {parameter.dtype for parameter in trained(trainer)} == {torch.float32}


@pytest.mark.parametrize("layout", [{"packing": True, "max_length": 64}, {"padding_free": True, "max_length": None}])
def test_packed_and_padded_give_the_same_loss_and_gradient(tmp_path, layout):
    results = []
    for overrides in ({}, layout):
        trainer = make_trainer(tmp_path, train_dataset=counting_examples(12), dtype=torch.float64, **overrides)
        batches = list(trainer.get_train_dataloader())
        num_items = sum((batch["labels"][:, 1:] != IGNORED).sum() for batch in batches)
        trainer.model.train()
        total = 0.0
        for batch in batches:
            loss = trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=num_items)
            loss.backward()
            total += loss.item()
        results.append((total, torch.cat([parameter.grad.flatten() for parameter in trained(trainer)])))
    (padded_loss, padded_gradient), (packed_loss, packed_gradient) = results
    assert packed_loss == pytest.approx(padded_loss, rel=1e-5)
    torch.testing.assert_close(packed_gradient, padded_gradient, rtol=1e-4, atol=1e-6)


def test_assistant_only_loss_with_several_turns(tmp_path):
    tokenizer = byte_level_tokenizer()
    dataset = several_turns(tokenizer)
    trainer = train(tmp_path, train_dataset=dataset, tokenizer=tokenizer, assistant_only_loss=True)
    assert all(math.isfinite(loss) and loss > 0 for loss in logged(trainer, "mask_loss"))


@pytest.mark.parametrize("mask_loss", MASK_LOSSES)
def test_every_loss_teaches_the_masks(tmp_path, mask_loss):
    trainer = train(tmp_path, mask_loss=mask_loss, mask_phases=2, max_steps=30, learning_rate=1e-2)
    assert logged(trainer, "mask_loss")[-1] < 0.97 * logged(trainer, "mask_loss")[0]
    if mask_loss != "ce":
        assert logged(trainer, "mask_overlap")[-1] > logged(trainer, "mask_overlap")[0]


def test_what_is_logged(tmp_path):
    trainer = train(tmp_path, eval_dataset=counting_examples(8), eval_thresholds=[0.9, 0.0], max_steps=1)
    names = {"mask_loss", "mask_accuracy", "mask_overlap", "mask_accuracy/3", "mask_overlap/1", "mean_token_accuracy"}
    names |= {f"expected_tokens_per_forward/{kind}" for kind in ("verified", "sampled")}
    assert names <= set(trainer.state.log_history[0])
    assert not {"ar_loss", "mask_accuracy/4"} & set(trainer.state.log_history[0])
    trainer.evaluate()
    assert {f"eval_{name}" for name in names} <= set(trainer.state.log_history[-1])
    # With a threshold of 0 every mask is accepted.
    assert 3 < trainer.state.log_history[-1]["eval_expected_tokens_per_forward/0"] <= 4
    assert 1 <= trainer.state.log_history[-1]["eval_expected_tokens_per_forward/verified"] <= 4


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"mask_gated": True, "ar_weight": 0.5}, "ar_weight"),
        ({"mask_gated": True, "block_phase": "fixed"}, "block_phase"),
        ({"mask_gated": True, "mask_phases": 0}, "mask_phases"),
        ({"mask_gated": True, "mask_phases": 5}, "mask_phases"),
        ({"mask_gated": True, "mask_loss": "mse"}, "mask_loss"),
        ({"mask_gated": True, "mask_decay": 1.5}, "mask_decay"),
        ({"mask_decay": 0.5}, "mask_decay.*mask_gated"),
        ({"mask_loss": "kl"}, "mask_loss.*mask_gated"),
        ({"mask_phases": 2}, "mask_phases.*mask_gated"),
    ],
)
def test_bad_values_are_named(tmp_path, arguments, name):
    with pytest.raises(ValueError, match=name):
        MARSConfig(output_dir=str(tmp_path), bf16=False, **arguments)
