"""What a result says about how it was made."""

import argparse
from pathlib import Path


__all__ = ["recorded_options"]


def recorded_options(options: argparse.Namespace) -> dict[str, str]:
    """What was asked for, without the paths of one machine."""
    return {name: str(value) for name, value in vars(options).items() if not Path(str(value)).is_absolute()}
