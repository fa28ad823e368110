"""What the one who serves sets for all requests, in vLLM's `--additional-config`."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .checking import check_number, check_switch


__all__ = ["EngineOptions"]


@dataclass(frozen=True)
class EngineOptions:
    """
    Options of the proposer: `--additional-config '{"mars": {"threshold": 0.5}}'`. None changes what is answered.

    Args:
        threshold (`float`, *optional*, defaults to 0.0):
            Propose what a mask says while the model gives it at least this probability. A request may set its own.
        max_batch_size (`int`, *optional*):
            Decode one token a forward while more requests than this are running. No limit by default.
        automatic (`bool`, *optional*, defaults to `True`):
            Leave masks out where they do not pay, by the measured time of forwards. Switched off, every row gets them
            at every step.
        allow_untested_version (`bool`, *optional*, defaults to `False`):
            Run with a vLLM version that this package was not tested with.

    Raises:
        `TypeError`: If an option has the wrong type.
        `ValueError`: If one is out of range.
    """

    threshold: float = 0.0
    max_batch_size: int = sys.maxsize
    automatic: bool = True
    allow_untested_version: bool = False

    def __post_init__(self):
        check_number(self.threshold, "threshold", at_least=0, at_most=1)
        check_number(self.max_batch_size, "max_batch_size", at_least=0, at_most=sys.maxsize)
        check_switch(self.automatic, "automatic")
        check_switch(self.allow_untested_version, "allow_untested_version")

    @classmethod
    def from_additional_config(cls, additional_config: Any) -> "EngineOptions":
        """
        Read the `mars` entry of vLLM's `additional_config`.

        Raises:
            `TypeError`: If the entry is no mapping, or an option has the wrong type.
            `ValueError`: If an option is unknown or out of range.
        """
        given = additional_config.get("mars", {}) if isinstance(additional_config, Mapping) else {}
        if not isinstance(given, Mapping):
            raise TypeError(f"`mars` in `--additional-config` must be a mapping of options, got {given!r}.")
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                raise ValueError(f"`mars` in `--additional-config` has no option {name!r}: it takes {names}.")
        return cls(**given)
