"""Replicas with Ray Serve."""

from .config import RayServingConfig


__all__ = ["RayServingConfig"]
