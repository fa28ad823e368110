"""Pictures of a sweep."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from ..decoding import Mode
from .methods import MULTI_TOKEN, Method
from .sweep import MethodResult


__all__ = ["plot_acceptance_by_position", "plot_acceptance_lengths", "plot_batch_sizes", "plot_frontier"]

COLORS: dict[str, str] = {Mode.PLAIN: "0.15", Mode.LOSSY: "#d95f02", Mode.VERIFY: "#1b9e77"}
MARKERS: dict[str, str] = {Mode.LOSSY: "o", Mode.VERIFY: "s"}
PEER_COLOR = "0.55"
PEER_MARKERS = "x+^vDsp*"


@contextlib.contextmanager
def figure_at(path: str | Path, width: float = 6.4, height: float = 4.2) -> Generator:
    """Axes of a figure that is written to `path` at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    yield axes
    figure.savefig(path, dpi=150)
    plt.close(figure)


def plot_frontier(
    results: list[MethodResult], path: str | Path, title: str = "", marked_threshold: float | None = None
) -> None:
    """
    Draw speed against quality: the accuracy of each mode (share identical to plain decoding where no accuracy was
    measured) over its speedup.

    Args:
        results (`list[MethodResult]`): Of one task and batch size, the autoregressive one first.
        path (`str` or `Path`): Where to write the PNG.
        title (`str`, *optional*): Title of the plot.
        marked_threshold (`float`, *optional*): The points whose thresholds are closest to this one get a ring.
    """
    has_accuracy = results[0].accuracy is not None

    def quality(result: MethodResult) -> float:
        return (result.accuracy or 0.0) if has_accuracy else result.identical

    with figure_at(path) as axes:
        axes.axhline(quality(results[0]), color="0.7", linewidth=1, linestyle="--", zorder=0)
        axes.plot(
            results[0].speedup,
            quality(results[0]),
            "o",
            color=COLORS[Mode.PLAIN],
            markersize=7,
            label=Mode.PLAIN.value,
        )
        for name in MULTI_TOKEN:
            points = [r for r in results if r.mode == name and r.metric == "probability" and r.threshold is not None]
            points = [r for r in points if r.block_size == points[0].block_size]
            axes.plot(
                [p.speedup for p in points], [quality(p) for p in points], "o-", color=COLORS[name], label=name.value
            )
            for index, point in enumerate(points):
                axes.annotate(
                    f"{point.threshold:g}",
                    (point.speedup, quality(point)),
                    xytext=(0, 8 + 10 * (index % 2) if name is Mode.LOSSY else -15 - 10 * (index % 2)),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                    color=COLORS[name],
                )
            if marked_threshold is not None and points:
                nearest = min(points, key=lambda point: abs((point.threshold or 0.0) - marked_threshold))
                axes.plot(nearest.speedup, quality(nearest), "o", color=COLORS[name], markersize=15, fillstyle="none")
        planned = [r for r in results if r.mode == Mode.VERIFY and r.threshold is None][:1]
        for point in planned:
            label = str(Method(point.mode))
            axes.plot(point.speedup, quality(point), "*", color=COLORS[Mode.VERIFY], markersize=12, label=label)
        peers = [r for r in results[1:] if r.mode not in COLORS]
        for peer, marker in zip(peers, PEER_MARKERS, strict=False):
            axes.plot(
                [peer.speedup],
                [quality(peer)],
                marker=marker,
                color=PEER_COLOR,
                markersize=6,
                label=peer.mode,
                linestyle="",
            )
        axes.set_xlabel("speedup over autoregressive decoding (wall clock)")
        axes.set_ylabel("accuracy" if has_accuracy else "share identical to AR")
        axes.margins(x=0.08, y=0.2)
        axes.legend(loc="best", frameon=False, fontsize=8)
        axes.set_title(title, fontsize=10)


def plot_batch_sizes(results: list[MethodResult], path: str | Path, title: str = "") -> None:
    """
    Draw the speedup of each way to decode over the batch size.

    Args:
        results (`list[MethodResult]`): Of one task, at several batch sizes.
        path (`str` or `Path`): Where to write the PNG.
        title (`str`, *optional*): Title of the plot.
    """
    with figure_at(path, width=7.2) as axes:
        batch_sizes = sorted({result.batch_size for result in results})
        for label in dict.fromkeys(result.label for result in results):
            points = sorted((r for r in results if r.label == label), key=lambda r: r.batch_size)
            color = COLORS.get(points[0].mode, PEER_COLOR)
            where = [batch_sizes.index(point.batch_size) for point in points]
            style = f"{MARKERS[points[0].mode]}-" if points[0].mode in MARKERS else "x--"
            axes.plot(where, [p.speedup for p in points], style, color=color, markersize=5, alpha=0.85)
            axes.annotate(
                label,
                (where[-1], points[-1].speedup),
                xytext=(6, -3),
                textcoords="offset points",
                fontsize=7,
                color=color,
            )
        axes.set_xticks(range(len(batch_sizes)), [str(size) for size in batch_sizes])
        axes.set_xlim(-0.2, len(batch_sizes) - 1 + 0.25 * len(batch_sizes))
        axes.set_xlabel("batch size")
        axes.set_ylabel("speedup over autoregressive decoding")
        axes.set_title(title, fontsize=10)


def plot_acceptance_lengths(results: list[MethodResult], path: str | Path, title: str = "") -> None:
    """
    Draw which share of the forward passes added one, two, ... tokens.

    Args:
        results (`list[MethodResult]`): Of one task and batch size; those without acceptance lengths are left out.
        path (`str` or `Path`): Where to write the PNG.
        title (`str`, *optional*): Title of the plot.
    """
    shown = [r for r in results if r.mode in MULTI_TOKEN and r.acceptance_lengths]
    lengths = [result.acceptance_lengths or [] for result in shown]
    with figure_at(path) as axes:
        width = 0.8 / len(shown)
        for index, (result, counts) in enumerate(zip(shown, lengths, strict=True)):
            shares = [count / sum(counts) for count in counts]
            where = [length - 0.4 + (index + 0.5) * width for length in range(1, len(shares))]
            same = [r for r in shown if r.mode == result.mode]
            alpha = 0.35 + 0.65 * (same.index(result) + 1) / len(same)
            axes.bar(where, shares[1:], width, color=COLORS[result.mode], alpha=alpha, label=result.label)
        axes.set_xticks(range(1, max(map(len, lengths))))
        axes.set_xlabel("tokens that a forward pass added")
        axes.set_ylabel("share of the forward passes")
        axes.legend(frameon=False, fontsize=8)
        axes.set_title(title, fontsize=10)


def plot_acceptance_by_position(results: list[MethodResult], path: str | Path, title: str = "") -> None:
    """
    Draw which share of the drafts had their first, second, ... token accepted.

    Args:
        results (`list[MethodResult]`): Of one task and batch size; those without drafts are left out.
        path (`str` or `Path`): Where to write the PNG.
        title (`str`, *optional*): Title of the plot.
    """
    shown = [r for r in results if r.acceptance_by_position]
    shares = [result.acceptance_by_position or [] for result in shown]
    with figure_at(path) as axes:
        for result, accepted in zip(shown, shares, strict=True):
            same = [r for r in shown if r.mode == result.mode]
            axes.plot(
                range(1, len(accepted) + 1),
                accepted,
                f"{MARKERS[result.mode]}-",
                color=COLORS[result.mode],
                alpha=0.35 + 0.65 * (same.index(result) + 1) / len(same),
                label=result.label,
            )
        axes.set_xticks(range(1, max(map(len, shares)) + 1))
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("position in the draft")
        axes.set_ylabel("share of the drafts accepted up to there")
        axes.legend(frameon=False, fontsize=8)
        axes.set_title(title, fontsize=10)
