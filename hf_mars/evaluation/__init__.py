"""What several tokens a forward cost and buy, measured."""

from .environment import describe_environment
from .evaluation import EVALUATION_FILE, Evaluation, load_evaluation
from .journal import Journal
from .modes import PEERS, Mode
from .plots import plot_batch_sizes, plot_frontier, plot_run_lengths
from .sweep import ModeResult, measure_modes
from .table import format_table
from .tuning import tune


__all__ = [
    "EVALUATION_FILE",
    "PEERS",
    "Evaluation",
    "Journal",
    "Mode",
    "ModeResult",
    "describe_environment",
    "format_table",
    "load_evaluation",
    "measure_modes",
    "plot_batch_sizes",
    "plot_frontier",
    "plot_run_lengths",
    "tune",
]
