"""Which of the tokens read off one forward are accepted: pure functions on tensors, without a loop over rows."""

import torch


__all__ = ["confidence", "accepts", "first_columns", "leading_run"]


def confidence(logits: torch.Tensor) -> torch.Tensor:
    """
    Probability of the most likely token.

    Args:
        logits (`torch.FloatTensor` of shape `(..., vocab_size)`): Scores, the mask token's at -inf.

    Returns:
        `torch.FloatTensor` of shape `(...)`.
    """
    return (logits.amax(-1) - logits.logsumexp(-1)).exp()


def accepts(confidences: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """
    Which predictions pass the threshold (section 3.4). A threshold of 1 accepts none, also where a probability rounds
    to 1: it means one token a step.

    Args:
        confidences (`torch.FloatTensor` of shape `(rows, columns)`): See [`confidence`].
        threshold (`torch.FloatTensor` of shape `(rows, 1)`): The threshold of each row.

    Returns:
        `torch.BoolTensor` of shape `(rows, columns)`.
    """
    return (confidences >= threshold) & (threshold < 1)


def leading_run(accepted: torch.Tensor) -> torch.Tensor:
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
    Columns `start .. start + width - 1` of each row. Columns past the end repeat the last one.

    Args:
        values (`torch.Tensor` of shape `(rows, columns)`): Ragged data, right-aligned.
        start (`torch.LongTensor` of shape `(rows,)`): First column of each row.
        width (`int`): Number of columns to return.

    Returns:
        `torch.Tensor` of shape `(rows, width)`.
    """
    columns = start[:, None] + torch.arange(width, device=values.device)
    return values.gather(1, columns.clamp(max=values.shape[1] - 1))
