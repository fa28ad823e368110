"""How fast a model will decode, estimated from what its masks say on given responses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel, TrainerCallback

from ..decoding.acceptance import confidence, count_leading
from ..modeling import get_base_model
from .backbone import forward_streams
from .streams import Streams, build_streams, select_stream_inputs


if TYPE_CHECKING:
    from .mars_trainer import MARSTrainer


__all__ = ["ExpectedSpeedCallback", "count_expected_forwards"]

MaskLogits = Callable[[Streams], tuple[Any, torch.Tensor]]


class ExpectedSpeedCallback(TrainerCallback):
    """
    Estimates over an evaluation how many tokens a forward pass of lossy decoding will add, for each threshold.

    The trainer hands it the batches, which the events of a callback do not carry; the end of an evaluation, or of a
    prediction, is the event after which it counts anew.

    Args:
        trainer ([`MARSTrainer`]):
            Trainer to which the callback will be attached. Its `eval_thresholds` are estimated; without any, no batch
            is looked at.
        mask_logits (`Callable`, *optional*, defaults to [`two_stream_logits`]):
            From the model as the trainer wraps it, the language model inside and a batch to the first argument of
            [`count_expected_forwards`].
    """

    def __init__(self, trainer: "MARSTrainer", mask_logits: Callable[..., MaskLogits] | None = None):
        self.trainer = trainer
        self._mask_logits = mask_logits or two_stream_logits
        self._restart()

    def update(self, model: nn.Module, inputs: dict[str, Any]) -> dict[str, float]:
        """
        Count what decoding the responses of a batch would take.

        Args:
            model (`nn.Module`): The model as the trainer wraps it.
            inputs (`dict[str, Any]`): A collated batch on the model's device.

        Returns:
            `dict[str, float]`: `expected_tokens_per_forward/<threshold>` over all batches of this evaluation so far;
            empty until there is a response token.
        """
        args, accelerator = self.trainer.args, self.trainer.accelerator
        if not args.eval_thresholds:
            return {}
        base_model = get_base_model(accelerator.unwrap_model(model))
        inputs = select_stream_inputs(inputs)
        tokens, forwards = count_expected_forwards(
            self._mask_logits(model, base_model, inputs),
            inputs,
            base_model.config.mars["mask_token_id"],
            args.block_size,
            args.eval_thresholds,
        )
        counts = torch.tensor([[tokens, *forwards]], device=accelerator.device)
        self._counts += accelerator.gather_for_metrics(counts).sum(0).cpu()
        tokens, *forwards = self._counts.tolist()
        if tokens == 0:
            return {}
        return {
            f"expected_tokens_per_forward/{threshold:g}": tokens / count
            for threshold, count in zip(args.eval_thresholds, forwards, strict=True)
        }

    def on_evaluate(self, args, state, control, **kwargs):
        self._restart()

    def on_predict(self, args, state, control, metrics=None, **kwargs):
        self._restart()

    def _restart(self) -> None:
        # Tokens, then forwards by threshold.
        self._counts = torch.zeros(1 + len(self.trainer.args.eval_thresholds), dtype=torch.long)


def two_stream_logits(model: nn.Module, base_model: PreTrainedModel, inputs: dict[str, Any]) -> MaskLogits:
    """What the masks say of a tiling, from a forward over both streams."""

    def of_tiling(streams: Streams) -> tuple[Streams, torch.Tensor]:
        logits = forward_streams(model, base_model, streams, streams.offsets >= 0).logits[0].float()
        logits[:, base_model.config.mars["mask_token_id"]] = -torch.inf
        return streams, logits

    return of_tiling


@torch.no_grad()
def count_expected_forwards(
    mask_logits: MaskLogits,
    inputs: dict[str, Any],
    mask_token_id: int,
    block_size: int,
    thresholds: list[float],
) -> tuple[int, list[int]]:
    """
    Walk over the responses of a batch as lossy decoding would, if it produced them: from each position, the next token
    and the leading masks whose confidence passes the threshold are one forward.

    A walk may stand at any position, so each must have been the start of a block once: that takes `block_size`
    forwards, one for each phase of the tiling.

    Args:
        mask_logits (`Callable`):
            From a tiling of the batch that has masks to the layout that was forwarded, which has `offsets`, `sources`
            and `position_ids`, and the logits of those of its columns whose offset is not negative, row by row.
        inputs (`dict[str, torch.Tensor]`): A collated batch, see [`build_streams`].
        mask_token_id (`int`): Id of the mask token.
        block_size (`int`): Number of tokens in a block (B).
        thresholds (`list[float]`): Thresholds on the probability.

    Returns:
        `tuple(int, list[int])`: number of response tokens, and number of forwards for each threshold.
    """
    batch_size, length = inputs["input_ids"].shape
    device = inputs["input_ids"].device
    # Confidence of the mask `offset` places after a position that starts a block; none passes where there is no mask.
    confidences = torch.full((batch_size, length, block_size - 1), -1.0, device=device)
    is_response = torch.zeros(batch_size, length, dtype=torch.bool, device=device)
    for phase in range(block_size):
        streams = build_streams(**inputs, mask_token_id=mask_token_id, block_size=block_size, phase=phase)
        if not (streams.offsets >= 0).any():
            return 0, [0] * len(thresholds)
        layout, logits = mask_logits(streams)
        row, column = (layout.offsets >= 0).nonzero(as_tuple=True)
        offset, index = layout.offsets[row, column], layout.sources[row, column]
        is_response[row, index] = True
        # Whole blocks alone: the first one of a response may begin inside a tile.
        is_whole = (layout.position_ids[row, column] - offset + phase) % block_size == 0
        is_used = is_whole & (offset < block_size - 1)
        row, start, offset = row[is_used], (index - offset)[is_used], offset[is_used]
        confidences[row, start, offset] = confidence(logits[is_used])

    is_response = is_response.cpu()
    starts = is_response & ~torch.nn.functional.pad(is_response[:, :-1], (1, 0))
    num_tokens, num_forwards = 0, [0] * len(thresholds)
    for which, threshold in enumerate(thresholds):
        runs = 1 + count_leading((confidences >= threshold).view(-1, block_size - 1)).view(batch_size, length).cpu()
        num_tokens = 0
        for row, start in starts.nonzero().tolist():
            # The last token of a response has no mask, but is a response token all the same.
            end = start
            while end < length and is_response[row, end]:
                end += 1
            num_tokens += end + 1 - start
            position = start
            while position <= end:
                position += int(runs[row, position])
                num_forwards[which] += 1
    return num_tokens, num_forwards
