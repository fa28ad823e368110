"""What a step logs of its streams, from sums that processes can add up."""

import torch


__all__ = ["gated_metrics", "stream_metrics", "sum_losses"]


def sum_losses(outputs, offsets: torch.Tensor, block_size: int) -> torch.Tensor:
    """
    Sum up a step's columns.

    Args:
        outputs (`FusedCausalLMOutput`): Of the scored columns of both streams.
        offsets (`torch.LongTensor` of shape `(1, columns)`):
            -1 in the clean stream, else the offset of the mask in its block.
        block_size (`int`): Of the masks.

    Returns:
        `torch.FloatTensor` of shape `(1 + block_size, 3)`: the loss in nats, how many columns are right, and how many
        there are, for the clean stream and then for the masks by offset.
    """
    losses, is_top1, is_labelled = -outputs.log_probs.detach(), outputs.is_top1, outputs.label_mask
    groups = torch.nn.functional.one_hot(offsets[0] + 1, block_size + 1).to(losses)
    values = torch.stack([losses[0], is_top1[0].to(losses), is_labelled[0].to(losses)], dim=1)
    return groups.T @ values


def stream_metrics(sums: list[list[float]]) -> dict[str, float]:
    """The loss of each stream and the accuracy of the masks, from [`sum_losses`]."""
    clean, *masks = sums
    mask_loss, num_right, num_masks = (sum(column) for column in zip(*masks, strict=True))
    metrics = {
        "ar_loss": clean[0] / max(clean[2], 1),
        "mask_loss": mask_loss / max(num_masks, 1),
        "mask_accuracy": num_right / max(num_masks, 1),
    }
    for offset, (_, right, count) in enumerate(masks, 1):
        if count > 0:
            metrics[f"mask_accuracy/{offset}"] = right / count
    return metrics


def gated_metrics(sums: list[list[float]]) -> dict[str, float]:
    """How far the masks are from the model itself, from [`GatedMasks.sums`]."""
    *offsets, blocks = sums
    num_masks = max(sum(count for *_, count in offsets), 1)
    names = ("mask_loss", "mask_accuracy", "mask_overlap")
    metrics = {name: sum(row[column] for row in offsets) / num_masks for column, name in enumerate(names)}
    for offset, (_, agreeing, overlap, count) in enumerate(offsets, 1):
        if count > 0:
            metrics[f"mask_accuracy/{offset}"] = agreeing / count
            metrics[f"mask_overlap/{offset}"] = overlap / count
    verified, sampled, _, count = blocks
    if count > 0:
        metrics["expected_tokens_per_forward/verified"] = verified / count
        metrics["expected_tokens_per_forward/sampled"] = sampled / count
    return metrics
