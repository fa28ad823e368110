"""The Space: see the runs, move the threshold."""

from .app import build_app
from .loading import load_model


__all__ = ["build_app", "load_model"]
