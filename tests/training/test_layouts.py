"""Ways to lay out the data: packed, padded, several turns, streamed."""

import math

import pytest
import torch
from datasets import Dataset

from hf_mars import MARSTrainer
from hf_mars.training.streams import IGNORED, build_streams
from tests.tiny import MASK
from tests.tiny_text import byte_level_tokenizer, counting_examples, several_turns, text_model
from tests.training.runs import small_config


@pytest.fixture
def tokenizer():
    return byte_level_tokenizer()


def config(tmp_path, **overrides):
    return small_config(tmp_path, **{"gradient_checkpointing": False, "max_length": 64, **overrides})


def loss_and_gradient(trainer, batches):
    """Loss and gradient of all tokens of the batches together."""
    num_items = sum((batch["labels"][:, 1:] != IGNORED).sum() for batch in batches)
    trainer.model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=num_items)
        loss.backward()
        total += loss.item()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])
    return total, gradient


@pytest.mark.parametrize("layout", [{"packing": True}, {"padding_free": True, "max_length": None}])
def test_packed_and_padded_give_the_same_loss_and_gradient(tmp_path, tokenizer, layout):
    results = []
    for overrides in ({}, layout):
        torch.manual_seed(0)
        model = text_model(tokenizer).double()
        trainer = MARSTrainer(
            model,
            config(tmp_path, block_phase="fixed", **overrides),
            train_dataset=counting_examples(12),
            processing_class=byte_level_tokenizer(),
        )
        batches = list(trainer.get_train_dataloader())
        if overrides:
            assert all(batch["input_ids"].shape[0] == 1 and "attention_mask" not in batch for batch in batches)
            assert max((batch["position_ids"] == 0).sum().item() for batch in batches) > 1
        results.append(loss_and_gradient(trainer, batches))
    (padded_loss, padded_gradient), (packed_loss, packed_gradient) = results
    assert packed_loss == pytest.approx(padded_loss, rel=1e-6)
    torch.testing.assert_close(packed_gradient, padded_gradient, rtol=1e-5, atol=1e-7)


def test_documents_of_a_packed_row_never_see_each_other():
    input_ids = torch.randint(2, MASK, (1, 14))
    position_ids = torch.cat([torch.arange(5), torch.arange(6), torch.arange(3)])[None]
    streams = build_streams(input_ids, input_ids.clone(), mask_token_id=MASK, block_size=4, position_ids=position_ids)
    width = streams.input_ids.shape[1]
    index = torch.arange(width)
    sees = streams.predicate(torch.tensor(0), torch.tensor(0), index[:, None], index[None, :])
    document = (position_ids[0] == 0).cumsum(0)[streams.sources[0]]
    assert not (sees & (document[:, None] != document[None, :])).any()
    assert sees.diagonal().all()


def test_a_mask_never_sees_its_own_or_a_later_turn():
    input_ids = torch.randint(2, MASK, (1, 20))
    labels = torch.full_like(input_ids, IGNORED)
    labels[0, 3:9] = input_ids[0, 3:9]
    labels[0, 12:18] = input_ids[0, 12:18]
    for phase in range(4):
        streams = build_streams(input_ids, labels, mask_token_id=MASK, block_size=4, phase=phase)
        index = torch.arange(streams.input_ids.shape[1])
        sees = streams.predicate(torch.tensor(0), torch.tensor(0), index[:, None], index[None, :])
        for column in range(20, len(index)):
            position = streams.sources[0, column].item()
            turn_start = 3 if position < 9 else 12
            seen = [key for key in range(20) if sees[column, key]]
            assert max(seen) == position - streams.offsets[0, column].item() - 1
            assert max(seen) < position and max(seen) >= turn_start - 1
            for key in range(20, len(index)):
                assert not sees[column, key] or streams.sources[0, key].item() >= turn_start


class TestDatasets:
    def train(self, tmp_path, tokenizer, dataset, **overrides):
        trainer = MARSTrainer(
            text_model(tokenizer), config(tmp_path, **overrides), train_dataset=dataset, processing_class=tokenizer
        )
        trainer.train()
        losses = [entry["mask_loss"] for entry in trainer.state.log_history if "mask_loss" in entry]
        assert len(losses) == 2 and all(math.isfinite(loss) and loss > 0 for loss in losses)
        return trainer

    def test_assistant_only_loss_with_several_turns(self, tmp_path, tokenizer):
        dataset = several_turns(tokenizer)
        trainer = self.train(tmp_path, tokenizer, dataset, assistant_only_loss=True)
        labels = trainer.train_dataset[0]["labels"]
        supervised = [label != IGNORED for label in labels]
        runs = sum(now and not before for before, now in zip([False, *supervised], supervised, strict=False))
        assert runs == 2

    def test_tool_calls(self, tmp_path, tokenizer):
        messages = [
            {"role": "user", "content": "What is the time?"},
            {"role": "assistant", "content": "It is noon."},
        ]
        tools = [
            {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
        ]
        self.train(tmp_path, tokenizer, Dataset.from_list([{"messages": messages, "tools": tools}] * 8))

    def test_pre_tokenised(self, tmp_path, tokenizer):
        rows = [{"input_ids": [5, 6, 7, 8, 9, 10], "labels": [-100, -100, 7, 8, 9, 10]}] * 8
        self.train(tmp_path, tokenizer, Dataset.from_list(rows))

    def test_streamed(self, tmp_path, tokenizer):
        self.train(tmp_path, tokenizer, counting_examples(32).to_iterable_dataset())

    def test_truncated(self, tmp_path, tokenizer):
        trainer = self.train(tmp_path, tokenizer, counting_examples(16), max_length=24)
        assert max(map(len, trainer.train_dataset["input_ids"])) == 24

    def test_wrapped_packing(self, tmp_path, tokenizer):
        self.train(
            tmp_path, tokenizer, Dataset.from_dict({"text": ["one two three four five six"] * 64}),
            packing=True, packing_strategy="wrapped", max_length=32,
        )  # fmt: skip

    def test_language_modelling_without_completion(self, tmp_path, tokenizer):
        self.train(tmp_path, tokenizer, Dataset.from_dict({"text": ["one two three four five six"] * 8}))
