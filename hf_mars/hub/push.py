"""Pushing a checkpoint to the Hub: the weights first, then the card, with retries."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitInfo, HfApi
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.errors import (
    HTTPError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    RemoteEntryNotFoundError,
)
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ADAPTER_CONFIG_NAME, logging

from ..evaluation import Evaluation
from .card import merge_cards, read_checkpoint
from .paths import hub_id, read_card
from .save import document_checkpoint, rewrite_json, save_pretrained


__all__ = ["PushResult", "push_folder", "push_to_hub"]

logger = logging.get_logger(__name__)

CARD_FILES = [REPOCARD_NAME, ".eval_results/*"]
# What a trainer leaves beside a model, to resume with; `training_args.bin` holds paths of its machine.
TRAINER_FILES = ("checkpoint-*", "_*", "optimizer*", "scheduler.pt", "scaler.pt", "rng_state*", "trainer_state.json")
IGNORED_FILES = (*TRAINER_FILES, "training_args.bin", "runs", ".git", ".cache")

NUM_ATTEMPTS = 4
FIRST_WAIT = 1.0  # seconds; doubles with each attempt
TRANSIENT_STATUS = (408, 429, 500, 502, 503, 504)
COPIED_SIZE = 10_000_000  # bytes; larger files are linked

Result = TypeVar("Result")


@dataclass
class PushResult:
    """
    What a push did.

    Args:
        url (`str`): Address of the repository, or of the pull request.
        commit ([`~huggingface_hub.CommitInfo`]): The last commit.
        uploaded (`list[str]`): Files that are in the repository now.
        error (`str`, *optional*): Why the model card and its evaluation are not there, if they are not.
    """

    url: str
    commit: CommitInfo
    uploaded: list[str]
    error: str | None = None


def push_to_hub(
    model: PreTrainedModel | PeftModel,
    repo_id: str,
    tokenizer: PreTrainedTokenizerBase | None = None,
    evaluation: Evaluation | dict[str, Any] | str | Path | None = None,
    license: str | None = None,
    base_model: str | None = None,
    datasets: list[str] | None = None,
    max_shard_size: int | str = "50GB",
    **kwargs,
) -> PushResult:
    """
    Save a MARS model as [`~hf_mars.save_pretrained`] does, and push it to the Hub as [`push_folder`] does.

    Args:
        model ([`PreTrainedModel`] or [`~peft.PeftModel`]): A MARS model, or an adapter on one.
        repo_id (`str`): Where to push, as `"namespace/name"`. Created if missing.
        tokenizer ([`PreTrainedTokenizerBase`], *optional*): Pushed beside the weights.
        evaluation ([`Evaluation`], `dict`, `str` or `Path`, *optional*): A sweep measured on this model, for the card.
        license (`str`, *optional*): License of the card. Defaults to that of the base model.
        base_model (`str`, *optional*): Hub id of the base model. Defaults to the one the model was loaded from.
        datasets (`list[str]`, *optional*): Hub ids of the training data, for the card.
        max_shard_size (`int` or `str`, *optional*, defaults to `"50GB"`): Size of one file of weights.
        kwargs: `private`, `token`, `revision`, `create_pr`, `commit_message` and `endpoint`, as for [`push_folder`].

    Returns:
        [`PushResult`].
    """
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(
            model,
            folder,
            tokenizer,
            license=license,
            base_model=base_model,
            datasets=datasets,
            max_shard_size=max_shard_size,
        )
        return push_folder(folder, repo_id, evaluation, license=license, base_model=base_model, **kwargs)


def push_folder(
    folder: str | Path,
    repo_id: str,
    evaluation: Evaluation | dict[str, Any] | str | Path | None = None,
    license: str | None = None,
    base_model: str | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    endpoint: str | None = None,
) -> PushResult:
    """
    Push a saved MARS checkpoint to the Hub.

    Weights and code go first and the card after them, in a commit of its own, so that a card which the Hub refuses
    never costs the weights. A card that the repository has is updated in place. Requests that fail for a passing
    reason (a lost connection, 429, 5xx) are repeated; after that, the same call sends only what is missing.

    Args:
        folder (`str` or `Path`): A checkpoint that [`~hf_mars.save_pretrained`] or [`~hf_mars.MARSTrainer`] saved.
        repo_id (`str`): Where to push, as `"namespace/name"`. Created if missing.
        evaluation ([`Evaluation`], `dict`, `str` or `Path`, *optional*):
            A sweep measured on this checkpoint. Defaults to the one in the folder.
        license (`str`, *optional*): License of the card. Defaults to the one in the card, else to the base model's.
        base_model (`str`, *optional*): Hub id of the base model. Required for an adapter on a local directory.
        private (`bool`, *optional*): Whether a new repository is private. By default as the account says.
        token (`str` or `bool`, *optional*): Token with write access. Defaults to that of `hf auth login`.
        revision (`str`, *optional*): Branch to push to, created if missing. Defaults to `"main"`.
        create_pr (`bool`, *optional*, defaults to `False`): Whether to open a pull request instead.
        commit_message (`str`, *optional*): Message of the commits.
        endpoint (`str`, *optional*): Address of the Hub. Defaults to `HF_ENDPOINT`.

    Returns:
        [`PushResult`]. Its `error` is set if the weights are there and the card is not.

    Raises:
        `ValueError`: If the folder is no MARS checkpoint, or an adapter whose base model others cannot load.
        `PermissionError`: If there is no token, or it may not write there.
        `RuntimeError`: If the weights could not be uploaded; the message says what is there and what is not.
    """
    folder = Path(folder)
    check_folder(folder, base_model)
    if isinstance(evaluation, (str, Path)) and not Path(evaluation).exists():
        raise ValueError(f"`evaluation` is {str(evaluation)!r}, which is no file.")
    api = HfApi(endpoint=endpoint, token=token)
    with tempfile.TemporaryDirectory() as staging:
        staging = Path(staging) / folder.resolve().name
        shutil.copytree(folder, staging, copy_function=link_or_copy, ignore=ignore_at_top(folder))
        if base_model is not None and (staging / ADAPTER_CONFIG_NAME).is_file():
            rewrite_json(staging / ADAPTER_CONFIG_NAME, lambda v: {**v, "base_model_name_or_path": base_model})
        try:
            if not with_retries(lambda: api.repo_exists(repo_id)):
                with_retries(lambda: api.create_repo(repo_id, private=private, exist_ok=True))
            if revision is not None and not revision.startswith("refs/pr/"):
                with_retries(lambda: api.create_branch(repo_id, branch=revision, exist_ok=True))

            def upload() -> CommitInfo:
                return api.upload_folder(
                    repo_id=repo_id,
                    folder_path=staging,
                    ignore_patterns=list(CARD_FILES),
                    revision=revision,
                    create_pr=create_pr,
                    commit_message=commit_message or "Upload MARS checkpoint",
                )

            # A pull request that was opened, but whose answer got lost, would be opened again.
            commit = upload() if create_pr else with_retries(upload)
        except (HTTPError, LocalTokenNotFoundError, RuntimeError) as error:  # hf_xet raises the last
            raise explain(error, api, repo_id, revision, staging) from error
        url = commit.pr_url or f"{api.endpoint}/{repo_id}"
        if create_pr:
            revision = commit.pr_revision
        uploaded = list_files(staging, with_card=False)

        try:
            previous = merge_cards(fetch_card(api, repo_id, revision), read_card(staging))
        except Exception as unreadable:  # a card that cannot be read is not overwritten
            error = f"The model card of {repo_id} could not be read, and was left as it is: {first_line(unreadable)}"
            logger.error(error)
        else:
            error = document_checkpoint(
                staging, previous, evaluation=evaluation, license=license, base_model=base_model, repo_id=repo_id
            )
        if error is None:
            try:
                card_commit = with_retries(
                    lambda: api.upload_folder(
                        repo_id=repo_id,
                        folder_path=staging,
                        allow_patterns=CARD_FILES,
                        revision=revision,
                        commit_message=commit_message or "Upload model card",
                    )
                )
                commit, uploaded = card_commit, list_files(staging, with_card=True)
            except (HTTPError, ValueError) as refused:
                error = f"The Hub did not take the model card: {refused}"
                logger.error(error)
    logger.info(f"Uploaded to {url}: {', '.join(uploaded)}.")
    return PushResult(url=url, commit=commit, uploaded=uploaded, error=error)


def check_folder(folder: Path, base_model: str | None) -> None:
    if not folder.is_dir():
        raise ValueError(f"`folder` is {str(folder)!r}, which is not a directory.")
    try:
        checkpoint = read_checkpoint(folder)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"`folder` is {str(folder)!r}, which is no MARS checkpoint: its config.json or adapter_config.json has no "
            "`mars` entry. Save it with `hf_mars.save_pretrained` or MARSTrainer."
        ) from error
    if base_model is not None and hub_id(base_model) != base_model:
        raise ValueError(f"`base_model` must be a Hub id such as 'org/name', got {base_model!r}.")
    is_path = hub_id(checkpoint["base_model"]) != checkpoint["base_model"]
    if checkpoint["is_adapter"] and base_model is None and is_path:
        raise ValueError(
            f"The adapter's base model is {checkpoint['base_model']!r}, a path that nobody else can load: "
            "pass `base_model` with its Hub id, or merge the adapter and push full weights."
        )


def ignore_at_top(folder: Path) -> Callable[[str, list[str]], set[str]]:
    """What is left out of the folder itself; its subfolders are taken as they are."""
    ignore = shutil.ignore_patterns(*IGNORED_FILES)
    return lambda directory, names: ignore(directory, names) if Path(directory) == folder else {"__pycache__"}


def link_or_copy(source: str, destination: str) -> None:
    """Weights are linked where the system allows it; small files are copied, as some are changed before the upload."""
    if os.path.getsize(source) > COPIED_SIZE:
        try:
            os.symlink(os.path.abspath(source), destination)
            return
        except OSError:
            pass
    shutil.copy2(source, destination)


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


def fetch_card(api: HfApi, repo_id: str, revision: str | None) -> str | None:
    """The card that the repository has, or `None`."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = with_retries(
                lambda: api.hf_hub_download(repo_id, REPOCARD_NAME, revision=revision, local_dir=folder)
            )
        except RemoteEntryNotFoundError:
            return None
        return Path(path).read_text(encoding="utf-8")


def list_files(folder: Path, with_card: bool) -> list[str]:
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in paths if with_card or not (path == REPOCARD_NAME or path.startswith(".eval_res")))


def explain(error: Exception, api: HfApi, repo_id: str, revision: str | None, staging: Path) -> Exception:
    """The error that tells a user what to do."""
    response = getattr(error, "response", None)
    status = None if response is None else response.status_code
    if isinstance(error, LocalTokenNotFoundError) or status == 401:
        return PermissionError(
            f"Pushing to {repo_id} needs a valid token: run `hf auth login`, or pass `token`. ({first_line(error)})"
        )
    if status == 403:
        return PermissionError(
            f"The token may not write to {repo_id}: create one with write access at "
            f"https://huggingface.co/settings/tokens, or check the namespace. ({first_line(error)})"
        )
    wanted = list_files(staging, with_card=True)
    try:
        present = set(api.list_repo_files(repo_id, revision=revision))
    except (HTTPError, OSError):
        present = set()
    there = [path for path in wanted if path in present]
    missing = [path for path in wanted if path not in present]
    return RuntimeError(
        f"The push to {repo_id} failed: {first_line(error)} In the repository: {', '.join(there) or 'nothing'}. Not "
        f"there: {', '.join(missing) or 'nothing'}. The same call again sends only what is missing."
    )


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
