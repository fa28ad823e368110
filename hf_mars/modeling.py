"""Turning a causal language model into a MARS model: the `mars` entry of its configuration, and its mask token."""

import copy
import functools
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import get_layer_types_and_kwargs
from transformers.utils.peft_utils import find_adapter_config_file

from .decoding import generate
from .generative_model import GenerativeModel


if TYPE_CHECKING:  # PEFT takes seconds to import, and only adapters need it
    from peft import PeftConfig, PeftModel


__all__ = [
    "AutoMARSModelForCausalLM",
    "MissingEntryError",
    "add_mask_token",
    "check_architecture",
    "enable_mars",
    "get_base_model",
]

DEFAULT_MASK_TOKEN = "<|mask|>"
# Plain decoders under other names, which transformers does not know.
AUTHORS_MODEL_TYPES = {"a2d-qwen2": "qwen2", "a2d-qwen3": "qwen3"}
DOWNLOAD_ARGUMENTS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")


ModelT = TypeVar("ModelT", bound="PreTrainedModel | PeftModel")


class MissingEntryError(ValueError):
    """A model without a `mars` entry in its configuration, and nothing given in its place."""


def get_base_model(model: nn.Module) -> GenerativeModel:
    """The language model inside a PEFT model, or the model itself."""
    get_inside: Any = getattr(model, "get_base_model", None)  # of PEFT alone
    inside: Any = model if get_inside is None else get_inside()
    return inside


def check_architecture(model: PreTrainedModel) -> None:
    """
    Check that MARS applies to a model: a decoder of plain or sliding-window attention layers that takes positions.

    Raises:
        `ValueError`: If it is something else, or keeps no cache; the message says what it is.
    """
    if not isinstance(model, GenerationMixin) or not model.can_generate():
        raise ValueError(f"{type(model).__name__} does not generate text: load it with a language modeling head.")
    if model.config.is_encoder_decoder:
        raise ValueError(f"{type(model).__name__} is an encoder-decoder model: MARS needs a decoder-only model.")
    config = model.config.get_text_config()
    try:
        layer_types = set(get_layer_types_and_kwargs(config)[0])
    except (AttributeError, KeyError, TypeError, ValueError):
        layer_types = {"unknown"}
    # A recurrent state cannot forget the masks it has read; only keys and values can be overwritten.
    if not layer_types <= {"full_attention", "sliding_attention"}:
        raise ValueError(
            f"{type(model).__name__} has layers other than full or sliding-window attention ({sorted(layer_types)}), "
            "which keep a state other than one key and value a token: MARS cannot decode with those."
        )
    parameters = inspect.signature(model.forward).parameters
    if not {"cache", "use_cache"} <= parameters.keys():
        raise ValueError(
            f"{type(model).__name__} keeps no key/value cache of the usual kind: its forward must take `cache` and "
            "`use_cache`, as MARS reads every token once."
        )
    # ALiBi and local attention by index count columns of the input, not the positions of a row.
    counts_columns = getattr(config, "alibi", False) or "local" in getattr(config, "attention_layers", ())
    if "position_ids" not in parameters or counts_columns:
        raise ValueError(
            f"{type(model).__name__} does not tell tokens apart by `position_ids` alone (ALiBi, or local attention by "
            "index): MARS needs that, as the rows of a batch advance at their own pace."
        )


def enable_mars(model: ModelT, mask_token_id: int | None = None, block_size: int | None = None) -> ModelT:
    """
    Give a model the `mars_*` arguments of [`~hf_mars.decoding.generate`], in place. Its `save_pretrained` then writes
    what [`~hf_mars.save_pretrained`] writes.

    Args:
        model ([`PreTrainedModel`] or [`~peft.PeftModel`]):
            A causal language model that was trained with MARS.
        mask_token_id (`int`, *optional*):
            Id of the mask token. Defaults to the one that `model.config.mars` names.
        block_size (`int`, *optional*):
            Block size of the training. Defaults to the one that `model.config.mars` names.

    Returns:
        [`PreTrainedModel`]: The same model; its `config.mars` has both numbers.

    Raises:
        `TypeError`: If an argument is not an integer.
        `ValueError`: If a value is neither given nor recorded or out of range, or if the architecture does not fit.
    """
    base_model: Any = get_base_model(model)  # any, so that `generate` may be set
    check_architecture(base_model)
    recorded = getattr(base_model.config, "mars", None) or {}
    mask_token_id = recorded.get("mask_token_id") if mask_token_id is None else mask_token_id
    block_size = recorded.get("block_size") if block_size is None else block_size

    mask_token_id = check_entry("mask_token_id", mask_token_id)
    block_size = check_entry("block_size", block_size)
    num_embeddings = len(get_embedding_weight(base_model))
    if not 0 <= mask_token_id < num_embeddings:
        raise ValueError(f"`mask_token_id` is {mask_token_id}, but the model has {num_embeddings} embeddings.")
    if block_size < 2:
        raise ValueError(f"`block_size` must be at least 2, got {block_size}.")

    base_model.config.mars = {"mask_token_id": mask_token_id, "block_size": block_size}
    # The same binding that `from_pretrained(..., trust_remote_code=True)` makes for a checkpoint's custom_generate/.
    base_model.generate = functools.partial(generate, model=base_model)
    from .hub.save import save_completely  # which measures models, and so imports this module

    for saved in (base_model, model):  # once, or the adapter too
        saved.save_pretrained = functools.partial(save_completely, model=saved)
    return model


def check_entry(name: str, value: Any) -> int:
    """A number of the `mars` entry, or an error that names it."""
    if value is None:
        raise MissingEntryError(
            f"`{name}` is neither given nor recorded in the model's `config.mars`: load a checkpoint that was "
            "trained with MARS, or pass it."
        )
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` must be an integer, got {value!r}.")
    return value


def get_embedding_weight(model: PreTrainedModel) -> torch.Tensor:
    """The input embeddings, one row a token."""
    embeddings: Any = model.get_input_embeddings()
    return embeddings.weight


class AutoMARSModelForCausalLM:
    """
    Loads a checkpoint that has a `mars` entry in its `config.json`, ready to `generate(..., mars_threshold=...)`.

    An adapter loads on its untouched base model, as a [`~peft.PeftModel`], and brings the mask token's embedding
    along.

    The checkpoints of the paper's authors (`Xalphinions/MARS-Qwen2.5-0.5B-blk4` and others) load too. Their model
    type, `"a2d-qwen2"`, is Qwen2 under another name; their mask token is found in the tokenizer, and their block size
    in the name.

    Example:

    ```python
    >>> from hf_mars import AutoMARSModelForCausalLM

    >>> model = AutoMARSModelForCausalLM.from_pretrained("path/to/checkpoint")
    >>> model.generate(**inputs, max_new_tokens=64, mars_threshold=0.9)
    ```
    """

    def __init__(self):
        raise OSError(
            "AutoMARSModelForCausalLM is loaded with "
            "`AutoMARSModelForCausalLM.from_pretrained(pretrained_model_name_or_path)`."
        )

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *model_args,
        mask_token_id: int | None = None,
        block_size: int | None = None,
        **kwargs,
    ) -> "GenerativeModel | PeftModel":
        """
        Load a model as [`~transformers.AutoModelForCausalLM`] does, and enable multi-token decoding.

        Args:
            pretrained_model_name_or_path (`str` or `Path`): Hub id or directory.
            mask_token_id (`int`, *optional*): Overrides `config.mars["mask_token_id"]`.
            block_size (`int`, *optional*): Overrides `config.mars["block_size"]`.
            kwargs: As for [`~transformers.AutoModelForCausalLM.from_pretrained`].

        Raises:
            `ValueError`: See [`enable_mars`].
        """
        download = {name: kwargs[name] for name in DOWNLOAD_ARGUMENTS if name in kwargs}
        adapter_config = find_adapter_config_file(str(pretrained_model_name_or_path), **download)
        if adapter_config is not None:
            from peft import PeftConfig

            values = json.loads(Path(adapter_config).read_text())
            recorded = values.pop("mars", {})
            config = PeftConfig.from_peft_type(**values)
            model = load_adapter(pretrained_model_name_or_path, config, download, *model_args, **kwargs)
            return enable_mars(
                model,
                mask_token_id=recorded.get("mask_token_id") if mask_token_id is None else mask_token_id,
                block_size=recorded.get("block_size") if block_size is None else block_size,
            )
        if kwargs.get("config") is None:
            values, _ = PreTrainedConfig.get_config_dict(pretrained_model_name_or_path, **download)
            model_type = AUTHORS_MODEL_TYPES.get(values.get("model_type", ""))
            if model_type is not None:
                kwargs["config"] = AutoConfig.for_model(**{**values, "model_type": model_type})
                if mask_token_id is None and not values.get("mars"):
                    tokenizer: Any = AutoTokenizer.from_pretrained(
                        pretrained_model_name_or_path, config=kwargs["config"], **download
                    )
                    mask_token_id = tokenizer.get_vocab().get(DEFAULT_MASK_TOKEN)
                in_name = re.search(r"-blk(\d+)$", str(pretrained_model_name_or_path))
                if block_size is None and in_name:
                    block_size = int(in_name.group(1))
        model = AutoModelForCausalLM.from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        model = enable_mars(model, mask_token_id=mask_token_id, block_size=block_size)
        return cast(GenerativeModel, model)


def load_adapter(
    adapter: str | Path, config: "PeftConfig", download: dict[str, Any], *model_args, **kwargs
) -> "PeftModel":
    """
    Load a PEFT adapter on its base model, through PEFT itself: transformers 5.24 leaves out the magnitudes of DoRA.
    """
    from peft import PeftModel

    of_adapter = {name: kwargs.pop(name) for name in ("revision", "subfolder") if name in kwargs}
    base_model = AutoModelForCausalLM.from_pretrained(
        config.base_model_name_or_path, *model_args, revision=config.revision, **kwargs
    )
    shared = {name: value for name, value in download.items() if name not in of_adapter}
    return PeftModel.from_pretrained(base_model, adapter, config=config, **of_adapter, **shared)


def add_mask_token(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    mask_token: str | None = None,
    initialize: bool = True,
) -> int:
    """
    Make sure that tokenizer and model have a mask token, without a new parameter.

    The token is the one named, else the tokenizer's own, else `<|mask|>`. One that the vocabulary lacks goes into a
    spare row of the embeddings. The row of a new or newly named token is set to the mean of the embeddings.

    Args:
        model ([`PreTrainedModel`]): The model; its embeddings are never resized, tied weights stay tied.
        tokenizer ([`PreTrainedTokenizerBase`]): The tokenizer; its `mask_token` is set.
        mask_token (`str`, *optional*): Name of the token.
        initialize (`bool`, *optional*, defaults to `True`): Whether to set the row; if not, the model stays as it is.

    Returns:
        `int`: The id of the mask token.

    Raises:
        `ValueError`: If the token is new and no embedding row is spare, if its id would be another token's, if it is a
            word that text may contain, or if it is not the one that the model was trained with.
    """
    embeddings = get_embedding_weight(model)
    name = mask_token or tokenizer.mask_token or DEFAULT_MASK_TOKEN
    vocabulary = tokenizer.get_vocab()
    recorded = (getattr(model.config, "mars", None) or {}).get("mask_token_id")
    if recorded is not None and vocabulary.get(name) != recorded:
        raise ValueError(
            f"The model was trained with the mask token id {recorded}, but {name!r} has the id {vocabulary.get(name)} "
            "in this tokenizer: pass the tokenizer that was saved with the model, and leave `mask_token` out."
        )
    is_chosen_before = name == tokenizer.mask_token or recorded is not None
    if name in vocabulary:
        if not is_chosen_before and name not in tokenizer.all_special_tokens and not is_added_token(tokenizer, name):
            raise ValueError(
                f"`mask_token` is {name!r}, an ordinary word of the vocabulary. Name a special token that the data "
                "never uses, or one that the vocabulary lacks."
            )
        if name in (tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token, tokenizer.unk_token):
            raise ValueError(f"`mask_token` is {name!r}, which the tokenizer already uses for something else.")
    elif max(vocabulary.values()) + 1 >= embeddings.shape[0]:
        unused = [token for token in special_tokens(tokenizer) if token not in tokenizer.special_tokens_map.values()]
        raise ValueError(
            f"The mask token {name!r} is not in the vocabulary, and the model has no spare embedding row for it. Set "
            f"`mask_token` to a special token that the data never uses; this tokenizer has {unused[:8]}."
        )
    if name not in vocabulary:
        check_new_token_id(tokenizer, name)
    tokenizer.add_special_tokens({"mask_token": name})

    mask_token_id = tokenizer.get_vocab()[name]
    if mask_token_id >= embeddings.shape[0]:
        raise ValueError(
            f"The mask token {name!r} has the id {mask_token_id}, but the model has {embeddings.shape[0]} rows."
        )
    if initialize and not is_chosen_before:
        with torch.no_grad():
            embeddings[mask_token_id] = embeddings.mean(0)
    return mask_token_id


def check_new_token_id(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """
    Check that the id which a tokenizer would give a new token is no other token's.

    Raises:
        `ValueError`: If it is: tokenizers number new tokens by the size of the vocabulary, which may have holes.
    """
    trial = copy.deepcopy(tokenizer)
    trial.add_special_tokens({"mask_token": name})
    token_id = trial.convert_tokens_to_ids(name)
    taken = [token for token, index in tokenizer.get_vocab().items() if index == token_id]
    if taken:
        raise ValueError(
            f"The mask token {name!r} would get the id {token_id}, which is that of {taken[0]!r}, as the vocabulary "
            "has holes. Set `mask_token` to a special token that the data never uses; this tokenizer has "
            f"{special_tokens(tokenizer)[:8]}."
        )


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Every special token of the tokenizer, in the order of their ids."""
    return [token.content for _, token in sorted(tokenizer.added_tokens_decoder.items()) if token.special]


def is_added_token(tokenizer: PreTrainedTokenizerBase, name: str) -> bool:
    return any(token.content == name for token in tokenizer.added_tokens_decoder.values())
