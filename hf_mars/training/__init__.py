"""Fine-tuning with MARS: a drop-in for TRL's supervised fine-tuning."""

from .mars_config import MARSConfig
from .mars_trainer import MARSTrainer


__all__ = ["MARSConfig", "MARSTrainer"]
