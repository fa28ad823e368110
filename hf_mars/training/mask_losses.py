"""What a mask is to learn from the distribution that the model itself has at its place, and how well it does."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


__all__ = ["MASK_LOSSES", "WEIGHTED_BY_REACH", "MaskScores", "score_masks"]

LABEL_SHARE = 0.1  # of the tokens of the data in the loss "reach"
CHUNK_SIZE = 64  # columns; what is computed of them over a vocabulary stays in the caches of a CPU


@dataclass
class Distributions:
    """
    What masks and the model itself say of the same tokens.

    Args:
        log_q (`torch.FloatTensor` of shape `(num_columns, vocab_size)`): Log-probabilities of the masks.
        p (`torch.FloatTensor`, same shape): Probabilities of the model itself, without a gradient.
        entropy (`torch.FloatTensor` of shape `(num_columns,)`): Of `p`, in nats.
        labels (`torch.LongTensor` of shape `(num_columns,)`): The tokens of the data.
    """

    log_q: torch.Tensor
    p: torch.Tensor
    entropy: torch.Tensor
    labels: torch.Tensor

    def overlap(self) -> torch.Tensor:
        """The probability that rejection sampling accepts a token drafted from q: the mass that p and q share."""
        return torch.minimum(self.log_q.exp(), self.p).sum(-1)

    def cross_entropy(self) -> torch.Tensor:
        """How unlikely the masks find the tokens of the data."""
        return -self.log_q.gather(1, self.labels[:, None]).squeeze(1)

    def kl_divergence(self) -> torch.Tensor:
        """From p to q."""
        return -(self.p * self.log_q).sum(-1) - self.entropy

    def total_variation(self) -> torch.Tensor:
        """The probability that a token drafted from q is rejected."""
        return 1 - self.overlap()

    def negative_log_acceptance(self) -> torch.Tensor:
        """Like the total variation, but with a gradient that does not vanish where nearly everything is rejected."""
        return -self.overlap().clamp(min=1e-6).log()

    def labels_and_kl(self) -> torch.Tensor:
        """A little of the tokens of the data beside the distributions."""
        return LABEL_SHARE * self.cross_entropy() + self.kl_divergence()


# Sources are named in the docstring of `MARSConfig`.
MASK_LOSSES: dict[str, Callable[[Distributions], torch.Tensor]] = {
    "ce": Distributions.cross_entropy,
    "kl": Distributions.kl_divergence,
    "tv": Distributions.total_variation,
    "lk": Distributions.negative_log_acceptance,
    "reach": Distributions.labels_and_kl,
}
# Which of them count a mask as far as the masks before it are accepted.
WEIGHTED_BY_REACH = ("reach",)


@dataclass
class MaskScores:
    """
    What masks say, column by column; every field has the shape `(num_columns,)`.

    Args:
        losses (`torch.FloatTensor`): The loss, with a gradient to the hidden states.
        overlaps (`torch.FloatTensor`): Probability that a drafted token is accepted when sampling.
        agrees (`torch.BoolTensor`): Whether the likeliest token is the model's own.
        is_label (`torch.BoolTensor`): Whether the model's own likeliest token is that of the data.
        entropies (`torch.FloatTensor`): Of the model's own distribution, in nats.
    """

    losses: torch.Tensor
    overlaps: torch.Tensor
    agrees: torch.Tensor
    is_label: torch.Tensor
    entropies: torch.Tensor


def score_masks(
    hidden_states: torch.Tensor,
    teacher_states: torch.Tensor,
    labels: torch.Tensor,
    log_probabilities: Callable[[torch.Tensor], torch.Tensor],
    mask_loss: str,
) -> MaskScores:
    """
    Compare masks with the model itself, a few columns at a time, so that no distribution over the vocabulary is kept:
    the head does not learn, and the gradient of the hidden states is computed together with the loss.

    Args:
        hidden_states (`torch.Tensor` of shape `(num_columns, hidden_size)`): Last hidden states of the masks.
        teacher_states (`torch.Tensor`, same shape):
            Last hidden states of the clean columns that predict the same tokens.
        labels (`torch.LongTensor` of shape `(num_columns,)`): The tokens of the data.
        log_probabilities (`Callable`): From hidden states to finite log-probabilities in float32.
        mask_loss (`str`): One of [`MASK_LOSSES`].
    """
    return MaskScores(*ScoreMasks.apply(hidden_states, teacher_states, labels, log_probabilities, mask_loss))


class ScoreMasks(torch.autograd.Function):
    """[`score_masks`], whose backward pass only weighs the gradients of the forward pass."""

    @staticmethod
    def forward(ctx, hidden_states, teacher_states, labels, log_probabilities, mask_loss):
        needs_gradient = ctx.needs_input_grad[0]
        gradients, scores = [], []
        chunks = (tensor.split(CHUNK_SIZE) for tensor in (hidden_states, teacher_states, labels))
        for hidden, teacher, label in zip(*chunks, strict=True):
            log_p = log_probabilities(teacher)
            p = log_p.exp()
            entropy = -(p * log_p).sum(-1)
            with torch.set_grad_enabled(needs_gradient):
                hidden = hidden.detach().requires_grad_(needs_gradient)
                log_q = log_probabilities(hidden)
                losses = MASK_LOSSES[mask_loss](Distributions(log_q, p, entropy, label))
                if needs_gradient:
                    gradients += torch.autograd.grad(losses.sum(), hidden)
            overlap = Distributions(log_q.detach(), p, entropy, label).overlap()
            own = p.argmax(-1)
            scores.append((losses.detach(), overlap, log_q.argmax(-1) == own, own == label, entropy))
        if needs_gradient:
            ctx.save_for_backward(torch.cat(gradients))
        losses, *others = map(torch.cat, zip(*scores, strict=True))
        ctx.mark_non_differentiable(*others)
        return losses, *others

    @staticmethod
    def backward(ctx, gradient, *others):  # pyrefly: ignore[bad-override]  # autograd passes them one by one
        (gradients,) = ctx.saved_tensors
        return gradients * gradient[:, None].to(gradients.dtype), None, None, None, None
