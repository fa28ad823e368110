"""Pushing a checkpoint to the Hub: the weights first, then the card, with retries."""

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import CommitInfo, HfApi, ModelCardData
from huggingface_hub.errors import HTTPError, LocalTokenNotFoundError
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..evaluation import Evaluation, load_evaluation
from .card import CheckpointCard
from .remote import RemoteBranch, first_line
from .save import save_pretrained
from .staging import CARD_FILES, check_folder, list_files, stage_folder


if TYPE_CHECKING:  # PEFT takes seconds to import, and only adapters need it
    from peft import PeftModel


__all__ = ["PushResult", "push_folder", "push_to_hub"]

logger = logging.get_logger(__name__)


@dataclass
class PushResult:
    """
    What a push did.

    Args:
        url (`str`): Address of the pull request if one was opened, else of the repository.
        commit ([`~huggingface_hub.CommitInfo`]): The last commit.
        uploaded (`list[str]`): Files that are in the repository now.
        error (`str`, *optional*): Why the model card and its evaluation are not there, if they are not.
        pull_request (`str`, *optional*): Address of the pull request; none is opened where nothing differs.
    """

    url: str
    commit: CommitInfo
    uploaded: list[str]
    error: str | None = None
    pull_request: str | None = None


def push_to_hub(
    model: "PreTrainedModel | PeftModel",
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
        create_pr (`bool`, *optional*, defaults to `False`): Whether to open a pull request instead, with what differs.
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
    if isinstance(evaluation, (str, Path)):
        evaluation = load_evaluation(evaluation)  # now: an error may not come when the weights are uploaded
    branch = RemoteBranch(HfApi(endpoint=endpoint, token=token), repo_id, revision)
    with tempfile.TemporaryDirectory() as directory:
        staging = stage_folder(folder, directory, base_model)
        try:
            branch.create(private)
            message = commit_message or "Upload MARS checkpoint"
            commit = branch.upload(staging, message, create_pr, ignore_patterns=list(CARD_FILES))
        except (HTTPError, LocalTokenNotFoundError, RuntimeError) as error:  # hf_xet raises the last
            raise branch.explain(error, staging) from error
        pull_request = commit.pr_url  # none if nothing differs
        uploaded = list_files(staging, with_card=False)
        if pull_request is not None:
            branch = dataclasses.replace(branch, revision=commit.pr_revision)

        try:
            card = CheckpointCard.read(staging).merged_into(branch.fetch_card())
        except Exception as unreadable:  # a card that cannot be read is not overwritten
            error = (
                f"The model card of {repo_id} was left as it is, since it or that of {folder.name} could not be read: "
                f"{first_line(unreadable)}"
            )
            logger.error(error)
        else:
            error = card.write(ModelCardData(base_model=base_model, license=license), evaluation, repo_id=repo_id)
        if error is None:
            try:
                message = commit_message or "Upload model card"
                opens_one = create_pr and pull_request is None
                commit = branch.upload(staging, message, opens_one, allow_patterns=list(CARD_FILES))
                pull_request = pull_request or commit.pr_url
                uploaded = list_files(staging, with_card=True)
            except (HTTPError, ValueError) as refused:
                error = f"The Hub did not take the model card: {refused}"
                logger.error(error)
    url = pull_request or f"{branch.api.endpoint}/{repo_id}"
    if create_pr and pull_request is None:
        logger.warning(f"No pull request was opened: nothing differs from {url}.")
    else:
        logger.info(f"Uploaded to {url}: {', '.join(uploaded)}.")
    return PushResult(url, commit, uploaded, error, pull_request)
