import torch

from hf_mars.decoding.acceptance import accepts, confidence, count_leading, first_columns


def test_confidence_is_the_probability_of_the_top_token():
    logits = torch.randn(2, 3, 50)
    torch.testing.assert_close(confidence(logits), logits.softmax(-1).amax(-1))


def test_confidence_of_an_excluded_token_does_not_count():
    logits = torch.tensor([[0.0, 5.0, -torch.inf]])
    torch.testing.assert_close(confidence(logits), logits[:, :2].softmax(-1).amax(-1))


def test_accepts_at_the_threshold_and_above():
    confidences = torch.tensor([[0.5, 0.4, 0.6]])
    assert accepts(confidences, torch.tensor([[0.5]])).tolist() == [[True, False, True]]


def test_threshold_of_one_accepts_nothing_even_if_certain():
    assert not accepts(torch.ones(1, 3), torch.tensor([[1.0]])).any()


def test_thresholds_differ_by_row():
    accepted = accepts(torch.full((3, 2), 0.7), torch.tensor([[0.0], [0.8], [1.0]]))
    assert accepted.tolist() == [[True, True], [False, False], [False, False]]


def test_count_leading_stops_at_the_first_refusal():
    accepted = torch.tensor([[True, True, False, True], [False, True, True, True], [True] * 4])
    assert count_leading(accepted).tolist() == [2, 0, 4]


def test_count_leading_of_no_columns_is_zero():
    assert count_leading(torch.ones(3, 0, dtype=torch.bool)).tolist() == [0, 0, 0]


def test_first_columns_starts_where_each_row_does():
    values = torch.arange(10).view(2, 5)
    assert first_columns(values, torch.tensor([0, 3]), 3).tolist() == [[0, 1, 2], [8, 9, 9]]
