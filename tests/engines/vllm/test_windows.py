from hf_mars_vllm.windows import Window, next_window, read_windows


MASK = 11


def test_drafts_and_masks_are_told_apart_and_their_logits_found():
    # Logits:        0  1 2  3    4  5  6     7  8 9
    drafted = [5, MASK, MASK] + [] + [MASK] + [7, 8]
    windows = read_windows([3, 0, 1, 2], drafted, MASK)
    assert windows == [Window(1, 2, 2), Window(0, 0, 5), Window(0, 1, 6), Window(2, 0, 10)]
    assert [list(window.mask_rows) for window in windows] == [[2, 3], [], [6], []]
    assert [window.num_columns for window in windows] == [4, 1, 2, 3]


def test_masks_become_drafts_only_if_all_drafts_before_them_held():
    arguments = {"probabilities": None, "threshold": 0.0, "num_masks": 3, "max_length": 6, "mask_token_id": MASK}
    window = Window(num_drafts=2, num_masks=3, first_mask=3)
    assert next_window(window, 3, [1, 2, 3], **arguments) == [1, 2, 3, MASK, MASK, MASK]
    assert next_window(window, 2, [1, 2, 3], **arguments) == [MASK, MASK, MASK]
    assert next_window(window, 0, [1, 2, 3], **arguments) == [MASK, MASK, MASK]


def test_a_threshold_cuts_at_the_first_doubt_and_a_limit_cuts_masks_first():
    arguments = {"choices": [1, 2, 3], "probabilities": [0.9, 0.4, 0.8], "num_masks": 3, "mask_token_id": MASK}
    window = Window(num_drafts=0, num_masks=3, first_mask=1)
    for threshold, drafts in ((0.0, [1, 2, 3]), (0.4, [1, 2, 3]), (0.5, [1]), (1.0, [])):
        expected = drafts + [MASK] * 3
        assert next_window(window, 1, threshold=threshold, max_length=6, **arguments) == expected
        assert next_window(window, 1, threshold=threshold, max_length=2, **arguments) == expected[:2]
        assert next_window(window, 1, threshold=threshold, max_length=0, **arguments) == []
