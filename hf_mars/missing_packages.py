"""Packages of an extra that are not installed, told before the work begins."""

import importlib.util


__all__ = ["check_packages"]


def check_packages(extra: str, *names: str) -> None:
    """
    Check that packages are installed.

    Args:
        extra (`str`): The extra of hf-mars that brings them.
        names (`str`): What they are imported as.

    Raises:
        `ImportError`: If one is not.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"{' and '.join(missing)} not installed: `pip install hf-mars[{extra}]`.")
