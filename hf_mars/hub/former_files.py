"""Files that earlier versions wrote into `custom_generate/`, and that decoding needs no more."""

from pathlib import Path


__all__ = ["FORMER_FILES", "remove_former_files"]

# Each module that has gone from `hf_mars/decoding`, by how it began: a file of a user's may have the same name.
FORMER_FILES = {
    "joining.py": ('"""Rows that join a batch, or leave it, while the others decode."""',),
    "row_options.py": ('"""How each row of a batch decodes: the rows of `generate` alike, the requests of a server',),
    "strategy.py": (
        '"""The decoding loop: window, forward, accept, commit."""',
        '"""The decoding step: window, forward, decide, cut, commit."""',
    ),
}


def remove_former_files(folder: Path) -> None:
    """
    Remove what earlier versions wrote, and nothing else.

    Args:
        folder (`Path`): The `custom_generate/` of a checkpoint.
    """
    for name, beginnings in FORMER_FILES.items():
        path = folder / name
        if path.is_file() and path.read_bytes().startswith(tuple(text.encode() for text in beginnings)):
            path.unlink()
