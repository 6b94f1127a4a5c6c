"""Table and figure of an ablation: what each variant gains or loses against the full model."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.figure import Figure

from locigraph.retrieval.evaluation.formatting import p_value, signed, unsigned
from locigraph.retrieval.evaluation.plots import PALETTE, figure_style, finished_svg, standalone
from locigraph.retrieval.evaluation.results import Comparison, Summary

_METRIC = "recall@10"


def ablation_rows(summary: Summary) -> list[Comparison]:
    """Comparisons on recall@10, greatest loss first."""
    rows = [comparison for comparison in summary["comparisons"] if comparison["metric"] == _METRIC]
    return sorted(rows, key=lambda comparison: comparison["delta"])


def ablation_table(summary: Summary) -> str:
    """Markdown: recall@10 and nDCG@10 of each variant, its difference with interval and corrected p."""
    rows = ablation_rows(summary)
    full = rows[0]["b"]
    lines = [
        "| variant | recall@10 | nDCG@10 | difference in recall@10 | 95% interval | p (Holm) |",
        "|---|---|---|---|---|---|",
    ]
    for name, comparison in [(full, None), *((row["a"], row) for row in rows)]:
        overall = summary["strategies"][name]["overall"]
        cells = [name, unsigned(overall["recall@10"]), unsigned(overall["ndcg@10"])]
        if comparison is None:
            cells += ["", "", ""]
        else:
            low, high = comparison["ci_low"], comparison["ci_high"]
            interval = "" if low is None or high is None else f"{signed(low)} to {signed(high)}"
            cells += [signed(comparison["delta"]), interval, p_value(comparison["p_holm"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ablation_figure(summary: Summary) -> str:
    """SVG file: one row a variant, its difference in recall@10 to the full model with 95% interval."""
    rows = ablation_rows(summary)
    with mpl.rc_context(figure_style("ablation")):
        figure = Figure(figsize=(7.2, 1.2 + 0.32 * len(rows)), layout="constrained")
        axes = figure.subplots()
        for position, row in enumerate(rows):
            low, high = row["ci_low"], row["ci_high"]
            if low is not None and high is not None:
                axes.plot([low, high], [position, position], color=PALETTE[1], linewidth=2, solid_capstyle="butt")
            axes.plot(row["delta"], position, marker="o", color=PALETTE[1], markersize=6)
        axes.axvline(0.0, color=PALETTE[6], linewidth=1)
        axes.set_yticks(range(len(rows)), [row["a"] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("difference in recall@10 to the full model")
        axes.set_title("What each part is worth")
        description = "Difference in recall@10 of each variant to the full model, with 95% intervals"
        return standalone(finished_svg(figure, description))
