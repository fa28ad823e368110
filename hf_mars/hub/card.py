"""The model card: written from templates, updated in place, never claiming what was not measured."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.constants import REPOCARD_NAME
from transformers.utils import logging
from yaml import YAMLError

from ..checking_text import check_text
from ..engines import vllm_command
from ..evaluation import Evaluation, format_table
from .blocks import BLOCKS, new_card, read_block, render_block, replace_block
from .eval_results import PICTURE_FILE, model_index, replace_results, write_eval_results
from .facts import CheckpointFacts
from .front_matter import first_of, front_matter, merge_front_matter, update_front_matter
from .paths import read_card, write_card


__all__ = ["CheckpointCard"]

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class CheckpointCard:
    """
    The model card of a checkpoint: read, changed, and written back with what is new.

    What the templates wrote stands between comments (`<!-- mars:usage -->` and so on) and is renewed; everything else
    is kept as a person left it, in the text and in the front matter.

    Args:
        directory (`Path`): Where the checkpoint is saved.
        text (`str`, *optional*): The card to bring up to date; a new one is written without it.
    """

    directory: Path
    text: str | None = None

    @classmethod
    def read(cls, directory: str | Path) -> "CheckpointCard":
        """The card that a directory holds, if it holds one."""
        return cls(Path(directory), read_card(directory))

    def merged_into(self, remote: str | None) -> "CheckpointCard":
        """
        The card of a repository, with what this one says in the blocks of the templates.

        Args:
            remote (`str`, *optional*): Text of the repository's card; without it this card stays as it is.
        """
        if remote is None:
            return self
        if self.text is None:
            return dataclasses.replace(self, text=remote)
        card, own = ModelCard(remote), ModelCard(self.text)
        for name in BLOCKS:
            content = read_block(own.text, name)
            if content:
                card.text = replace_block(card.text, name, content)
        merge_front_matter(front_matter(card), front_matter(own))
        return dataclasses.replace(self, text=str(card))

    def without_evaluation(self) -> "CheckpointCard":
        """The card without what a sweep has put into it; front matter that cannot be read stays as it is."""
        if self.text is None:
            return self
        try:
            card = ModelCard(self.text)
        except (TypeError, ValueError, YAMLError):
            return dataclasses.replace(self, text=replace_block(self.text, "evaluation", ""))
        card.text = replace_block(card.text, "evaluation", "")
        replace_results(front_matter(card), [])
        return dataclasses.replace(self, text=str(card))

    def write(
        self,
        given: ModelCardData | None = None,
        evaluation: Evaluation | dict[str, Any] | str | Path | None = None,
        training: dict[str, Any] | None = None,
        repo_id: str | None = None,
        facts: CheckpointFacts | None = None,
    ) -> str | None:
        """
        Write the card, and beside it the evaluation, once the weights are there: an error is logged and never raised.

        Args:
            given ([`~huggingface_hub.ModelCardData`], *optional*):
                What to add to the front matter: `base_model`, `datasets`, `license` and `tags`. Local paths are left
                out. The license defaults to that of the card, else to that of the base model.
            evaluation ([`Evaluation`], `dict`, `str` or `Path`, *optional*):
                A sweep measured on this checkpoint, or the file it is in.
            training (`dict`, *optional*): `parameters`, `metrics` and `versions` of the training.
            repo_id (`str`, *optional*): Where the checkpoint is pushed to.
            facts ([`CheckpointFacts`], *optional*): Read from the directory by default.

        Returns:
            `str`, *optional*: What went wrong; `None` if nothing did.
        """
        try:
            self._restore()
            if evaluation is not None:
                evaluation = write_eval_results(self.directory, evaluation)
            facts = facts or CheckpointFacts.read(self.directory)
            card = self._render(given or ModelCardData(), evaluation, training, repo_id, facts)
            check_text(str(card), REPOCARD_NAME)  # saving would empty the file first
            card.save(self.directory / REPOCARD_NAME)
        except Exception as error:  # whatever it is, it may not cost the weights
            message = f"The model card of {self.directory.name} was not written: {error}"
            logger.error(message)
            return message
        return None

    def _restore(self) -> None:
        # By now PEFT may have written a card of its own, with local paths.
        if self.text is not None:
            write_card(self.directory, self.text)
        else:
            (self.directory / REPOCARD_NAME).unlink(missing_ok=True)

    def _render(
        self,
        given: ModelCardData,
        evaluation: Evaluation | None,
        training: dict[str, Any] | None,
        repo_id: str | None,
        facts: CheckpointFacts,
    ) -> ModelCard:
        card = ModelCard(self.text) if self.text else None
        data = front_matter(card) if card else ModelCardData()
        update_front_matter(data, given, facts, repo_id)
        if evaluation is not None:
            data.model_name = (repo_id or data.model_name or self.directory.name).split("/")[-1]
            replace_results(data, model_index(evaluation))

        model_id = repo_id or "path/to/checkpoint"
        values = {
            **dataclasses.asdict(facts),
            "base_model": first_of(data.base_model),
            "datasets": data.datasets,
            "model_id": model_id,
            "vllm_command": vllm_command(model_id, facts.block_size),
        }
        blocks = {
            "facts": render_block("facts", **values),
            "usage": render_block("usage", **values) if repo_id or not card else None,
            "training": render_block("training", training=training) if training else None,
            "evaluation": self._render_evaluation(evaluation) if evaluation else None,
        }
        if card is None:
            title = (repo_id or first_of(data.base_model) or "MARS checkpoint").split("/")[-1]
            title = title if repo_id or not data.base_model else f"{title}, fine-tuned with MARS"
            return new_card(data, title, facts.block_size, blocks)
        for name, content in blocks.items():
            if content is not None:
                card.text = replace_block(card.text, name, content)
        return card

    def _render_evaluation(self, evaluation: Evaluation) -> str:
        return render_block(
            "evaluation",
            table=format_table(evaluation.results, evaluation.environment.get("dtype")),
            has_intervals=any(result.accuracy_interval for result in evaluation.results),
            picture=PICTURE_FILE if (self.directory / PICTURE_FILE).is_file() else None,
            environment=evaluation.environment,
            notes=evaluation.notes,
            command=evaluation.command,
        )
