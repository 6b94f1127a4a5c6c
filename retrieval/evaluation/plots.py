"""Figures of a report as SVG text.

Drawn with matplotlib's object interface: no global figure list, no display. The same results give the same
bytes: ids come from a fixed salt and no date is written. Text stays text, in the colour of the surrounding
page (``currentColor``), so that a figure inside a page can be read on light and on dark ground.
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from locigraph.retrieval.evaluation.formatting import flat, milliseconds, signed
from locigraph.retrieval.evaluation.results import CLAIMANT, Comparison, StrategySummary

#: Okabe and Ito 2008, colours told apart with all common forms of colour blindness; their black is left out
#: because it vanishes on dark ground and their yellow because it vanishes on light, grey is added.
PALETTE: tuple[str, ...] = ("#d55e00", "#0a84d0", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
_MARKERS: tuple[str, ...] = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[str, ...] = ("-", "--", ":")
#: Stands for the page's text colour while matplotlib draws; replaced in the SVG.
_INK = "#010203"
#: More bands than this hide each other; then only those of the two strategies in the foreground are drawn.
_MOST_BANDS = 4
# Any, because matplotlib types the names of settings as one literal that differs between its versions.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable and read aloud
    "text.usetex": False,
    "text.parse_math": False,  # a strategy may be named "$x$"
    "font.family": "sans-serif",
    "font.sans-serif": [
        "DejaVu Sans",
        "Arial",
        "Helvetica",
    ],  # matplotlib brings the first, so layout is the same
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


def recall_curve_figure(strategies: Mapping[str, StrategySummary]) -> str:
    """Evidence recall against depth, one line per strategy with its name at the end, with interval bands.

    Args:
        strategies: By name, at least one; the first two and "v2" are drawn in the foreground.

    Returns:
        An ``<svg>`` element.

    Raises:
        ValueError: If there are no strategies.
    """
    if not strategies:
        raise ValueError("there are no strategies to draw")
    with mpl.rc_context(figure_style("recall")):
        figure = Figure(figsize=(8.4, 4.6))
        axes = figure.add_axes((0.08, 0.13, 0.68, 0.75))
        foreground = _foreground(list(strategies))
        ends = []
        for index, (name, summary) in enumerate(strategies.items()):
            curve = summary["recall_curve"]
            is_front = name in foreground
            colour = _colour(index)
            axes.plot(
                curve["k"],
                curve["mean"],
                color=colour,
                linestyle=_DASHES[index // len(PALETTE) % len(_DASHES)],
                marker=_MARKERS[index % len(_MARKERS)],
                linewidth=2.4 if is_front else 1.5,
                zorder=3 if is_front else 2,
            )
            known = [
                (top_k, low, high)
                for top_k, low, high in zip(curve["k"], curve["low"], curve["high"], strict=True)
                if low is not None and high is not None
            ]
            if known and (is_front or len(strategies) <= _MOST_BANDS):
                top_ks, low_ends, high_ends = zip(*known, strict=True)
                axes.fill_between(top_ks, low_ends, high_ends, color=colour, alpha=0.16, linewidth=0.0)
            ends.append((curve["mean"], name, colour, is_front))
        curves = [summary["recall_curve"] for summary in strategies.values()]
        depths = curves[0]["k"]
        axes.set_xscale("log")
        axes.set_xticks(depths, [str(top_k) for top_k in depths])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(depths[0], depths[-1])
        axes.set_ylim(0.0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(True, axis="y")
        axes.set_xlabel("turns returned (k)")
        axes.set_title("Evidence recall@k; bands: 95% over conversations")
        _label_ends(axes, ends)
        return finished_svg(figure, "Evidence recall against the number of returned turns, by strategy")


def category_figure(comparison: Comparison) -> str:
    """Difference between two strategies in each category, with intervals.

    Args:
        comparison: One entry of the results; its ``a`` minus its ``b``.

    Returns:
        An ``<svg>`` element.

    Raises:
        ValueError: If the comparison has no categories.
    """
    rows = [
        (f"{name} ({entry['questions']})", entry["delta"], entry["ci_low"], entry["ci_high"])
        for name, entry in comparison["by_category"].items()
    ]
    if not rows:
        raise ValueError("the comparison has no categories to draw")
    rows.append(("all questions", comparison["delta"], comparison["ci_low"], comparison["ci_high"]))
    a, b, metric = (_shortened(comparison[key]) for key in ("a", "b", "metric"))
    with mpl.rc_context(figure_style("category")):
        figure = Figure(figsize=(8.4, 1.5 + 0.42 * len(rows)))
        axes = _row_axes(figure, [label for label, *_ in rows])
        for row, (_, delta, low, high) in enumerate(rows):
            is_total = row == len(rows) - 1
            colour = PALETTE[0] if is_total else PALETTE[1]
            if low is not None and high is not None:
                axes.plot([low, high], [row, row], color=colour, linewidth=3.0, solid_capstyle="round")
            axes.plot([delta], [row], color=colour, marker="D" if is_total else "o", markersize=7.5)
            axes.annotate(
                signed(delta),
                (max(delta, delta if high is None else high), row),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.axvline(0.0, color=_INK, linewidth=1.0, alpha=0.7, zorder=1)
        axes.axhline(len(rows) - 1.5, color="#8c8c8c", linewidth=0.7, alpha=0.6)
        axes.margins(x=0.12)
        axes.grid(True, axis="x")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: signed(value, decimals=2)))
        axes.set_xlabel(f"{metric} of {a} minus {b}; right of 0: {a} is better")
        axes.set_title(f"{a} against {b}, by category (questions)")
        return finished_svg(figure, f"Difference in {metric} between {a} and {b} by category")


def latency_figure(strategies: Mapping[str, StrategySummary]) -> str:
    """Search time per question, median and 95th percentile, one pair of bars per strategy.

    The axis is logarithmic when the slowest is more than 30 times the fastest; the numbers stand at the bars.

    Args:
        strategies: By name, at least one.

    Returns:
        An ``<svg>`` element.

    Raises:
        ValueError: If there are no strategies.
    """
    if not strategies:
        raise ValueError("there are no strategies to draw")
    times_ms = [(entry["latency_ms"]["p50"], entry["latency_ms"]["p95"]) for entry in strategies.values()]
    shortest, longest = min(min(pair) for pair in times_ms), max(max(pair) for pair in times_ms)
    is_log = shortest > 0.0 and longest / shortest > 30.0
    with mpl.rc_context(figure_style("latency")):
        figure = Figure(figsize=(8.4, 1.5 + 0.52 * len(times_ms)))
        axes = _row_axes(figure, list(strategies))
        for offset, part, colour in ((-0.19, 0, PALETTE[1]), (0.19, 1, PALETTE[4])):
            values = [pair[part] for pair in times_ms]
            axes.barh(
                [row + offset for row in range(len(values))],
                values,
                height=0.34,
                color=colour,
                label=("median (p50)", "95th percentile (p95)")[part],
            )
            for row, value in enumerate(values):
                axes.annotate(
                    milliseconds(value),
                    (value, row + offset),
                    xytext=(5, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=9,
                )
        if is_log:
            axes.set_xscale("log")
            axes.set_xlim(shortest / 2.0, longest * 2.0)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        else:
            axes.set_xlim(0.0, longest * 1.15 if longest > 0.0 else 1.0)
        axes.grid(True, axis="x")
        axes.set_xlabel("milliseconds per question, query encoding apart" + (", log scale" if is_log else ""))
        axes.set_title("Search time")
        figure.legend(loc="upper right", ncols=2, frameon=False, fontsize=9, bbox_to_anchor=(0.99, 1.0))
        return finished_svg(figure, "Search time per question by strategy, median and 95th percentile")


def figure_style(figure_name: str) -> dict[Any, Any]:
    """Settings for ``matplotlib.rc_context``, the same for every figure but for its ids."""
    # Ids are hashes of content and salt; a salt per figure keeps them apart when all stand in one page.
    return {**_STYLE, "svg.hashsalt": f"locigraph-{figure_name}"}


def _colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def _foreground(names: Sequence[str]) -> frozenset[str]:
    if CLAIMANT in names:
        return frozenset([CLAIMANT, next((name for name in names if name != CLAIMANT), CLAIMANT)])
    return frozenset(names[:2])


def _shortened(text: str, limit: int = 34) -> str:
    shown = flat(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _row_axes(figure: Figure, labels: Sequence[str]) -> Axes:
    """Axes with one named row per label, the first on top, and room for the longest name."""
    shown = [_shortened(label) for label in labels]
    left = min(0.36, 0.03 + 0.0105 * max(len(label) for label in shown))
    height = figure.get_figheight()
    axes = figure.add_axes((left, 0.58 / height, 0.96 - left, 1.0 - 1.03 / height))
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


def _label_ends(axes: Axes, ends: Sequence[tuple[Sequence[float], str, str, bool]]) -> None:
    """Write each name at the end of its line, pushed apart where the lines end close together."""
    gap = 0.05
    # Lines that end at one height are named in the order they had before.
    ordered = sorted(ends, key=lambda end: [-value for value in reversed(end[0])])
    heights: list[float] = []
    for means, *_ in ordered:
        heights.append(means[-1] if not heights else min(means[-1], heights[-1] - gap))
    # Pushing down may leave the axes at the bottom; then move the lowest up, and those above as far as
    # needed.
    floor = 0.01
    for index in range(len(heights) - 1, -1, -1):
        heights[index] = max(heights[index], floor)
        floor = heights[index] + gap
    across = axes.get_yaxis_transform()  # x in axes fractions, y in data
    for (means, name, colour, is_front), height in zip(ordered, heights, strict=True):
        axes.plot(
            [1.005, 1.025, 1.035],
            [means[-1], height, height],
            transform=across,
            color=colour,
            linewidth=0.8,
            clip_on=False,
        )
        axes.text(
            1.042,
            height,
            _shortened(name, 28),
            transform=across,
            color=colour,
            fontweight="bold" if is_front else "normal",
            fontsize=9.5,
            va="center",
        )


def finished_svg(figure: Figure, description: str) -> str:
    """The figure as an ``<svg>`` element for a page, with a description for those who cannot see it."""
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    # No metadata at all: its default holds the date and the version of matplotlib.
    empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=empty)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(description)}"', 1).strip() + "\n"


def standalone(svg: str) -> str:
    """The same figure for a file of its own, with text colours for a light and a dark viewer."""
    start = svg.index(">", svg.index("<svg")) + 1
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + svg[:start] + _STANDALONE_STYLE + svg[start:]
