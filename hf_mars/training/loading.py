"""Loading the model that a trainer was given by name."""

from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel
from trl.trainer.utils import create_model_from_path

from .mars_config import MARSConfig


__all__ = ["load_model"]


def load_model(model_id: str, args: MARSConfig, quantization_config: Any = None) -> PreTrainedModel:
    """
    Load a model with the arguments that [`~trl.SFTTrainer`] would load it with.

    Raises:
        `OSError`: If it cannot be loaded; not all that transformers says names it.
    """
    given: Any = args.model_init_kwargs or {}  # a mapping: what was JSON is parsed by now
    kwargs: dict[str, Any] = dict(given)
    if quantization_config is not None:
        kwargs["quantization_config"] = quantization_config
    if args.distributed_state is not None and args.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        kwargs["device_map"] = None
    kwargs.setdefault("trust_remote_code", args.trust_remote_code)
    try:
        return create_model_from_path(model_id, **kwargs)
    except (OSError, SafetensorError) as error:
        raise OSError(f"The model {model_id!r} could not be loaded: {error}") from error
