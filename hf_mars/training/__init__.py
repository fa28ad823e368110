"""Fine-tuning with MARS: a drop-in for TRL's supervised fine-tuning."""

from .log_runs import LogRunsCallback
from .mars_config import MARSConfig
from .mars_trainer import MARSTrainer


__all__ = ["LogRunsCallback", "MARSConfig", "MARSTrainer"]
