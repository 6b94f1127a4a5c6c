"""Figures of a report as SVG text.

They are drawn with matplotlib's object interface, which needs no global figure list and no display. The same results
give the same bytes: IDs come from a fixed salt and no date is written. Text stays text, in the colour of the
surrounding page (``currentColor``), so that a figure inside a page can be read on a light and on a dark background.
"""

from __future__ import annotations

import html
import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from locigraph.kg.language.tokens import printable_line
from locigraph.research.evaluation.formatting import milliseconds, signed
from locigraph.research.evaluation.results import Comparison, StrategySummary

#: Colours of Okabe and Ito 2008, which people with any common form of colour blindness can tell apart. Their black is
#: left out because it vanishes on a dark background and their yellow because it vanishes on a light one; grey is added.
PALETTE: tuple[str, ...] = ("#d55e00", "#0a84d0", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
_MARKERS: tuple[str, ...] = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[str, ...] = ("-", "--", ":")
#: Stands for the page's text colour while matplotlib draws; replaced in the SVG.
_INK = "#010203"
#: More interval bands than this would hide each other; only those of the strategies in the foreground are drawn then.
_MOST_BANDS = 4
# Any, because matplotlib types the names of settings as one literal that differs between its versions.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable and read aloud
    "text.usetex": False,
    "text.parse_math": False,  # a strategy may be named "$x$"
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],  # matplotlib brings the first, so layout is the same
    "font.size": 10.0,
    "axes.titlesize": 12.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": "#8c8c8c",
    "grid.alpha": 0.3,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}
# Outside a page, as an image of its own, a figure has no text colour to take over.
_STANDALONE_STYLE = "<style>:root{color:#1f2328}@media (prefers-color-scheme:dark){:root{color:#e6edf3}}</style>"


def recall_curve_figure(strategies: Mapping[str, StrategySummary], foreground: Collection[str] = ()) -> str:
    """Evidence recall against depth as an ``<svg>`` element: a line with interval band per strategy, named at its end.

    Args:
        strategies: Results by name of the strategy, at least one.
        foreground: Names of the strategies that are drawn in front of the others.
    """
    with mpl.rc_context(_style("recall")):
        height = max(4.6, 1.3 + 0.19 * len(strategies))  # room for the names at the ends of the lines
        figure = Figure(figsize=(8.4, height), layout="constrained")
        axes = figure.subplots()
        ends = []
        for index, (name, summary) in enumerate(strategies.items()):
            curve = summary["recall_curve"]
            is_front = name in foreground
            colour = PALETTE[index % len(PALETTE)]
            axes.plot(
                curve["k"],
                curve["mean"],
                color=colour,
                linestyle=_DASHES[index // len(PALETTE) % len(_DASHES)],
                marker=_MARKERS[index % len(_MARKERS)],
                linewidth=2.4 if is_front else 1.5,
                zorder=3 if is_front else 2,
            )
            if is_front or len(strategies) <= _MOST_BANDS:
                low, high = (np.array(curve[end], dtype=np.float64) for end in ("low", "high"))  # unknown ends are NaN
                axes.fill_between(curve["k"], low, high, color=colour, alpha=0.16, linewidth=0.0)
            ends.append((curve["mean"], name, colour, is_front))
        axes.set_xscale("log")
        axes.set_xticks(curve["k"], [str(top_k) for top_k in curve["k"]])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(curve["k"][0], curve["k"][-1])
        axes.set_ylim(0.0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(True, axis="y")
        axes.set_xlabel("turns returned (k)")
        axes.set_title("Evidence recall@k; bands: 95% over conversations")
        _label_ends(axes, ends, gap=0.05 * 4.6 / height)
        return _svg(figure, "Evidence recall against the number of returned turns, by strategy")


def category_figure(comparison: Comparison) -> str:
    """Difference between two strategies in each category, with intervals, as an ``<svg>`` element."""
    rows = [
        (f"{name} ({entry['questions']})", entry["delta"], entry["ci_low"], entry["ci_high"])
        for name, entry in comparison["by_category"].items()
    ]
    rows.append(("all questions", comparison["delta"], comparison["ci_low"], comparison["ci_high"]))
    a, b, metric = (_shortened(comparison[key]) for key in ("a", "b", "metric"))
    return difference_figure(
        rows,
        name="category",
        title=f"{a} against {b}, by category (questions)",
        axis=f"{metric} of {a} minus {b}; right of 0: {a} is better",
        has_total=True,
    )


def difference_figure(
    rows: Sequence[tuple[str, float, float | None, float | None]],
    *,
    name: str,
    title: str,
    axis: str,
    has_total: bool = False,
) -> str:
    """Differences with their intervals, one below the other, as an ``<svg>`` element.

    Args:
        rows: Label, difference and both ends of its interval; None for ends that are not known.
        name: Name of the figure, different from those of the other figures of a page.
        title: Title of the figure.
        axis: Label of the horizontal axis; together with the title it describes the figure to those who cannot see it.
        has_total: Whether the last row sums up the others and is set apart from them.
    """
    with mpl.rc_context(_style(name)):
        figure = Figure(figsize=(8.4, 1.5 + 0.42 * len(rows)), layout="constrained")
        axes = _row_axes(figure, [label for label, *_ in rows])
        for position, (_, delta, low, high) in enumerate(rows):
            is_total = has_total and position == len(rows) - 1
            colour = PALETTE[0] if is_total else PALETTE[1]
            if low is not None and high is not None:
                axes.plot([low, high], [position, position], color=colour, linewidth=3.0, solid_capstyle="round")
            axes.plot([delta], [position], color=colour, marker="D" if is_total else "o", markersize=7.5)
            _annotate(axes, signed(delta), (max(delta, delta if high is None else high), position))
        axes.axvline(0.0, color=_INK, linewidth=1.0, alpha=0.7, zorder=1)
        if has_total:
            axes.axhline(len(rows) - 1.5, color=PALETTE[6], linewidth=0.7, alpha=0.6)
        axes.margins(x=0.12)
        axes.grid(True, axis="x")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: signed(value, decimals=2)))
        axes.set_xlabel(axis)
        axes.set_title(title)
        return _svg(figure, f"{title}: {axis}")


def latency_figure(strategies: Mapping[str, StrategySummary]) -> str:
    """Search time per question, median and 95th percentile, as a pair of bars per strategy in an ``<svg>`` element.

    The axis is logarithmic when the slowest time is more than 30 times the fastest.
    """
    times_ms = [(entry["latency_ms"]["p50"], entry["latency_ms"]["p95"]) for entry in strategies.values()]
    shortest, longest = min(map(min, times_ms)), max(map(max, times_ms))
    is_log = shortest > 0.0 and longest / shortest > 30.0
    with mpl.rc_context(_style("latency")):
        figure = Figure(figsize=(8.4, 1.5 + 0.52 * len(times_ms)), layout="constrained")
        axes = _row_axes(figure, list(strategies))
        medians, slow = zip(*times_ms, strict=True)
        for values, offset, colour, label in (
            (medians, -0.19, PALETTE[1], "median (p50)"),
            (slow, 0.19, PALETTE[4], "95th percentile (p95)"),
        ):
            rows = [row + offset for row in range(len(values))]
            axes.barh(rows, values, height=0.34, color=colour, label=label)
            for row, value in zip(rows, values, strict=True):
                _annotate(axes, milliseconds(value), (value, row))
        if is_log:
            axes.set_xscale("log")
            axes.set_xlim(shortest / 2.0, longest * 2.0)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        else:
            axes.set_xlim(0.0, longest * 1.15 if longest > 0.0 else 1.0)
        axes.grid(True, axis="x")
        axes.set_xlabel("milliseconds per question, without query encoding" + (", log scale" if is_log else ""))
        axes.set_title("Search time")
        figure.legend(loc="upper right", ncols=2, frameon=False, fontsize=9)
        return _svg(figure, "Search time per question by strategy, median and 95th percentile")


def quality_figure(strategies: Mapping[str, StrategySummary]) -> str:
    """Recall@10 against the median search time, a named point per strategy, as an ``<svg>`` element.

    The axis of time is logarithmic. A time of 0 is drawn as a hundredth of a millisecond.
    """
    with mpl.rc_context(_style("quality")):
        figure = Figure(figsize=(8.4, 5.4), layout="constrained")
        axes = figure.subplots()
        points: list[tuple[str, tuple[float, float]]] = []
        for index, (name, summary) in enumerate(strategies.items()):
            point = max(summary["latency_ms"]["p50"], 0.01), summary["overall"]["recall@10"]
            points.append((_shortened(name, 28), point))
            marker = _MARKERS[index // len(PALETTE) % len(_MARKERS)]  # no two points have colour and marker in common
            axes.plot(*point, marker=marker, linestyle="", markersize=7.0, color=PALETTE[index % len(PALETTE)])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.margins(x=0.2, y=0.08)
        axes.grid(True)
        axes.set_xlabel("median milliseconds per question, without query encoding, log scale")
        axes.set_title("Evidence recall@10 against search time; up and left is better")
        _annotate_apart(figure, axes, points)
        return _svg(figure, "Evidence recall@10 against the median search time, by strategy")


def _style(figure_name: str) -> dict[Any, Any]:
    # IDs are hashes of content and salt; a salt per figure keeps them apart when all stand in one page.
    return {**_STYLE, "svg.hashsalt": f"locigraph-{figure_name}"}


def _annotate(axes: Axes, text: str, point: tuple[float, float]) -> None:
    axes.annotate(text, point, xytext=(8, 0), textcoords="offset points", va="center", fontsize=9)


def _annotate_apart(figure: Figure, axes: Axes, points: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Write names beside points, each moved down until it is clear of the names above it; a line leads to its point."""
    figure.draw_without_rendering()  # sets the places of the points, in pixels
    scale = 72 / figure.dpi
    places = axes.transData.transform([point for _, point in points]) * scale
    taken: list[tuple[float, float, float]] = []  # left, right and height of the names so far
    for at in sorted(range(len(points)), key=lambda i: -places[i][1]):
        text, point = points[at]
        left, height = float(places[at][0]) + 8, float(places[at][1])
        right = left + 5 * len(text)
        for other_left, other_right, other_height in taken:
            if left < other_right and other_left < right and height > other_height - 10:
                height = other_height - 10
        taken.append((left, right, height))
        lower = height - float(places[at][1])
        line = {"arrowstyle": "-", "linewidth": 0.4, "shrinkA": 0, "shrinkB": 3} if lower < -4 else None
        axes.annotate(
            text, point, xytext=(8, lower), textcoords="offset points", va="center", fontsize=8, arrowprops=line
        )


def _shortened(text: str, limit: int = 34) -> str:
    shown = printable_line(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _row_axes(figure: Figure, labels: Sequence[str]) -> Axes:
    """Axes with one named row per label, the first on top."""
    shown = [_shortened(label) for label in labels]
    axes = figure.subplots()
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


def _label_ends(axes: Axes, ends: Sequence[tuple[Sequence[float], str, str, bool]], *, gap: float) -> None:
    """Write each name at the end of its line, at least a gap apart where the lines end close together."""
    # Lines that end at the same height are named in the order that they had before.
    ordered = sorted(ends, key=lambda end: [-value for value in reversed(end[0])])
    heights: list[float] = []
    for means, *_ in ordered:
        heights.append(means[-1] if not heights else min(means[-1], heights[-1] - gap))
    # Pushing down may leave the axes at the bottom; then move the lowest up, and those above as far as needed.
    floor = 0.01
    for index in range(len(heights) - 1, -1, -1):
        heights[index] = max(heights[index], floor)
        floor = heights[index] + gap
    across = axes.get_yaxis_transform()  # x in axes fractions, y in data
    for (means, name, colour, is_front), height in zip(ordered, heights, strict=True):
        ends_at = [1.005, 1.025, 1.035], [means[-1], height, height]
        axes.plot(*ends_at, transform=across, color=colour, linewidth=0.8, clip_on=False)
        weight = "bold" if is_front else "normal"
        axes.text(
            1.042, height, _shortened(name, 28),
            transform=across, color=colour, fontweight=weight, fontsize=9.5, va="center",
        )  # fmt: skip


def _svg(figure: Figure, description: str) -> str:
    """The figure as an ``<svg>`` element, with a description for those who cannot see it."""
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    # No metadata at all: its default holds the date and the version of matplotlib.
    empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=empty)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(description)}"', 1).strip() + "\n"


def standalone(svg: str) -> str:
    """The figure as a file of its own, with text colours for a light and a dark background."""
    start = svg.index(">", svg.index("<svg")) + 1
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + svg[:start] + _STANDALONE_STYLE + svg[start:]
