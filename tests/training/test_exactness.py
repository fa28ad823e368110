"""The same numbers however the work is cut: accumulated, resumed, over processes, with an adapter."""

import time
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoTokenizer, BitsAndBytesConfig

from hf_mars import AutoMARSModelForCausalLM, MARSTrainer
from hf_mars.training.resuming import get_last_complete_checkpoint
from hf_mars.training.streams import IGNORED
from tests.processes import PROCESSES, run_processes
from tests.tiny_text import byte_level_tokenizer, counting_examples, mixtral, text_model
from tests.training.runs import small_config
from tests.training.test_gated_step import CONFIGS, gated_model, gated_step, ragged_batch


pytestmark = pytest.mark.integration


@pytest.fixture
def tokenizer():
    return byte_level_tokenizer()


def config(tmp_path, **overrides):
    return small_config(tmp_path, **{"learning_rate": 1e-3, "max_steps": 6, "block_phase": "fixed", **overrides})


def train(tmp_path, tokenizer, resume=None, model=None, dataset=None, peft_config=None, **overrides):
    torch.manual_seed(0)
    trainer = MARSTrainer(
        model or text_model(tokenizer),
        config(tmp_path, **overrides),
        train_dataset=dataset or counting_examples(48),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def logged(trainer, name="loss"):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def test_accumulated_gradients_equal_one_batch(tmp_path, tokenizer):
    arguments = {"max_steps": 3, "data_seed": 1, "max_grad_norm": 0.0}
    whole = train(tmp_path, tokenizer, per_device_train_batch_size=4, gradient_accumulation_steps=1, **arguments)
    parts = train(
        tmp_path, byte_level_tokenizer(), per_device_train_batch_size=1, gradient_accumulation_steps=4, **arguments
    )
    assert logged(parts) == pytest.approx(logged(whole), abs=1e-5)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_gradient_checkpointing_changes_nothing(tmp_path, tokenizer, gradient_checkpointing):
    trainer = train(tmp_path, tokenizer, max_steps=2, gradient_checkpointing=gradient_checkpointing)
    reference = train(tmp_path, byte_level_tokenizer(), max_steps=2, gradient_checkpointing=False)
    assert logged(trainer) == pytest.approx(logged(reference), rel=1e-5)


def test_bf16_autocast_is_close(tmp_path, tokenizer):
    trainer = train(tmp_path, tokenizer, max_steps=2, bf16=True, use_cpu=True)
    reference = train(tmp_path, byte_level_tokenizer(), max_steps=2)
    assert logged(trainer) == pytest.approx(logged(reference), rel=0.02)


def test_resuming_continues_the_same_trajectory_with_random_phases(tmp_path, tokenizer):
    arguments = {"block_phase": "random", "save_strategy": "steps", "save_steps": 3, "noisy_ratio": 0.7}
    whole = train(tmp_path, tokenizer, **arguments)
    resumed = train(tmp_path, byte_level_tokenizer(), resume=str(tmp_path / "trainer" / "checkpoint-3"), **arguments)
    assert logged(resumed)[-3:] == pytest.approx(logged(whole)[-3:], rel=1e-6)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_noisy_ratio_masks_fewer_blocks_and_keeps_the_expected_loss(tmp_path, tokenizer):
    losses = {}
    for ratio in (1.0, 0.5):
        torch.manual_seed(0)
        trainer = MARSTrainer(
            text_model(tokenizer),
            config(tmp_path, noisy_ratio=ratio, ar_weight=0.0, block_phase="random"),
            train_dataset=counting_examples(16),
            processing_class=byte_level_tokenizer(),
        )
        trainer.model.train()
        batch = next(iter(trainer.get_train_dataloader()))
        with torch.no_grad():
            values = [trainer.compute_loss(trainer.model, dict(batch)).item() for _ in range(40)]
        losses[ratio] = sum(values) / len(values)
    assert losses[0.5] == pytest.approx(losses[1.0], rel=0.1)


def test_experts_get_their_load_balancing_loss(tmp_path, tokenizer):
    vocab_size = len(tokenizer) + 4

    def seeded_mixtral():
        torch.manual_seed(0)
        return mixtral(vocab_size)

    trainer = train(tmp_path, tokenizer, model=seeded_mixtral(), max_steps=1, router_aux_loss_coef=0.1)
    without = train(tmp_path, byte_level_tokenizer(), model=seeded_mixtral(), max_steps=1, router_aux_loss_coef=0.0)
    aux_loss = logged(trainer, "aux_loss")[0]
    assert 1.5 < aux_loss < 4  # 2 of 4 experts for each token: 2 when balanced
    assert logged(trainer)[0] == pytest.approx(logged(without)[0] + 0.1 * aux_loss, rel=1e-3)


def train_on(tmp_path):
    arguments = {"max_steps": 400, "save_strategy": "steps", "save_steps": 5, "save_total_limit": 2}
    train(tmp_path, byte_level_tokenizer(), **arguments)


def test_a_killed_run_resumes(tmp_path, tokenizer):
    process = PROCESSES.Process(target=train_on, args=(tmp_path,))
    process.start()
    # Old ones are deleted, so that no certain one can be waited for.
    while process.is_alive() and len(list((tmp_path / "trainer").glob("checkpoint-*"))) < 2:
        time.sleep(0.02)
    process.kill()
    process.join()
    # What a kill in the middle of a save leaves behind: weights, but not yet the trainer's state.
    (tmp_path / "trainer" / "checkpoint-1000").mkdir()
    saved = int(Path(get_last_complete_checkpoint(tmp_path / "trainer")).name.split("-")[1])
    assert saved >= 5
    trainer = train(tmp_path, tokenizer, resume=True, max_steps=saved + 5, save_strategy="steps", save_steps=5)
    reference = train(tmp_path / "reference", byte_level_tokenizer(), max_steps=1)
    assert trainer.state.global_step == saved + 5
    assert logged(trainer, "ar_loss")[-1] < logged(reference, "ar_loss")[0]
    assert AutoMARSModelForCausalLM.from_pretrained(tmp_path / "trainer" / f"checkpoint-{saved + 5}").config.mars


def train_together(rank, tmp_path):
    arguments = {"max_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True}
    trainer = train(tmp_path, byte_level_tokenizer(), **arguments)
    assert trainer.args.world_size == 2
    return logged(trainer) + logged(trainer, "mask_loss") + logged(trainer, "mask_accuracy")


def train_gated_together(rank, tmp_path):
    trainer = train_gated(tmp_path, per_device_train_batch_size=2, use_cpu=True)
    assert trainer.args.world_size == 2
    return logged(trainer) + logged(trainer, "mask_loss") + logged(trainer, "expected_tokens_per_forward/sampled")


def train_gated(tmp_path, **overrides):
    arguments = {"max_steps": 2, "block_phase": "random", "mask_gated": True, "mask_phases": 4, "mask_decay": 1.0}
    return train(tmp_path, byte_level_tokenizer(), **arguments, **overrides)


def test_two_processes_give_the_loss_of_one_with_a_gated_adapter(tmp_path):
    both, _ = run_processes(tmp_path, train_gated_together, tmp_path)
    alone = train_gated(tmp_path, per_device_train_batch_size=4)
    expected = logged(alone) + logged(alone, "mask_loss") + logged(alone, "expected_tokens_per_forward/sampled")
    assert both == pytest.approx(expected, rel=1e-3)


def score_sharded(rank, tmp_path):
    """Loss and gradients of one step, whole, and sharded by FSDP2 over the processes."""
    results = []
    for is_sharded in (False, True):
        model = gated_model(CONFIGS["tied"]).train()
        base_model = model.get_base_model()
        base_model.gradient_checkpointing_enable({"use_reentrant": False})
        if is_sharded:
            mesh = init_device_mesh("cpu", (2,))
            for module in (*base_model.model.layers, model):
                fully_shard(module, mesh=mesh)
        step = gated_step(model, tmp_path, mask_loss="kl", mask_phases=4)
        loss = step(model, base_model, ragged_batch()).weighted_losses("kl").sum()
        loss.backward()
        step.finish()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        whole = [gradient.full_tensor() if is_sharded else gradient for gradient in gradients]
        results.append([loss.item(), *(gradient.norm().item() for gradient in whole)])
    return results


def test_a_sharded_model_with_a_gated_adapter_gives_the_gradients_of_the_whole(tmp_path):
    for whole, sharded in run_processes(tmp_path, score_sharded, tmp_path):
        assert len(whole) > 20 and sharded == pytest.approx(whole, rel=1e-5)


def test_two_processes_give_the_loss_of_one(tmp_path, tokenizer):
    both, _ = run_processes(tmp_path, train_together, tmp_path)
    alone = train(tmp_path, tokenizer, max_steps=2, per_device_train_batch_size=4)
    expected = logged(alone) + logged(alone, "mask_loss") + logged(alone, "mask_accuracy")
    assert both == pytest.approx(expected, rel=1e-3)


class TestAdapters:
    def lora(self, **overrides):
        from peft import LoraConfig

        return LoraConfig(**{"r": 8, "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"], **overrides})

    @pytest.mark.parametrize("use_dora", [False, True])
    @pytest.mark.parametrize("tied", [False, True])
    def test_the_mask_row_trains_saves_reloads_and_merges(self, tmp_path, tokenizer, use_dora, tied):
        torch.manual_seed(0)
        text_model(tokenizer, tie_word_embeddings=tied).save_pretrained(tmp_path / "base")
        tokenizer.save_pretrained(tmp_path / "base")
        user_config = self.lora(use_dora=use_dora)
        trainer = MARSTrainer(
            str(tmp_path / "base"),
            config(tmp_path, max_steps=12, learning_rate=1e-2),
            train_dataset=counting_examples(48),
            peft_config=user_config,
        )
        assert user_config.trainable_token_indices is None, "the passed configuration is not changed"
        assert (trainer.model.config.tie_word_embeddings) == tied
        mask = trainer.model.config.mars["mask_token_id"]
        before = trainer.model.get_base_model().get_input_embeddings().weight[[0, mask]].detach().clone()
        trainer.train()
        after = trainer.model.get_base_model().get_input_embeddings().weight[[0, mask]].detach()
        assert torch.equal(before[0], after[0]) and not torch.equal(before[1], after[1])
        assert logged(trainer, "mask_loss")[-1] < logged(trainer, "mask_loss")[0]

        trainer.save_model(str(tmp_path / "adapter"))
        weights = (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size
        assert weights < 0.5 * (tmp_path / "base" / "model.safetensors").stat().st_size

        loaded = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "adapter")
        assert loaded.config.mars == {"mask_token_id": mask, "block_size": 4}
        assert AutoTokenizer.from_pretrained(tmp_path / "adapter").mask_token_id == mask
        inputs = tokenizer("Count from 3.", return_tensors="pt")
        arguments = {**inputs, "max_new_tokens": 16, "mars_threshold": 0.0, "return_dict_in_generate": True}
        window = torch.cat([inputs["input_ids"], torch.full((1, 3), mask)], dim=1)
        with torch.no_grad():
            logits = trainer.model(window).logits
            torch.testing.assert_close(loaded(window).logits, logits, atol=1e-4, rtol=1e-4)
            merged = trainer.model.merge_and_unload()
            torch.testing.assert_close(merged(window).logits, logits, atol=1e-4, rtol=1e-4)
        merged.save_pretrained(tmp_path / "merged")
        again = AutoMARSModelForCausalLM.from_pretrained(tmp_path / "merged")
        outputs = [model.generate(**arguments) for model in (loaded, merged, again)]
        assert outputs[1].sequences.tolist() == outputs[2].sequences.tolist()
        assert all(output.num_forward_passes < 16 for output in outputs)

    def test_a_quantised_base(self, tmp_path, tokenizer):
        """QLoRA: the base in 4 bits stays as it is, the adapter and the mask row train, save and reload."""
        pytest.importorskip("bitsandbytes")
        torch.manual_seed(0)
        text_model(tokenizer).save_pretrained(tmp_path / "base")
        tokenizer.save_pretrained(tmp_path / "base")
        quantization = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
        )
        trainer = MARSTrainer(
            str(tmp_path / "base"),
            config(tmp_path, max_steps=12, learning_rate=1e-2, model_init_kwargs={"dtype": "float32"}),
            train_dataset=counting_examples(48),
            quantization_config=quantization,
            peft_config=self.lora(),
        )
        layer = trainer.model.get_base_model().model.layers[0].mlp.gate_proj
        assert layer.weight.dtype == torch.uint8
        before = layer.weight.clone()
        trainer.train()
        assert torch.equal(layer.weight, before)
        assert logged(trainer, "mask_loss")[-1] < logged(trainer, "mask_loss")[0]

        trainer.save_model(str(tmp_path / "adapter"))
        loaded = AutoMARSModelForCausalLM.from_pretrained(
            tmp_path / "adapter", quantization_config=quantization, dtype=torch.float32
        )
        inputs = tokenizer("Count from 3.", return_tensors="pt")
        arguments = {**inputs, "max_new_tokens": 16, "mars_threshold": 0.0, "return_dict_in_generate": True}
        outputs = [model.generate(**arguments) for model in (trainer.model, loaded)]
        assert outputs[0].sequences.tolist() == outputs[1].sequences.tolist()
        assert all(output.num_forward_passes < 16 for output in outputs)

    def test_an_adapter_that_leaves_the_mask_row_alone_is_refused(self, tmp_path, tokenizer):
        from peft import get_peft_model

        adapted = get_peft_model(text_model(tokenizer), self.lora())
        with pytest.raises(ValueError, match="trainable_token_indices"):
            MARSTrainer(adapted, config(tmp_path), train_dataset=counting_examples(8), processing_class=tokenizer)

    def test_methods_that_learn_a_prompt_are_refused(self, tmp_path, tokenizer):
        from peft import PromptTuningConfig

        with pytest.raises(ValueError, match="PromptTuningConfig"):
            train(tmp_path, tokenizer, peft_config=PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))


class TestVariants:
    def test_without_the_autoregressive_loss(self, tmp_path, tokenizer):
        trainer = train(tmp_path, tokenizer, ar_weight=0.0, max_steps=1)
        batch = next(iter(trainer.get_train_dataloader()))
        num_masks = (batch["labels"] != IGNORED).sum().item()
        assert num_masks > 0
        assert logged(trainer)[0] < logged(trainer, "mask_loss")[0]

    @pytest.mark.parametrize("block_size", [4, 8, 16])
    def test_accuracy_is_logged_by_offset(self, tmp_path, tokenizer, block_size):
        trainer = train(tmp_path, tokenizer, block_size=block_size, max_steps=1)
        by_offset = [f"mask_accuracy/{offset}" for offset in range(1, min(block_size, 8) + 1)]
        names = set(trainer.state.log_history[0])
        assert set(by_offset) <= names
        assert f"mask_accuracy/{block_size + 1}" not in names


def test_a_checkpoint_cut_short_is_never_resumed_from(tmp_path):
    for step, state in ((5, '{"global_step": 5}'), (10, '{"global_step": 10}'), (15, '{"glob'), (20, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert get_last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    with pytest.raises(ValueError, match="resume_from_checkpoint"):
        get_last_complete_checkpoint(tmp_path / "elsewhere")
