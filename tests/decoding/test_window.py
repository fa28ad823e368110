import torch

from hf_mars.decoding.window import build_window


MASK = 99


def window(tokens, counts, cursors, num_masks, offset=0, last_position=1000, groups=None):
    counts = torch.tensor(counts)
    return build_window(
        torch.tensor(tokens),
        counts,
        torch.tensor(cursors),
        counts[:, None] if groups is None else torch.tensor(groups),
        num_masks,
        MASK,
        torch.full((len(counts),), offset),
        torch.full((len(counts),), last_position),
    )


def test_known_tokens_are_right_aligned_and_followed_by_masks():
    result = window([[5, 6, 7], [8, 0, 0]], [3, 1], [10, 20], num_masks=2)
    assert result.input_ids[0].tolist() == [5, 6, 7, MASK, MASK]
    assert result.input_ids[1, 2:].tolist() == [8, MASK, MASK]


def test_slots_begin_at_the_cursor_and_trash_goes_past_the_masks():
    result = window([[5, 6, 7], [8, 0, 0]], [3, 1], [10, 20], num_masks=2)
    assert result.slots[0].tolist() == [10, 11, 12, 13, 14]
    assert result.slots[1, 2:].tolist() == [20, 21, 22]
    assert sorted(result.slots[1, :2].tolist()) == [23, 24]


def test_slots_of_a_row_are_distinct():
    result = window([[1] * 8] * 8, list(range(1, 9)), [0] * 8, num_masks=3)
    assert all(len(set(slots)) == len(slots) for slots in result.slots.tolist())


def test_positions_leave_out_the_left_padding():
    assert window([[5, 6]], [2], [10], num_masks=1, offset=-4).position_ids.tolist() == [[6, 7, 8]]


def test_positions_stop_at_the_last_one_of_the_sequence():
    assert window([[5]], [1], [9], num_masks=3, last_position=10).position_ids.tolist() == [[9, 10, 10, 10]]


def test_without_masks_it_is_an_autoregressive_step():
    result = window([[5], [6]], [1, 1], [3, 4], num_masks=0)
    assert result.input_ids.tolist() == [[5], [6]]
    assert result.slots.tolist() == [[3], [4]]
