import pytest
import torch

from hf_mars.decoding import MARSCache, MARSCacheLayer


def states(rows, width, value):
    return torch.full((rows, 2, width, 3), float(value))


def test_rows_write_at_their_own_slots():
    cache = MARSCache(num_layers=1, num_rows=2)
    cache.open_window(torch.tensor([[0, 1], [0, 1]]))
    cache.update(states(2, 2, 1), states(2, 2, 1), 0)
    cache.commit(torch.tensor([2, 1]), length=2)

    cache.open_window(torch.tensor([[2], [1]]))
    keys, values = cache.update(states(2, 1, 5), states(2, 1, 7), 0)
    assert keys[:, 0, :, 0].tolist() == [[1, 1, 5], [1, 5, 0]]
    assert values[:, 0, :, 0].tolist() == [[1, 1, 7], [1, 7, 0]]
    assert cache.cursors.tolist() == [2, 1]


def test_lengths_and_mask_sizes_follow_the_longest_row():
    cache = MARSCache(num_layers=2, num_rows=2)
    assert cache.get_seq_length() == 0
    cache.commit(torch.tensor([3, 5]), length=5)
    assert cache.get_seq_length() == 5
    assert cache.get_mask_sizes(4, 1) == (9, 0)


def test_storage_grows_by_blocks_and_keeps_what_it_holds():
    layer = MARSCacheLayer(block_length=4)
    layer.update(states(1, 3, 1), states(1, 3, 1), torch.tensor([[0, 1, 2]]), length=3)
    assert layer.keys.shape[2] == 4
    storage = layer.keys
    layer.length = 3
    layer.update(states(1, 1, 2), states(1, 1, 2), torch.tensor([[3]]), length=4)
    assert layer.keys is storage, "a step within the storage must not copy it"
    keys, _ = layer.update(states(1, 1, 3), states(1, 1, 3), torch.tensor([[4]]), length=5)
    assert layer.keys.shape[2] == 8
    assert keys[0, 0, :, 0].tolist() == [1, 1, 1, 2, 3]


def test_selecting_rows_keeps_their_cursors_and_states():
    cache = MARSCache(num_layers=1, num_rows=3)
    cache.open_window(torch.tensor([[0]] * 3))
    rows = torch.arange(3.0)[:, None, None, None].expand(3, 2, 1, 3)
    cache.update(rows, rows, 0)
    cache.commit(torch.tensor([1, 2, 3]), length=3)
    cache.batch_select_indices(torch.tensor([2, 0]))
    assert cache.cursors.tolist() == [3, 1]
    assert cache.layers[0].keys[:2, 0, 0, 0].tolist() == [2, 0]


def test_reordering_rows_repeats_them_as_for_beams():
    cache = MARSCache(num_layers=1, num_rows=2)
    cache.open_window(torch.tensor([[0]] * 2))
    rows = torch.arange(2.0)[:, None, None, None].expand(2, 2, 1, 3)
    cache.update(rows, rows, 0)
    cache.commit(torch.tensor([1, 1]), length=1)
    cache.reorder_cache(torch.tensor([1, 1]))
    assert cache.layers[0].values[:, 0, 0, 0].tolist() == [1, 1]
    assert cache.get_seq_length() == 1


def test_a_capacity_is_allocated_at_once_and_returned_whole():
    cache = MARSCache(num_layers=1, num_rows=1, capacity=8)
    assert cache.is_compileable and cache.get_max_length() == 8
    cache.open_window(torch.tensor([[0, 1]]))
    keys, _ = cache.update(states(1, 2, 1), states(1, 2, 1), 0)
    assert keys.shape[2] == 8 == cache.get_mask_sizes(2, 0)[0]
    assert keys[0, 0, :, 0].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_reset_starts_over():
    cache = MARSCache(num_layers=1, num_rows=1)
    cache.open_window(torch.tensor([[0]]))
    cache.update(states(1, 1, 1), states(1, 1, 1), 0)
    cache.commit(torch.tensor([1]), length=1)
    cache.reset()
    assert cache.get_seq_length() == 0
    assert cache.cursors.tolist() == [0]


def test_writing_without_a_window_says_what_to_call():
    with pytest.raises(RuntimeError, match="open_window"):
        MARSCache(num_layers=1, num_rows=1).update(states(1, 1, 1), states(1, 1, 1), 0)
