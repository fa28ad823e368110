"""What a sweep has measured so far, so that one that was interrupted goes on from there."""

import json
from pathlib import Path
from typing import Any


__all__ = ["Journal"]


class Journal:
    """
    A file of JSON lines: the settings of the sweep, then one measurement a line, written as soon as it is made.

    Args:
        path (`str` or `Path`): The file; created if missing.
        settings (`dict`): What the measurements depend on.

    Raises:
        `ValueError`: If the file was written with other settings, or by something else.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any]):
        self.path = Path(path)
        self.entries: dict[str, Any] = {}
        settings = json.loads(json.dumps(settings))
        if self.path.is_file():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            # The last line may have been cut off by whatever interrupted the run.
            parsed = [json.loads(line) for line in lines if is_json(line)]
            if lines and not (parsed and isinstance(parsed[0], dict) and "settings" in parsed[0]):
                raise ValueError(f"{self.path} is no file of measurements: choose another output directory.")
            if parsed and parsed[0]["settings"] != settings:
                recorded = parsed[0]["settings"]
                changed = sorted(name for name in {*settings, *recorded} if settings.get(name) != recorded.get(name))
                raise ValueError(
                    f"{self.path} belongs to a sweep with another {', '.join(changed)}: choose another output "
                    "directory, or delete the file to start anew."
                )
            self.entries = {line["key"]: line["value"] for line in parsed[1:]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [{"settings": settings}, *({"key": key, "value": value} for key, value in self.entries.items())]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def get(self, key: str) -> Any | None:
        """What was measured under this key before, if anything."""
        return self.entries.get(key)

    def add(self, key: str, value: Any) -> None:
        """Keep a measurement."""
        self.entries[key] = value
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")


def is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True
