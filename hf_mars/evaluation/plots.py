"""Pictures of a sweep."""

from pathlib import Path

from .sweep import ModeResult


__all__ = ["plot_frontier"]

COLORS = {"lossy": "#d95f02", "verify": "#1b9e77"}


def plot_frontier(results: list[ModeResult], path: str | Path, title: str = "") -> None:
    """
    Draw speed against quality: the accuracy of each mode (share identical to AR where no accuracy was measured) over
    its speedup.

    Args:
        results (`list[ModeResult]`): As [`measure_modes`] returns them, the autoregressive one first.
        path (`str` or `Path`): Where to write the PNG.
        title (`str`, *optional*): Title of the plot.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    has_accuracy = results[0].accuracy is not None

    def quality(result: ModeResult) -> float:
        return result.accuracy if has_accuracy else result.identical

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    axes.axhline(quality(results[0]), color="0.7", linewidth=1, linestyle="--", zorder=0)
    axes.plot(results[0].speedup, quality(results[0]), "ko", markersize=7, label="AR")
    for name, color in COLORS.items():
        points = [result for result in results if result.mode == name]
        axes.plot([p.speedup for p in points], [quality(p) for p in points], "o-", color=color, label=name)
        for index, point in enumerate(points):
            axes.annotate(
                f"{point.threshold:g}",
                (point.speedup, quality(point)),
                xytext=(0, 8 if (index + (name == "verify")) % 2 else -15),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=color,
            )
    axes.set_xlabel("speedup over autoregressive decoding (wall clock)")
    axes.set_ylabel("accuracy" if has_accuracy else "share identical to AR")
    axes.margins(x=0.08, y=0.2)
    axes.grid(color="0.93")
    axes.legend(loc="best", frameon=False)
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)
