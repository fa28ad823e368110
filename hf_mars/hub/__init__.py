"""Checkpoints that travel."""

from .save import save_pretrained, write_custom_generate


__all__ = ["save_pretrained", "write_custom_generate"]
