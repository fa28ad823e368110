"""A server with OpenAI's API, continuous batching, and a threshold that follows the load."""

from .config import ServerConfig, ServingConfig
from .memory import KVBudget
from .policy import Load, LoadLevels, ThresholdPolicy
from .request import Failure, GenerationRequest, QueueFull, RequestOutput, TokenLogprob
from .scheduler import Scheduler


__all__ = [
    "Failure",
    "GenerationRequest",
    "KVBudget",
    "Load",
    "LoadLevels",
    "QueueFull",
    "RequestOutput",
    "Scheduler",
    "ServerConfig",
    "ServingConfig",
    "ThresholdPolicy",
    "TokenLogprob",
]
