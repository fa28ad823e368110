"""Which of the tokens read off one forward are accepted: pure functions on tensors, without a loop over rows."""

import torch


__all__ = [
    "METRICS",
    "accepts",
    "confidence",
    "first_columns",
    "count_leading",
    "sample",
    "verify",
]

METRICS = ("probability", "entropy", "margin")


def confidence(scores: torch.Tensor, metric: str = "probability") -> torch.Tensor:
    """
    How sure the model is at each position (section 3.4 and appendix D).

    Args:
        scores (`torch.FloatTensor` of shape `(..., vocab_size)`): Scores, the mask token's at -inf.
        metric (`str`, *optional*, defaults to `"probability"`):
            `"probability"` of the most likely token; `"entropy"` of the distribution, in nats; `"margin"` between the
            probabilities of the two most likely tokens.

    Returns:
        `torch.FloatTensor` of shape `(...)`.
    """
    if metric == "probability":
        return (scores.amax(-1) - scores.logsumexp(-1)).exp()
    probabilities = scores.softmax(-1)
    if metric == "entropy":
        return torch.special.entr(probabilities).sum(-1)
    first, second = probabilities.topk(2, dim=-1).values.unbind(-1)
    return first - second


def accepts(confidences: torch.Tensor, threshold: torch.Tensor, metric: str = "probability") -> torch.Tensor:
    """
    Which predictions pass the threshold: those at or above it, for the entropy those at or below it. A probability or
    margin of 1 as threshold accepts none, also where a confidence rounds to 1: it means one token a step.

    Args:
        confidences (`torch.FloatTensor` of shape `(rows, columns)`): See [`confidence`].
        threshold (`torch.FloatTensor` of shape `(rows, 1)`): The threshold of each row.
        metric (`str`, *optional*, defaults to `"probability"`): What the confidences are.

    Returns:
        `torch.BoolTensor` of shape `(rows, columns)`.
    """
    if metric == "entropy":
        return confidences <= threshold
    return (confidences >= threshold) & (threshold < 1)


def count_leading(accepted: torch.Tensor) -> torch.Tensor:
    """
    Number of leading `True` values in each row: a position counts only if all before it do.

    Args:
        accepted (`torch.BoolTensor` of shape `(rows, columns)`): One decision a position.

    Returns:
        `torch.LongTensor` of shape `(rows,)`.
    """
    return accepted.long().cumprod(-1).sum(-1)


def first_columns(values: torch.Tensor, start: torch.Tensor, width: int) -> torch.Tensor:
    """
    Columns `start .. start + width - 1` of each row. Columns past an end repeat the one there.

    Args:
        values (`torch.Tensor` of shape `(rows, columns, ...)`): Ragged data, right-aligned.
        start (`torch.LongTensor` of shape `(rows,)`): First column of each row.
        width (`int`): Number of columns to return.

    Returns:
        `torch.Tensor` of shape `(rows, width, ...)`.
    """
    columns = start[:, None] + torch.arange(width, device=values.device)
    columns = columns.clamp(min=0, max=values.shape[1] - 1)
    return values.take_along_dim(columns.view(*columns.shape, *[1] * (values.ndim - 2)), dim=1)


def verify(
    candidates: torch.Tensor, drafts: torch.Tensor, num_drafts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Accept the drafts that are the autoregressive choice; that choice's next token is the bonus token. Where tokens are
    sampled, that choice is the sample of its position, see [`draw_uniforms`].

    Args:
        candidates (`torch.LongTensor` of shape `(rows, max_drafts + 1)`):
            The autoregressive choice at the place of each draft and after the last one, left-aligned.
        drafts (`torch.LongTensor` of shape `(rows, max_drafts)`): The drafts, left-aligned.
        num_drafts (`torch.LongTensor` of shape `(rows,)`): How many of them are real.

    Returns:
        `tuple(torch.LongTensor, torch.LongTensor)`: number of drafts accepted, of shape `(rows,)`, and the bonus token
        after them, of shape `(rows, 1)`.
    """
    is_draft = torch.arange(drafts.shape[1], device=drafts.device) < num_drafts[:, None]
    num_accepted = count_leading((candidates[:, :-1] == drafts) & is_draft)
    return num_accepted, candidates.gather(1, num_accepted[:, None])


def sample(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """
    One token from each distribution, by inversion of its cumulative sum.

    Args:
        probabilities (`torch.FloatTensor` of shape `(..., vocab_size)`): Distributions, up to a factor.
        uniforms (`torch.FloatTensor` of shape `(...)`): Random numbers in [0, 1).

    Returns:
        `torch.LongTensor` of shape `(...)`.
    """
    # In float64, so that the sum over a large vocabulary leaves no token out; some devices have none.
    dtype = torch.float32 if probabilities.device.type == "mps" else torch.float64
    cumulative = probabilities.to(dtype).cumsum(-1)
    drawn = uniforms.to(dtype)[..., None] * cumulative[..., -1:]
    # Scores that overflow, of a temperature near 0, leave no distribution: even then it is a token.
    return torch.searchsorted(cumulative, drawn, right=True).squeeze(-1).clamp(max=probabilities.shape[-1] - 1)
