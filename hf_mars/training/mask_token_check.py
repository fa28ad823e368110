"""Data that contain the mask token: told once for each data set."""

from typing import TYPE_CHECKING, Any

import pyarrow.compute
import torch
from datasets import Dataset
from transformers.utils import logging


if TYPE_CHECKING:
    from .mars_trainer import MARSTrainer


__all__ = ["MaskTokenCheck", "count_token"]

logger = logging.get_logger(__name__)

pc: Any = pyarrow.compute  # whose functions are made when it is imported

ADVICE = (
    "There it is text, but in MARS it stands for a token to come: take it out of the data, or name another "
    "`mask_token`."
)


class MaskTokenCheck:
    """
    Warns of data that contain the mask token, once for each data set.

    A tokenised data set is counted before it is read. One that is streamed, or tokenised as it is read, is counted
    batch by batch in [`~MaskTokenCheck.observe`], up to the first batch that contains some.

    Args:
        trainer ([`MARSTrainer`]): Trainer whose data are read.
    """

    def __init__(self, trainer: "MARSTrainer"):
        self.trainer = trainer
        self._counted: dict[str, Any] = {}
        self._met: set[str] = set()  # streams; every process knows of it, and stops to count
        self._told: set[str] = set()  # the first process only
        # What is being read and has to be observed, by whether the model trains: evaluations interrupt the training.
        self._observed: dict[bool, str | None] = {True: None, False: None}
        self._num_batches: dict[str, int] = {}

    def begin(self, name: str, dataset: Any, training: bool = False) -> None:
        """
        Take note that a data set is about to be read; count it if that is possible now.

        Args:
            name (`str`): What the warning calls it.
            dataset ([`~datasets.Dataset`] or other): The data.
            training (`bool`, *optional*, defaults to `False`): Whether the model trains on it.
        """
        can_count = is_countable(dataset)
        self._observed[training] = None if can_count or name in self._met else name
        is_new = name not in self._told and self._counted.get(name) is not dataset
        if can_count and is_new and self.trainer.is_world_process_zero():
            self._counted[name] = dataset
            num_tokens, num_rows = count_token(dataset, self.trainer.processing_class.mask_token_id)
            if num_tokens > 0:
                self._tell(name, num_tokens, f"in {num_rows} of {len(dataset)} rows")

    def observe(self, input_ids: torch.Tensor, training: bool) -> None:
        """
        Count a batch, over all processes, where the data set it comes from could not be counted.

        Args:
            input_ids (`torch.LongTensor`): The tokens of this process.
            training (`bool`): Whether the model trains on them.
        """
        name = self._observed[training]
        if name is None:
            return
        self._num_batches[name] = self._num_batches.get(name, 0) + 1
        count = (input_ids == self.trainer.processing_class.mask_token_id).sum()
        num_tokens = int(self.trainer.accelerator.gather(count[None]).sum())
        if num_tokens > 0:
            self._met.add(name)
            self._observed[training] = None
            self._tell(name, num_tokens, f"in batch {self._num_batches[name]}, the first with any")

    def _tell(self, name: str, num_tokens: int, where: str) -> None:
        if name in self._told or not self.trainer.is_world_process_zero():
            return
        self._told.add(name)
        times = "once" if num_tokens == 1 else f"{num_tokens} times"
        token = self.trainer.processing_class.mask_token
        logger.warning(f"{name} contains the mask token {token!r} {times}, {where}. {ADVICE}")


def is_countable(dataset: Any) -> bool:
    """Whether the tokens lie ready in a table: not streamed, and not made by a transform as they are read."""
    return isinstance(dataset, Dataset) and "input_ids" in dataset.column_names and dataset.format["type"] != "custom"


def count_token(dataset: Dataset, token_id: int) -> tuple[int, int]:
    """How often a token occurs in the column `input_ids`, and in how many rows."""
    num_tokens = num_rows = 0
    columns: Any = dataset.select_columns("input_ids").with_format("arrow")
    for table in columns.iter(batch_size=10_000):
        for chunk in table["input_ids"].chunks:
            found = pc.list_parent_indices(chunk).filter(pc.equal(pc.list_flatten(chunk), token_id))
            num_tokens += len(found)
            num_rows += pc.count_distinct(found).as_py()
    return num_tokens, num_rows
