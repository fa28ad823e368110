import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from hf_mars.training.streams import IGNORED, build_streams
from tests.tiny import MASK, PAD, tiny_model


@pytest.fixture
def batch():
    """Right-padded rows: a response in the middle, two responses, one supervised token only, nothing supervised."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(2, MASK, (4, 17), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    labels = torch.full_like(input_ids, IGNORED)
    labels[0, 4:17] = input_ids[0, 4:17]
    labels[1, 2:7] = input_ids[1, 2:7]
    labels[1, 9:13] = input_ids[1, 9:13]
    labels[2, 5] = input_ids[2, 5]
    for row, length in enumerate([17, 13, 9, 6]):
        input_ids[row, length:] = PAD
        attention_mask[row, length:] = 0
        labels[row, length:] = IGNORED
    return {"input_ids": input_ids, "labels": labels, "attention_mask": attention_mask}


def responses(labels):
    """(row, start, end) of every run of supervised tokens."""
    for row, values in enumerate(labels.tolist()):
        start = None
        for index, value in enumerate([*values, IGNORED]):
            if value != IGNORED and start is None:
                start = index
            elif value == IGNORED and start is not None:
                yield row, start, index
                start = None


@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("block_size", [2, 4, 8])
@pytest.mark.parametrize("phase", [0, 1, None])
def test_log_probabilities_equal_separate_forwards_of_prefix_and_masks(batch, phase, block_size, attn_implementation):
    model = tiny_model(attn_implementation=attn_implementation)
    add_fused_lm_head(model)
    torch.manual_seed(1)
    streams = build_streams(**batch, mask_token_id=MASK, block_size=block_size, phase=phase)
    with torch.no_grad():
        log_probs = model(
            input_ids=streams.input_ids,
            position_ids=streams.position_ids,
            attention_mask=streams.attention_mask(model.config, model.dtype),
            shift_labels=streams.shift_labels,
            fused_lm_head=True,
        ).log_probs
    length = batch["input_ids"].shape[1]

    compared = 0
    for row, start, end in responses(batch["labels"]):
        tokens = batch["input_ids"][row].tolist()
        # The clean stream: ordinary next-token log-probabilities
        with torch.no_grad():
            logits = model(torch.tensor([tokens[:end]])).logits[0].log_softmax(-1)
        for target in range(start, end):
            assert log_probs[row, target - 1].item() == pytest.approx(
                logits[target - 1, tokens[target]].item(), abs=1e-5
            )

        # The noisy stream: each mask after the clean prefix of its block
        columns = [
            column
            for column in range(length, streams.input_ids.shape[1])
            if streams.offsets[row, column] >= 0 and start <= streams.position_ids[row, column] < end
        ]
        assert [streams.position_ids[row, column].item() for column in columns] == list(range(start, end - 1))
        for column in columns:
            position, offset = streams.position_ids[row, column].item(), streams.offsets[row, column].item()
            prefix = tokens[: position - offset]
            assert len(prefix) >= start, "a block reaches back over its response"
            with torch.no_grad():
                logits = model(torch.tensor([prefix + [MASK] * (offset + 1)])).logits[0, -1].log_softmax(-1)
            assert log_probs[row, column].item() == pytest.approx(logits[tokens[position + 1]].item(), abs=1e-5)
            compared += 1
    assert compared == (streams.offsets >= 0).sum() == 12 + 4 + 3


@pytest.mark.parametrize("block_size", [2, 4, 8])
def test_fixed_blocks_begin_at_multiples_of_the_block_size(batch, block_size):
    streams = build_streams(**batch, mask_token_id=MASK, block_size=block_size, phase=0)
    is_mask = streams.offsets >= 0
    block_starts = (streams.position_ids - streams.offsets)[is_mask]
    first_of_response = {start for _, start, _ in responses(batch["labels"])}
    assert all(start % block_size == 0 or start in first_of_response for start in block_starts.tolist())
    assert streams.offsets.max() == block_size - 1 or block_size == 8


def test_random_phases_show_every_offset_everywhere(batch):
    offsets = {index: set() for index in range(6, 15)}
    for seed in range(60):
        torch.manual_seed(seed)
        streams = build_streams(**batch, mask_token_id=MASK, block_size=4)
        row = streams.offsets[0] >= 0
        for position, offset in zip(
            streams.position_ids[0, row].tolist(), streams.offsets[0, row].tolist(), strict=True
        ):
            if position in offsets:
                offsets[position].add(offset)
    assert all({0, 1, 2} <= seen for seen in offsets.values())


def test_masks_have_the_mask_token_and_targets_are_the_next_tokens(batch):
    streams = build_streams(**batch, mask_token_id=MASK, block_size=4)
    is_mask = streams.offsets >= 0
    assert (streams.input_ids[is_mask] == MASK).all()
    rows = is_mask.nonzero()[:, 0]
    assert (
        streams.shift_labels[is_mask].tolist() == batch["input_ids"][rows, streams.position_ids[is_mask] + 1].tolist()
    )


def test_a_batch_without_supervised_tokens_has_no_masks(batch):
    batch["labels"].fill_(IGNORED)
    streams = build_streams(**batch, mask_token_id=MASK, block_size=4)
    assert streams.input_ids.shape == batch["input_ids"].shape
    assert (streams.shift_labels == IGNORED).all()
