"""Checkpoints that travel."""

from .save import record_in_adapter, save_pretrained, write_custom_generate


__all__ = ["record_in_adapter", "save_pretrained", "write_custom_generate"]
