"""What several tokens a forward cost and buy, measured."""

from .environment import describe_environment
from .evaluation import EVALUATION_FILE, Evaluation, load_evaluation
from .plots import plot_frontier
from .sweep import Mode, ModeResult, format_table, measure_modes


__all__ = [
    "EVALUATION_FILE",
    "Evaluation",
    "Mode",
    "ModeResult",
    "describe_environment",
    "format_table",
    "load_evaluation",
    "measure_modes",
    "plot_frontier",
]
