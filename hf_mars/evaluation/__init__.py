"""What several tokens a forward cost and buy, measured."""

from .environment import describe_environment
from .plots import plot_frontier
from .sweep import Mode, ModeResult, format_table, measure_modes


__all__ = ["Mode", "ModeResult", "describe_environment", "format_table", "measure_modes", "plot_frontier"]
