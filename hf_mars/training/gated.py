"""One step of training an adapter that acts on the masks alone, against the model as it is."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ..compat import keeping_the_cache
from ..decoding.masks import create_attention_mask
from ..modeling import get_base_model
from .backbone import forward_backbone
from .clean_states import CleanStates
from .gated_adapters import AdapterGate
from .head import Head
from .mars_config import DEFAULT_GATED_LOSS, MARSConfig
from .mask_columns import MaskColumns, build_mask_columns, draw_tilings
from .mask_losses import WEIGHTED_BY_REACH, MaskScores, score_masks
from .streams import Streams, build_streams


__all__ = ["GatedMasks", "GatedStep"]


@dataclass
class GatedMasks:
    """
    What the masks of a batch say. Every tensor but those of `by_block` has the shape `(num_masks,)`.

    Args:
        scores ([`MaskScores`]): Mask by mask.
        offsets (`torch.LongTensor`): Place of each mask in its block, from 0.
        blocks (`torch.LongTensor`): Index of its block.
        is_counted (`torch.BoolTensor`): `False` for one that only keeps the graph, or that stands for the mask token.
        block_size (`int`): Number of tokens in a block (B).
    """

    scores: MaskScores
    offsets: torch.Tensor
    blocks: torch.Tensor
    is_counted: torch.Tensor
    block_size: int

    def by_block(self, values: torch.Tensor) -> torch.Tensor:
        """Values of the masks in the order of their blocks, of shape `(num_blocks, B - 1)`; 0 where one is missing."""
        table = torch.zeros(int(self.blocks[-1]) + 1, self.block_size - 1, device=values.device)
        table[self.blocks, self.offsets] = values.float()
        return table

    def reached(self) -> torch.Tensor:
        """For each mask the probability that all masks before it in its block are accepted, when sampling."""
        before = torch.nn.functional.pad(self.by_block(self.scores.overlaps)[:, :-1], (1, 0), value=1.0)
        return before.cumprod(-1)[self.blocks, self.offsets]

    def weighted_losses(self, mask_loss: str) -> torch.Tensor:
        """The loss of each mask, as it counts for the batch."""
        weights = self.is_counted.float()
        if mask_loss in WEIGHTED_BY_REACH:
            weights = weights * self.reached()
        return self.scores.losses * weights

    def sums(self) -> torch.Tensor:
        """
        For the logs, of shape `(B, 4)`. Row j below B - 1 sums over the masks at offset j: loss, agreement, overlap,
        and their number. The last row sums over whole blocks: the tokens that a forward adds where drafts are
        verified greedily, and when sampling, 0, and the number of blocks.
        """
        scores, counted = self.scores, self.is_counted.float()
        values = torch.stack([scores.losses.detach(), scores.agrees, scores.overlaps, torch.ones_like(counted)], dim=1)
        of_offset = torch.nn.functional.one_hot(self.offsets, self.block_size - 1).float().T
        of_masks = of_offset @ (values.float() * counted[:, None])
        is_whole = self.by_block(counted).all(-1)
        verified, sampled = (
            (1 + self.by_block(accepted).cumprod(-1).sum(-1))[is_whole].sum()
            for accepted in (scores.agrees, scores.overlaps)
        )
        of_blocks = torch.stack([verified, sampled, counted.new_zeros(()), is_whole.sum().float()])
        return torch.cat([of_masks, of_blocks[None]])


class GatedStep:
    """
    Forwards and scores one batch:

    1. The clean stream, once, without gradients and without the adapter: keys, values and last hidden states.
    2. The masks of several tilings of the responses, with the adapter, over those keys and values.
    3. Each mask against what the clean stream itself predicts at its place.

    Args:
        model ([`~peft.PeftModel`]): The model with the adapter.
        args ([`MARSConfig`]): The run.
    """

    def __init__(self, model: PeftModel, args: MARSConfig):
        self.args = args
        self.mask_token_id = get_base_model(model).config.mars["mask_token_id"]
        self._gate = AdapterGate(model)

    def __call__(self, model: nn.Module, base_model: PreTrainedModel, inputs: dict[str, Any]) -> GatedMasks:
        """
        Score the masks of a batch. Where there will be a backward pass, which may forward layers again, the adapter
        acts on every column until [`~GatedStep.finish`].

        Args:
            model (`nn.Module`): The model as the trainer wraps it.
            base_model ([`PreTrainedModel`]): The language model inside.
            inputs (`dict[str, torch.Tensor]`): A collated batch, see [`build_streams`].
        """
        training, block_size = base_model.training, self.args.block_size
        tilings = draw_tilings(
            inputs,
            self.mask_token_id,
            block_size,
            num_phases=(self.args.mask_phases or 1) if training else block_size,
            noisy_ratio=self.args.noisy_ratio if training else 1.0,
        )
        length = inputs["input_ids"].shape[1]
        states, teacher_states = self._forward_clean(model, base_model, tilings[0], length)
        decay = 1.0 if self.args.mask_decay is None or not training else self.args.mask_decay
        columns = build_mask_columns(tilings, length, block_size, self.mask_token_id, decay)
        hidden_states = self._forward_masks(model, base_model, columns, states)

        # Without any mask, one that is not counted keeps the graph.
        is_scored = columns.is_real.clone()
        is_scored[0, 0] |= ~is_scored.any()
        row, column = is_scored.nonzero(as_tuple=True)
        labels, offsets = columns.labels[row, column], columns.offsets[row, column].clamp(min=0)
        scores = score_masks(
            hidden_states[row, column],
            teacher_states[row, columns.sources[row, column]],
            labels.clamp(min=0),
            Head.of(base_model, self.mask_token_id).log_probabilities,
            self.args.mask_loss or DEFAULT_GATED_LOSS,
        )
        return GatedMasks(
            scores,
            offsets,
            blocks=(offsets == 0).long().cumsum(0) - 1,  # the masks of a block stand side by side
            is_counted=columns.is_real[row, column] & (labels != self.mask_token_id),
            block_size=block_size,
        )

    def finish(self) -> None:
        """From here on the model is the base model again."""
        self._gate.close()

    @torch.no_grad()
    def mask_logits(
        self, model: nn.Module, base_model: PreTrainedModel, inputs: dict[str, Any]
    ) -> Callable[[Streams], tuple[MaskColumns, torch.Tensor]]:
        """
        For [`count_expected_forwards`]: what the masks say of one tiling after the other, over one clean stream.

        Args:
            model, base_model, inputs: See [`~GatedStep.__call__`].
        """
        head, length = Head.of(base_model, self.mask_token_id), inputs["input_ids"].shape[1]
        streams = build_streams(**inputs, mask_token_id=self.mask_token_id, block_size=self.args.block_size, phase=0)
        states, _ = self._forward_clean(model, base_model, streams, length)

        @torch.no_grad()
        def of_tiling(streams: Streams) -> tuple[MaskColumns, torch.Tensor]:
            columns = build_mask_columns([streams], length, self.args.block_size, self.mask_token_id)
            hidden_states = self._forward_masks(model, base_model, columns, states)
            return columns, head.log_probabilities(hidden_states[columns.is_real])

        return of_tiling

    @torch.no_grad()
    def _forward_clean(
        self, model: nn.Module, base_model: PreTrainedModel, streams: Streams, length: int
    ) -> tuple[CleanStates, torch.Tensor]:
        """Keys and values of the clean columns, and their last hidden states."""
        config = base_model.config.get_text_config()
        position_ids = streams.position_ids[:, :length]
        states = CleanStates(config.num_hidden_layers)
        self._gate.close()
        with evaluating(base_model):
            hidden_states = forward_backbone(
                model,
                base_model,
                input_ids=streams.input_ids[:, :length],
                position_ids=position_ids,
                attention_mask=create_attention_mask(
                    config, streams.predicate, position_ids, position_ids, base_model.dtype
                ),
                cache=states,
            )
        return states, hidden_states

    def _forward_masks(
        self, model: nn.Module, base_model: PreTrainedModel, columns: MaskColumns, states: CleanStates
    ) -> torch.Tensor:
        """Last hidden states of the masks; leaves the adapter acting where they have a gradient."""
        self._gate.open()
        try:
            with keeping_the_cache(base_model):
                return forward_backbone(
                    model,
                    base_model,
                    input_ids=columns.input_ids,
                    position_ids=columns.position_ids,
                    attention_mask=columns.attention_mask(base_model.config.get_text_config(), base_model.dtype),
                    cache=states,
                )
        finally:
            if not torch.is_grad_enabled():
                self.finish()


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """A teacher drops nothing out."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
