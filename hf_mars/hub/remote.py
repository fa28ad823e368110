"""The repository on the Hub: requests that are repeated while they fail for a passing reason."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from huggingface_hub import CommitInfo, HfApi
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.errors import (
    HTTPError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    RemoteEntryNotFoundError,
)
from transformers.utils import logging

from .staging import list_files


__all__ = ["RemoteBranch", "first_line"]

logger = logging.get_logger(__name__)

NUM_ATTEMPTS = 4
FIRST_WAIT = 1.0  # seconds; doubles with each attempt
TRANSIENT_STATUS = (408, 429, 500, 502, 503, 504)

Result = TypeVar("Result")


@dataclass(frozen=True)
class RemoteBranch:
    """
    A branch of a repository.

    Args:
        api ([`~huggingface_hub.HfApi`]): The client.
        repo_id (`str`): The repository, as `"namespace/name"`.
        revision (`str`, *optional*): The branch, or the pull request. Defaults to `"main"`.
    """

    api: HfApi
    repo_id: str
    revision: str | None = None

    def create(self, private: bool | None) -> None:
        """Create what is missing of it, the repository with the given visibility."""
        if not with_retries(lambda: self.api.repo_exists(self.repo_id)):
            with_retries(lambda: self.api.create_repo(self.repo_id, private=private, exist_ok=True))
        if self.revision is not None and not self.revision.startswith("refs/pr/"):
            with_retries(lambda: self.api.create_branch(self.repo_id, branch=self.revision, exist_ok=True))

    def upload(self, folder: Path, message: str, create_pr: bool = False, **patterns) -> CommitInfo:
        """
        Upload a folder in one commit.

        Args:
            folder (`Path`): What to upload.
            message (`str`): Message of the commit.
            create_pr (`bool`, *optional*, defaults to `False`): Whether to open a pull request with it.
            patterns: `allow_patterns` or `ignore_patterns`, as for [`~huggingface_hub.HfApi.upload_folder`].
        """

        def request() -> CommitInfo:
            return self.api.upload_folder(
                repo_id=self.repo_id,
                folder_path=folder,
                revision=self.revision,
                create_pr=create_pr,
                commit_message=message,
                **patterns,
            )

        # A pull request that was opened, but whose answer got lost, would be opened again.
        return request() if create_pr else with_retries(request)

    def fetch_card(self) -> str | None:
        """The text of the card that is there, or `None`."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = with_retries(
                    lambda: self.api.hf_hub_download(
                        self.repo_id, REPOCARD_NAME, revision=self.revision, local_dir=folder
                    )
                )
            except RemoteEntryNotFoundError:
                return None
            return Path(path).read_text(encoding="utf-8")

    def explain(self, error: Exception, folder: Path) -> Exception:
        """The error of an upload of that folder that tells a user what to do."""
        response = getattr(error, "response", None)
        status = None if response is None else response.status_code
        if isinstance(error, LocalTokenNotFoundError) or status == 401:
            return PermissionError(
                f"Pushing to {self.repo_id} needs a valid token: run `hf auth login`, or pass `token`. "
                f"({first_line(error)})"
            )
        if status == 403:
            return PermissionError(
                f"The token may not write to {self.repo_id}: create one with write access at "
                f"https://huggingface.co/settings/tokens, or check the namespace. ({first_line(error)})"
            )
        wanted = list_files(folder, with_card=True)
        try:
            present = set(self.api.list_repo_files(self.repo_id, revision=self.revision))
        except (HTTPError, OSError):
            present = set()
        there = [path for path in wanted if path in present]
        missing = [path for path in wanted if path not in present]
        return RuntimeError(
            f"The push to {self.repo_id} failed: {first_line(error)} "
            f"In the repository: {', '.join(there) or 'nothing'}. Not there: {', '.join(missing) or 'nothing'}. "
            "The same call again sends only what is missing."
        )


def with_retries(request: Callable[[], Result]) -> Result:
    """Call the Hub, and again after a pause if it fails for a reason that passes."""
    for attempt in range(1, NUM_ATTEMPTS + 1):
        try:
            return request()
        except (HTTPError, LocalEntryNotFoundError) as error:  # the latter stands for a lost connection
            response = getattr(error, "response", None)
            is_transient = response is None or response.status_code in TRANSIENT_STATUS
            if not is_transient or attempt == NUM_ATTEMPTS:
                raise
            retry_after = response.headers.get("retry-after", "") if response is not None else ""
            wait = float(retry_after) if retry_after.isdigit() else FIRST_WAIT * 2 ** (attempt - 1)
            logger.warning(f"{str(error).splitlines()[0]} Trying again in {wait:g} seconds.")
            time.sleep(wait)
    raise AssertionError("unreachable")


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
