"""Data sets by local path or Hub id."""

from pathlib import Path

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk


__all__ = ["load_any_dataset"]

FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def load_any_dataset(name: str, config_name: str | None = None, streaming: bool = False) -> Dataset | DatasetDict:
    """
    Load a data set.

    Args:
        name (`str`): A file, a directory of files, a directory written by `Dataset.save_to_disk`, or a Hub id.
        config_name (`str`, *optional*): Name of the data set's configuration.
        streaming (`bool`, *optional*, defaults to `False`): Whether to stream it.

    Raises:
        `ValueError`: If it is a file of an unknown format.
    """
    path = Path(name)
    if path.is_dir() and any((path / file).exists() for file in ("dataset_info.json", "dataset_dict.json")):
        return load_from_disk(name)
    if path.is_file():
        if path.suffix not in FORMATS:
            raise ValueError(f"{name} is none of {sorted(FORMATS)}.")
        return load_dataset(FORMATS[path.suffix], data_files=name, streaming=streaming)
    return load_dataset(name, name=config_name, streaming=streaming)
