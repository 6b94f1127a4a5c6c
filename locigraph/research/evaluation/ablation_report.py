"""Table and figure of an ablation: the difference between each variant and the full model."""

from __future__ import annotations

from locigraph.research.evaluation.document import TableBlock, markdown_text
from locigraph.research.evaluation.formatting import p_value, signed, unsigned
from locigraph.research.evaluation.plots import difference_figure, standalone
from locigraph.research.evaluation.results import Comparison, Summary

_METRIC = "recall@10"


def ablation_rows(summary: Summary) -> list[Comparison]:
    """Comparisons on recall@10, greatest loss first."""
    rows = [comparison for comparison in summary["comparisons"] if comparison["metric"] == _METRIC]
    return sorted(rows, key=lambda comparison: comparison["delta"])


def ablation_table(summary: Summary) -> str:
    """Markdown: recall@10 and nDCG@10 of each variant, its difference with interval and corrected p."""
    rows = ablation_rows(summary)
    differences: dict[str, tuple[str, str, str]] = {rows[0]["b"]: ("", "", "")}
    for row in rows:
        low, high = row["ci_low"], row["ci_high"]
        interval = "" if low is None or high is None else f"{signed(low)} to {signed(high)}"
        differences[row["a"]] = (signed(row["delta"]), interval, p_value(row["p_holm"]))
    header = ("variant", "recall@10", "nDCG@10", "difference in recall@10", "95% interval", "p (Holm)")
    scores = {name: summary["strategies"][name]["overall"] for name in differences}
    cells = tuple(
        (name, unsigned(scores[name]["recall@10"]), unsigned(scores[name]["ndcg@10"]), *difference)
        for name, difference in differences.items()
    )
    return markdown_text([TableBlock(header, cells)]).rstrip()


def ablation_figure(summary: Summary) -> str:
    """SVG file: the difference in recall@10 between each variant and the full model, with 95% interval."""
    rows = [(row["a"], row["delta"], row["ci_low"], row["ci_high"]) for row in ablation_rows(summary)]
    axis = "difference in recall@10 to the full model"
    return standalone(difference_figure(rows, name="ablation", title="What each part is worth", axis=axis))
