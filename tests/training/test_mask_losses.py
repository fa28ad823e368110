"""The distances between a mask's distribution and the model's own."""

import pytest
import torch

from hf_mars.training.mask_losses import CHUNK_SIZE, MASK_LOSSES, score_masks


VOCAB_SIZE, HIDDEN_SIZE = 11, 5
NUM_COLUMNS = CHUNK_SIZE + 7


@pytest.fixture
def columns():
    torch.manual_seed(0)
    weight = torch.randn(VOCAB_SIZE, HIDDEN_SIZE, dtype=torch.float64)
    hidden, teacher = torch.randn(2, NUM_COLUMNS, HIDDEN_SIZE, dtype=torch.float64)
    labels = torch.randint(VOCAB_SIZE, (NUM_COLUMNS,))
    return hidden.requires_grad_(), teacher, labels, lambda states: (states @ weight.T).log_softmax(-1)


def expected_losses(name, log_q, log_p, labels):
    p, q = log_p.exp(), log_q.exp()
    cross_entropy = -log_q[torch.arange(NUM_COLUMNS), labels]
    kl = (p * (log_p - log_q)).sum(-1)
    distance = (p - q).abs().sum(-1) / 2
    return {
        "ce": cross_entropy,
        "kl": kl,
        "tv": distance,
        "lk": -(1 - distance).log(),
        "reach": 0.1 * cross_entropy + kl,
    }[name]


@pytest.mark.parametrize("name", MASK_LOSSES)
def test_losses_and_gradients_are_those_of_the_whole(columns, name):
    hidden, teacher, labels, log_probabilities = columns
    weights = torch.rand(NUM_COLUMNS, dtype=torch.float64)
    scores = score_masks(hidden, teacher, labels, log_probabilities, name)
    expected = expected_losses(name, log_probabilities(hidden), log_probabilities(teacher), labels)
    torch.testing.assert_close(scores.losses, expected)
    (gradient,) = torch.autograd.grad((weights * scores.losses).sum(), hidden)
    (expected_gradient,) = torch.autograd.grad((weights * expected).sum(), hidden)
    torch.testing.assert_close(gradient, expected_gradient)


def test_what_is_told_beside_the_loss(columns):
    hidden, teacher, labels, log_probabilities = columns
    scores = score_masks(hidden, teacher, labels, log_probabilities, "kl")
    log_q, log_p = log_probabilities(hidden), log_probabilities(teacher)
    torch.testing.assert_close(scores.overlaps, torch.minimum(log_q, log_p).exp().sum(-1))
    assert torch.equal(scores.agrees, log_q.argmax(-1) == log_p.argmax(-1))
    assert torch.equal(scores.is_label, log_p.argmax(-1) == labels)
    torch.testing.assert_close(scores.entropies, torch.special.entr(log_p.exp()).sum(-1))
    assert not any(field.requires_grad for field in (scores.overlaps, scores.entropies))


@pytest.mark.parametrize("name", ["kl", "tv", "lk"])
def test_distances_vanish_where_the_mask_says_the_same(columns, name):
    hidden, _, labels, log_probabilities = columns
    scores = score_masks(hidden, hidden.detach(), labels, log_probabilities, name)
    assert scores.losses.abs().max() < 1e-9 and scores.agrees.all()
