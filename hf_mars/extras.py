"""How to add an extra to the installation that is running."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


__all__ = ["check_installed", "install_command"]


def check_installed(extra: str, *modules: str) -> None:
    """
    Check that what a command needs in the end is there, before it begins.

    Args:
        extra (`str`): The extra that brings the modules.
        modules (`str`): Their names.

    Raises:
        `ImportError`: If one is missing; the message says how to install it.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise ImportError(f"{' and '.join(missing)} must be installed first: `{install_command(extra)}`.")


def install_command(extra: str) -> str:
    """
    The command that installs what an extra needs, from wherever this installation came from: a directory, a
    repository, a wheel or an index.

    Args:
        extra (`str`): Name of the extra, such as `"serve"`.
    """
    checkout = Path(__file__).parents[1]
    try:
        recorded = distribution("hf-mars").read_text("direct_url.json")  # PEP 610; there is none from an index
    except PackageNotFoundError:  # on the path of Python alone
        return f'pip install -e "{checkout}[{extra}]"'
    if recorded is None:
        return f'pip install "hf-mars[{extra}]"'
    origin = json.loads(recorded)
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f'pip install {editable}"{url2pathname(urlsplit(origin["url"]).path)}[{extra}]"'
    vcs = origin.get("vcs_info")
    url = origin["url"] if vcs is None else f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
    return f'pip install "hf-mars[{extra}] @ {url}"'
