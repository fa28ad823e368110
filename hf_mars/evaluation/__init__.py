"""What several tokens a forward cost and buy, measured."""

from .environment import describe_environment
from .evaluation import EVALUATION_FILE, Evaluation, load_evaluation
from .journal import Journal
from .methods import PEERS, Method
from .plots import plot_acceptance_by_position, plot_acceptance_lengths, plot_batch_sizes, plot_frontier
from .sweep import MethodResult, measure_methods
from .table import format_table
from .tuning import tune


__all__ = [
    "EVALUATION_FILE",
    "PEERS",
    "Evaluation",
    "Journal",
    "Method",
    "MethodResult",
    "describe_environment",
    "format_table",
    "load_evaluation",
    "measure_methods",
    "plot_acceptance_by_position",
    "plot_acceptance_lengths",
    "plot_batch_sizes",
    "plot_frontier",
    "tune",
]
