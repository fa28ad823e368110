"""Data sets by local path or Hub id."""

from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError, DatasetsError
from huggingface_hub.errors import HTTPError
from trl import DatasetMixtureConfig, get_dataset

from ..missing_paths import check_path
from ..one_line import one_line


__all__ = ["load_any_dataset", "load_mixture", "select_split"]

FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
LOADING_ERRORS = (DatasetsError, HTTPError, OSError, ValueError)
FILE_SUFFIXES = {*FORMATS, ".arrow", ".gz", ".tsv", ".txt", ".xz", ".yaml", ".yml", ".zip", ".zst"}


def load_any_dataset(
    name: str, config_name: str | None = None, streaming: bool = False, argument: str = "dataset"
) -> Dataset | DatasetDict | IterableDataset | IterableDatasetDict:
    """
    Load a data set.

    Args:
        name (`str`): A file, a directory of files, a directory written by `Dataset.save_to_disk`, or a Hub id.
        config_name (`str`, *optional*): Name of the data set's configuration.
        streaming (`bool`, *optional*, defaults to `False`): Whether to stream it.
        argument (`str`, *optional*, defaults to `"dataset"`): What errors call it.

    Raises:
        `ValueError`: If it is not there, or cannot be read, or is a file of an unknown format.
    """
    check_path(name, argument, FILE_SUFFIXES)
    path = Path(name)
    try:
        if path.is_dir() and any((path / file).exists() for file in ("dataset_info.json", "dataset_dict.json")):
            return load_from_disk(name)
        if path.is_file():
            if path.suffix not in FORMATS:
                raise ValueError(f"a file must end in one of {', '.join(FORMATS)}.")
            return load_dataset(FORMATS[path.suffix], data_files=name, streaming=streaming)
        return load_dataset(name, name=config_name, streaming=streaming)
    except StopIteration as error:  # what an empty file of JSON ends in
        raise ValueError(f"`{argument}` {name!r} holds no example.") from error
    except LOADING_ERRORS as error:
        where = "" if path.exists() else "it is nothing on this machine, and the Hub did not give it. "
        raise ValueError(f"`{argument}` {name!r} could not be loaded: {where}{describe(error)}") from error


def load_mixture(config: DatasetMixtureConfig) -> DatasetDict:
    """
    Load several data sets as one, as TRL does.

    Args:
        config ([`~trl.DatasetMixtureConfig`]): The data sets.

    Raises:
        `ValueError`: If one is not there, or cannot be read.
    """
    for part in config.datasets:
        check_path(part.path, "datasets", FILE_SUFFIXES)
    try:
        return get_dataset(config)
    except LOADING_ERRORS as error:
        names = ", ".join(repr(part.path) for part in config.datasets)
        raise ValueError(f"`datasets` ({names}) could not be loaded: {describe(error)}") from error


def select_split(
    data: Dataset | DatasetDict | IterableDataset | IterableDatasetDict, split: str, argument: str
) -> Dataset | IterableDataset:
    """
    One split of a data set. A data set without splits is the split `train`.

    Args:
        data (`Dataset` or `DatasetDict`): The data set, streamed or not.
        split (`str`): Name of the split.
        argument (`str`): The argument that names the split or the data set.

    Raises:
        `ValueError`: If there is no such split; the message lists those that exist.
    """
    splits: dict[Any, Any] = data if isinstance(data, (DatasetDict, IterableDatasetDict)) else {"train": data}
    if split not in splits:
        raise ValueError(f"`{argument}`: the data set has no split {split!r}, only {', '.join(splits)}.")
    return splits[split]


def describe(error: Exception) -> str:
    """What went wrong; of a file that cannot be read, only the cause says what."""
    cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
    return one_line(cause if isinstance(cause, Exception) else error)
