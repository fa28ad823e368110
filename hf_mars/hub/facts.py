"""What a checkpoint is: the facts that its card states, and that loading it depends on."""

import json
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME


__all__ = ["CheckpointFacts"]


@dataclass(frozen=True)
class CheckpointFacts:
    """
    What a checkpoint says of itself.

    Args:
        is_adapter (`bool`): Whether it is an adapter rather than full weights.
        is_gated (`bool`): Whether the adapter acts on the masks alone.
        base_model (`str`, *optional*): Hub id or local path of what it was fine-tuned from.
        mask_token (`str`, *optional*): The mask token, where the tokenizer names one.
        mask_token_id (`int`): Id of the mask token.
        block_size (`int`): Most tokens that one forward adds.
    """

    is_adapter: bool
    is_gated: bool
    base_model: str | None
    mask_token: str | None
    mask_token_id: int
    block_size: int

    @classmethod
    def read(cls, directory: str | Path) -> "CheckpointFacts":
        """
        Read the facts from the configuration files of a saved checkpoint.

        Raises:
            `OSError`: If there is no configuration.
            `KeyError`: If it has no `mars` entry.
        """
        directory = Path(directory)
        is_adapter = (directory / ADAPTER_CONFIG_NAME).is_file()
        path = directory / (ADAPTER_CONFIG_NAME if is_adapter else CONFIG_NAME)
        config = json.loads(path.read_text(encoding="utf-8"))
        tokenizer_path = directory / "tokenizer_config.json"
        tokenizer = json.loads(tokenizer_path.read_text(encoding="utf-8")) if tokenizer_path.is_file() else {}
        mask_token = tokenizer.get("mask_token")
        return cls(
            is_adapter=is_adapter,
            is_gated=bool(config.get("alora_invocation_tokens")),
            base_model=config.get("base_model_name_or_path") or config.get("_name_or_path"),
            mask_token=mask_token["content"] if isinstance(mask_token, dict) else mask_token,
            mask_token_id=config["mars"]["mask_token_id"],
            block_size=config["mars"]["block_size"],
        )
