"""The report of an evaluation: Markdown, a self-contained HTML page, and a table for the terminal.

Both documents are rendered from the same list of blocks, so they cannot disagree. The report knows no strategy by name:
the first comparison of the results is taken as the one that the evaluation is about.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from locigraph.kg.counts import counted
from locigraph.kg.language.tokens import printable_line
from locigraph.research.evaluation.document import (
    Block,
    Bullets,
    Callout,
    Code,
    Figure,
    Heading,
    Paragraph,
    TableBlock,
    html_page,
    markdown_text,
)
from locigraph.research.evaluation.formatting import milliseconds, p_value, signed, unsigned
from locigraph.research.evaluation.question_browser import browser_block
from locigraph.research.evaluation.results import Comparison, Interval, Results, StrategySummary, Summary
from locigraph.research.evaluation.significance import smallest_p
from locigraph.retrieval.metrics import CONTEXT_METRICS

#: Differences with a corrected p-value up to this are called shown.
SIGNIFICANCE_LEVEL = 0.05
# Metrics of the shorter tables, with the names that readers see.
_MAIN_METRICS = {"recall@5": "recall@5", "recall@10": "recall@10", "recall@20": "recall@20", "ndcg@10": "nDCG@10"}
_SHORTEST = ("recall@10", "ndcg@10", "mrr")
_ALL_METRICS = {**_MAIN_METRICS, "mrr": "MRR", "hit@10": "hit@10", "all_recall@10": "all evidence@10"}


def text_table(results: Summary) -> str:
    """The main scores as aligned text, one strategy a line, for the terminal; no line break at the end.

    An interval (95%, over conversations) is given for recall@10 only.
    """
    rows = [("strategy", "recall@5", "recall@10", "[95%]", "recall@20", "nDCG@10")]
    for name, entry in results["strategies"].items():
        at_5, at_10, at_20, ndcg = _main_scores(entry["overall"])
        rows.append((printable_line(name), at_5, at_10, _interval(entry["intervals"]["recall@10"]), at_20, ndcg))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))])
        for name, *cells in rows
    )


def learnt_note(questions: int) -> list[str]:
    """What is said where the means have so many questions that were learnt from; nothing for none."""
    if not questions:
        return []
    seen = counted(questions, "question")
    return [f"the means include {seen} that the training has seen, in words or evidence; comparisons leave them out"]


def comparison_sentence(comparison: Comparison) -> str:
    """One comparison in plain words; a difference is called shown only after Holm's correction."""
    a, b, metric = printable_line(comparison["a"]), printable_line(comparison["b"]), comparison["metric"]
    interval = _interval([comparison["ci_low"], comparison["ci_high"]], signs=True)
    clusters = comparison["clusters"]
    basis = f"{_p(comparison['p_holm'])} after Holm, {counted(clusters, 'conversation')}"
    size = f"{signed(comparison['delta'])} {metric} {interval}"
    if comparison["p_holm"] <= SIGNIFICANCE_LEVEL and comparison["delta"] != 0.0:
        side = "above" if comparison["delta"] > 0.0 else "below"
        return f"{a} is {side} {b} by {size}, {basis}."
    sentence = f"No difference shown between {a} and {b}: {size}, {basis}"
    if smallest_p(clusters) > SIGNIFICANCE_LEVEL:
        sentence += f"; with so few, no p below {unsigned(smallest_p(clusters), decimals=4)} is possible"
    return sentence + "."


def write_report(
    directory: Path | str,
    results: Results,
    *,
    strategies: Mapping[str, str] | None = None,
    questions: Mapping[str, Any] | None = None,
) -> tuple[Path, Path]:
    """Write ``report.md``, ``report.html`` and, for the Markdown, ``figures/*.svg``.

    The same results give the same bytes. Existing files of these names are replaced.

    Args:
        directory: Folder of the report; made when absent.
        results: Output of ``summarise`` with "corpus", "manifest" and optional "notes".
        strategies: Name of a strategy -> one sentence that explains it to the reader; those that were not run are left
            out. None for no explanations.
        questions: Output of ``browser_data``; None for a report without a browser of questions.

    Returns:
        Paths of the Markdown and of the HTML file.

    Raises:
        TypeError: If the manifest is not JSON.
        OSError: If a file cannot be written.
    """
    from locigraph.research.evaluation.plots import standalone  # late, as in _blocks

    folder = Path(directory)
    blocks = _blocks(results, strategies or {}, questions)
    markdown, page = markdown_text(blocks), html_page(blocks, "Retrieval evaluation")  # both, before a file is touched
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for block in blocks:
        if isinstance(block, Figure):
            (folder / block.path).write_text(standalone(block.svg), encoding="utf-8")
    markdown_path, html_path = folder / "report.md", folder / "report.html"
    markdown_path.write_text(markdown, encoding="utf-8")
    html_path.write_text(page, encoding="utf-8")
    return markdown_path, html_path


def _blocks(results: Results, explanations: Mapping[str, str], questions: Mapping[str, Any] | None) -> list[Block]:
    # Imported late: matplotlib takes half a second to load, which users of a metric alone should not wait for.
    from locigraph.research.evaluation.plots import (
        category_figure,
        latency_figure,
        quality_figure,
        recall_curve_figure,
    )

    strategies, comparisons = results["strategies"], results["comparisons"]
    foreground = (comparisons[0]["a"], comparisons[0]["b"]) if comparisons else tuple(strategies)[:1]
    curve = Figure(
        "recall_curve",
        "Share of the gold evidence among the first k turns.",
        recall_curve_figure(strategies, foreground),
    )
    times = Figure("latency", "Search time per question.", latency_figure(strategies))
    quality = Figure("quality", "Recall@10 and the median search time.", quality_figure(strategies))
    by_category = None
    shown = next((entry for entry in comparisons if entry["metric"] == "recall@10" and entry["by_category"]), None)
    if shown is not None:
        caption = (
            f"{shown['a']} minus {shown['b']} in {shown['metric']}; lines: 95% interval over conversations, "
            "not corrected for the number of categories."
        )
        by_category = Figure("by_category", caption, category_figure(shown))
    return [
        *_opening(results),
        *_explained(strategies, explanations),
        *_side_by_side(strategies),
        *_overall(strategies, curve),
        *_contexts(strategies),
        *_categories(strategies, by_category),
        *_comparisons(comparisons),
        *_seeds(strategies),
        *_second_gold(results),
        *_latency(strategies, times, quality),
        *_browser(questions),
        *_provenance(results),
    ]


def _explained(strategies: Collection[str], explanations: Mapping[str, str]) -> list[Block]:
    items = tuple(f"{name}: {explanations[name]}" for name in strategies if name in explanations)
    return [Heading("Strategies"), Bullets(items)] if items else []


def _opening(results: Results) -> list[Block]:
    corpus = results["corpus"]
    skipped = sum(corpus["skipped"].values())
    blocks: list[Block] = [
        Heading("Retrieval evaluation", level=1),
        Paragraph(
            f"Scored: {counted(corpus['questions'], 'question')} with gold evidence; skipped: {skipped}. "
            "A score is the mean over questions; k counts turns."
        ),
    ]
    comparisons = results["comparisons"]
    if comparisons:
        clusters = min(entry["clusters"] for entry in comparisons)
        pairs = len({(entry["a"], entry["b"]) for entry in comparisons})
        reachable = smallest_p(clusters, pairs)
        if reachable > SIGNIFICANCE_LEVEL:
            blocks.append(
                Callout(
                    f"With {counted(clusters, 'conversation')} and {counted(pairs, 'comparison')} "
                    f"the smallest p after Holm correction is {unsigned(reachable)}: no difference can be "
                    "significant, however large. Test more conversations or compare fewer pairs."
                )
            )
        first = [entry for entry in comparisons if entry["metric"] == comparisons[0]["metric"]]
        blocks.append(Bullets(tuple(comparison_sentence(entry) for entry in first)))
    if results.get("notes"):
        blocks += [Heading("Notes"), Bullets(tuple(results["notes"]))]
    return blocks


def _side_by_side(strategies: Mapping[str, StrategySummary]) -> list[Block]:
    first = next(iter(strategies.values()))
    sizes, categories = list(first["context_tokens"]), list(first["by_category"])  # the same for all strategies
    rows = tuple(
        (
            name,
            *(unsigned(entry["overall"][metric]) for metric in _SHORTEST),
            *(unsigned(entry["by_category"][category]["recall@10"]) for category in categories),
            *(unsigned(entry["overall"][size]) for size in sizes),
            *(milliseconds(entry["latency_ms"][share]) for share in ("p50", "p95")),
        )
        for name, entry in strategies.items()
    )
    of_contexts = (f"in {CONTEXT_METRICS[size]:,} tokens" for size in sizes)
    return [
        Heading("All strategies side by side"),
        Paragraph(
            "Categories, and contexts of so many tokens, by recall: at 10, and of the context. Last, the time of a "
            "search in milliseconds. Intervals are in the tables below."
        ),
        TableBlock(
            (
                "strategy",
                *(_ALL_METRICS[metric] for metric in _SHORTEST),
                *categories,
                *of_contexts,
                "search p50",
                "p95",
            ),
            rows,
        ),
    ]


def _overall(strategies: Mapping[str, StrategySummary], figure: Figure) -> list[Block]:
    rows = tuple(
        (name, *(f"{unsigned(entry['overall'][key])} {_interval(entry['intervals'][key])}" for key in _ALL_METRICS))
        for name, entry in strategies.items()
    )
    return [
        Heading("Overall"),
        Paragraph("In brackets: 95% interval from a bootstrap over conversations."),
        TableBlock(("strategy", *_ALL_METRICS.values()), rows),
        figure,
    ]


def _contexts(strategies: Mapping[str, StrategySummary]) -> list[Block]:
    sizes = list(next(iter(strategies.values()))["context_tokens"])
    if not sizes:
        return []
    rows = []
    for name, entry in strategies.items():
        cells = [name]
        for size in sizes:
            cells.append(f"{unsigned(entry['overall'][size])} {_interval(entry['intervals'][size])}")
            cells.append(f"{entry['context_tokens'][size]:,.0f}")
        rows.append(tuple(cells))
    header = ["strategy"]
    for size in sizes:
        header += [f"recall in {CONTEXT_METRICS[size]:,} tokens", "used"]
    return [
        Heading("Contexts of equal length"),
        Paragraph(
            "A context holds the best memories that fit into the given number of tokens, with their dates and source "
            "turns. Recall is the share of the gold evidence in it, as the turn itself or as a memory extracted from "
            "it; used is the mean number of tokens."
        ),
        TableBlock(tuple(header), tuple(rows)),
    ]


def _categories(strategies: Mapping[str, StrategySummary], figure: Figure | None) -> list[Block]:
    names = list(next(iter(strategies.values()))["by_category"])  # the same for all, since all answer all questions
    rows = tuple(
        (strategy, *(unsigned(entry["by_category"][name]["recall@10"]) for name in names))
        for strategy, entry in strategies.items()
    )
    table = TableBlock(("strategy", *names), rows)
    return [Heading("Evidence recall@10 by category"), table, *([] if figure is None else [figure])]


def _comparisons(comparisons: Sequence[Comparison]) -> list[Block]:
    if not comparisons:
        return []
    rows = tuple(
        (
            entry["a"],
            entry["b"],
            entry["metric"],
            signed(entry["delta"]),
            _interval([entry["ci_low"], entry["ci_high"]], signs=True),
            _interval([entry["t_low"], entry["t_high"]], signs=True),
            p_value(entry["p"]),
            p_value(entry["p_holm"]),
            p_value(entry["p_question_level"]),
            str(entry["clusters"]),
        )
        for entry in comparisons
    )
    header = (
        "a",
        "b",
        "metric",
        "a - b",
        "95% interval",
        "95% t interval",
        "p",
        "p (Holm)",
        "p by question*",
        "conversations",
    )
    return [
        Heading("Comparisons"),
        Paragraph(
            "Paired by question and clustered by conversation. p comes from a sign-flip test over conversations. The "
            "95% interval comes from a bootstrap over conversations, which makes it slightly too narrow if there are "
            "few of them; the t interval comes from Student's t with one degree of freedom fewer than conversations. "
            "Holm's correction covers all rows of one metric. With n conversations, no p below 2^(1 - n) is possible."
        ),
        TableBlock(header, rows, text_columns=3),
        Paragraph(
            "* Treats questions as independent, which they are not, so it is anti-conservative: it is shown for "
            "comparison with published tables, not to support a claim."
        ),
        Bullets(tuple(comparison_sentence(entry) for entry in comparisons if entry["metric"] not in CONTEXT_METRICS)),
    ]


def _seeds(strategies: Mapping[str, StrategySummary]) -> list[Block]:
    rows = tuple(
        (name, seed, *_main_scores(scores))
        for name, entry in strategies.items()
        for seed, scores in entry["by_seed"].items()
    )
    if not rows:
        return []
    return [
        Heading("By seed"),
        Paragraph("In all other tables, a question's score is the mean over these trainings."),
        TableBlock(("strategy", "seed", *_MAIN_METRICS.values()), rows, text_columns=2),
    ]


def _second_gold(results: Results) -> list[Block]:
    second = results.get("second_gold")
    if second is None:
        return []
    rows = tuple((name, *_main_scores(entry["overall"])) for name, entry in second["strategies"].items())
    return [
        Heading("Against corrected evidence"),
        Paragraph(
            f"The same rankings; the published corrections change the gold of "
            f"{counted(second['changed'], 'question')}. "
            "The p-values below are corrected separately from those above."
        ),
        TableBlock(("strategy", *_MAIN_METRICS.values()), rows),
        Bullets(tuple(comparison_sentence(entry) for entry in second["comparisons"])),
    ]


def _latency(strategies: Mapping[str, StrategySummary], *figures: Figure) -> list[Block]:
    rows = tuple(
        (
            name,
            *(milliseconds(entry[part][share]) for part in ("latency_ms", "encode_ms") for share in ("p50", "p95")),
        )
        for name, entry in strategies.items()
    )
    header = ("strategy", "search p50", "search p95", "encoding p50", "encoding p95")
    return [
        Heading("Latency"),
        Paragraph(
            "Milliseconds per question; query encoding is listed separately. Strategies that search the vector index "
            "(see their descriptions above) pay for a database; the others score a space that is held in memory."
        ),
        TableBlock(header, rows),
        *figures,
    ]


def _browser(questions: Mapping[str, Any] | None) -> list[Block]:
    return [] if questions is None else [Heading("Questions one by one"), browser_block(questions)]


def _provenance(results: Results) -> list[Block]:
    corpus, manifest = results["corpus"], results["manifest"]
    blocks: list[Block] = [Heading("Questions that were not scored")]
    if corpus["skipped"]:
        skipped = tuple((reason, str(count)) for reason, count in sorted(corpus["skipped"].items()))
        blocks.append(TableBlock(("reason", "questions"), skipped))
    else:
        blocks.append(Paragraph("None."))
    commit, command = manifest.get("commit"), manifest.get("command")
    steps = [
        f"Check out commit {commit}." if commit else "The manifest does not name a commit.",
        f"Check that the SHA-256 of {corpus['path']} is {corpus['sha256']}.",
        "Run the command below; scores, intervals and p-values must be the same; times will differ."
        if command
        else "The manifest does not name a command; run locigraph evaluate with the configuration in it.",
    ]
    blocks += [Heading("How to reproduce"), Bullets(tuple(steps))]
    if command:
        blocks.append(Code(str(command)))
    written = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False)
    blocks += [Heading("Manifest"), Code(written)]
    return blocks


def _main_scores(scores: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(unsigned(scores[metric]) for metric in _MAIN_METRICS)


def _interval(ends: Interval, *, signs: bool = False) -> str:
    low, high = ends
    if low is None or high is None:
        return "[unknown]"
    write = signed if signs else unsigned
    return f"[{write(low)}, {write(high)}]"


def _p(p: float) -> str:
    written = p_value(p)
    return f"p{written}" if written.startswith("<") else f"p={written}"
