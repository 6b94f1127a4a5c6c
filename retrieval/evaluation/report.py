"""The report of an evaluation: Markdown, a self-contained HTML page, and a table for the terminal.

Both documents are rendered from the same list of blocks, so they cannot disagree. Everything that comes from
data (names of strategies, categories, paths, notes) is escaped; the HTML page loads nothing and forbids
itself to.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from retrieval.evaluation.formatting import flat, milliseconds, p_value, signed, unsigned
from retrieval.evaluation.results import CLAIMANT, Comparison, Interval, StrategySummary, Summary
from retrieval.evaluation.significance import smallest_p

#: Differences with a corrected p up to this are called shown.
SIGNIFICANCE_LEVEL = 0.05


class CorpusSummary(TypedDict):
    """What was asked. ``skipped`` counts, by reason, the questions that could not be scored."""

    path: str
    sha256: str
    questions: int
    skipped: dict[str, int]


class SecondGold(Summary):
    """The same rankings against corrected evidence; ``changed`` counts the questions whose gold differs."""

    changed: int


class Results(Summary):
    """What a report shows: ``summarise``'s output and where it comes from.

    ``manifest`` is any JSON; "command" and "commit" in it are shown among the steps to reproduce.
    """

    corpus: CorpusSummary
    manifest: Mapping[str, object]
    notes: NotRequired[list[str]]
    sessions: NotRequired[Mapping[str, Mapping[str, float]]]
    second_gold: NotRequired[SecondGold | None]


def text_table(results: Summary) -> str:
    """The main scores as aligned text, one strategy a line, for the terminal.

    Intervals (95%, over conversations) are given for recall@10 only. Ends without a line break.
    """
    header = ["strategy", "recall@5", "recall@10", "[95%]", "recall@20", "nDCG@10"]
    rows = [header]
    for name, entry in results["strategies"].items():
        scores = entry["overall"]
        rows.append(
            [
                flat(name),
                unsigned(scores["recall@5"]),
                unsigned(scores["recall@10"]),
                _interval(entry["intervals"]["recall@10"]),
                unsigned(scores["recall@20"]),
                unsigned(scores["ndcg@10"]),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join([row[0].ljust(widths[0])] + [cell.rjust(widths[i]) for i, cell in enumerate(row) if i > 0])
        for row in rows
    ]
    return "\n".join(lines)


def comparison_sentence(comparison: Comparison) -> str:
    """One comparison in plain words; a difference is called shown only after Holm's correction."""
    a, b, metric = flat(comparison["a"]), flat(comparison["b"]), comparison["metric"]
    interval = _interval([comparison["ci_low"], comparison["ci_high"]], signs=True)
    clusters = comparison["clusters"]
    basis = f"{_p(comparison['p_holm'])} after Holm, {_plural(clusters, 'conversation')}"
    size = f"{signed(comparison['delta'])} {metric} {interval}"
    if comparison["p_holm"] <= SIGNIFICANCE_LEVEL and comparison["delta"] != 0.0:
        side = "above" if comparison["delta"] > 0.0 else "below"
        return f"{a} is {side} {b} by {size}, {basis}."
    sentence = f"No difference shown between {a} and {b}: {size}, {basis}"
    if smallest_p(clusters) > SIGNIFICANCE_LEVEL:
        sentence += f"; with so few, no p below {unsigned(smallest_p(clusters), decimals=4)} is possible"
    return sentence + "."


def write_report(directory: Path | str, results: Results) -> tuple[Path, Path]:
    """Write ``report.md``, ``report.html`` and, for the Markdown, ``figures/*.svg``.

    The same results give the same bytes. Existing files of these names are replaced.

    Args:
        directory: Made when absent.
        results: ``summarise``'s output with "corpus", "manifest" and optional "notes".

    Returns:
        Paths of the Markdown and of the HTML file.

    Raises:
        TypeError: If the manifest is not JSON.
        OSError: If a file cannot be written.
    """
    from retrieval.evaluation.plots import standalone  # late, as in _blocks

    folder = Path(directory)
    blocks = _blocks(results)
    markdown, page = _markdown(blocks), _page(blocks)  # both, before a file is touched
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for block in blocks:
        if isinstance(block, _Figure):
            (folder / block.path).write_text(standalone(block.svg), encoding="utf-8")
    markdown_path, html_path = folder / "report.md", folder / "report.html"
    markdown_path.write_text(markdown, encoding="utf-8")
    html_path.write_text(page, encoding="utf-8")
    return markdown_path, html_path


@dataclass(frozen=True, slots=True)
class _Heading:
    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class _Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class _Warning:
    text: str


@dataclass(frozen=True, slots=True)
class _Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1  # the first columns hold words, the others numbers, set to the right


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    caption: str
    svg: str

    @property
    def path(self) -> str:
        return f"figures/{self.name}.svg"


@dataclass(frozen=True, slots=True)
class _Code:
    text: str


_Block = _Heading | _Paragraph | _Warning | _Bullets | _Table | _Figure | _Code


def _blocks(results: Results) -> list[_Block]:
    # Imported late: matplotlib takes half a second, and who only needs a metric should not wait for it.
    from retrieval.evaluation.plots import category_figure, latency_figure, recall_curve_figure

    strategies = results["strategies"]
    curve = _Figure(
        "recall_curve", "Share of the gold evidence among the first k turns.", recall_curve_figure(strategies)
    )
    times = _Figure("latency", "Search time per question.", latency_figure(strategies))
    by_category = None
    shown = _category_comparison(results["comparisons"])
    if shown is not None:
        caption = (
            f"{shown['a']} minus {shown['b']} in {shown['metric']}; lines: 95% interval over conversations, "
            "not corrected for the number of categories."
        )
        by_category = _Figure("by_category", caption, category_figure(shown))
    return [
        *_opening(results),
        *_overall(strategies, curve),
        *_categories(strategies, by_category),
        *_comparisons(results["comparisons"]),
        *_seeds(strategies),
        *_second_gold(results),
        *_latency(strategies, times),
        *_provenance(results),
    ]


def _opening(results: Results) -> list[_Block]:
    corpus = results["corpus"]
    skipped = sum(corpus["skipped"].values())
    blocks: list[_Block] = [
        _Heading("Retrieval evaluation", level=1),
        _Paragraph(
            f"Scored: {_plural(corpus['questions'], 'question')} with gold evidence; skipped: {skipped}. "
            "A score is the mean over questions; k counts turns."
        ),
    ]
    comparisons = results["comparisons"]
    if comparisons:
        clusters = min(entry["clusters"] for entry in comparisons)
        reachable = smallest_p(clusters, len(comparisons))
        if reachable > SIGNIFICANCE_LEVEL:
            blocks.append(
                _Warning(
                    f"With {_plural(clusters, 'conversation')} and {_plural(len(comparisons), 'comparison')} "
                    f"the smallest p after Holm is {unsigned(reachable)}: no difference can be called shown, "
                    "however large. Test more conversations or compare fewer pairs."
                )
            )
        first = [entry for entry in comparisons if entry["metric"] == comparisons[0]["metric"]]
        blocks.append(_Bullets(tuple(comparison_sentence(entry) for entry in first)))
    if results.get("notes"):
        blocks += [_Heading("Notes"), _Bullets(tuple(results["notes"]))]
    return blocks


def _overall(strategies: Mapping[str, StrategySummary], figure: _Figure) -> list[_Block]:
    shown = {
        "recall@5": "recall@5",
        "recall@10": "recall@10",
        "recall@20": "recall@20",
        "ndcg@10": "nDCG@10",
        "mrr": "MRR",
        "hit@10": "hit@10",
        "all_recall@10": "all evidence@10",
    }
    rows = tuple(
        (
            name,
            *(f"{unsigned(entry['overall'][key])} {_interval(entry['intervals'][key])}" for key in shown),
        )
        for name, entry in strategies.items()
    )
    return [
        _Heading("Overall"),
        _Paragraph("In brackets: 95% interval from a bootstrap over conversations."),
        _Table(("strategy", *shown.values()), rows),
        figure,
    ]


def _categories(strategies: Mapping[str, StrategySummary], figure: _Figure | None) -> list[_Block]:
    names = list(dict.fromkeys(name for entry in strategies.values() for name in entry["by_category"]))
    rows = tuple(
        (
            strategy,
            *(
                unsigned(entry["by_category"][name]["recall@10"]) if name in entry["by_category"] else "-"
                for name in names
            ),
        )
        for strategy, entry in strategies.items()
    )
    blocks: list[_Block] = [
        _Heading("Evidence recall@10 by category"),
        _Table(("strategy", *names), rows),
    ]
    if figure is not None:
        blocks.append(figure)
    return blocks


def _category_comparison(comparisons: Sequence[Comparison]) -> Comparison | None:
    """The one that the figure shows: v2 against v1 where it was made, else the first; in recall@10."""
    wanted = [entry for entry in comparisons if entry["metric"] == "recall@10" and entry["by_category"]]
    for entry in wanted:
        if (entry["a"], entry["b"]) == (CLAIMANT, "v1"):
            return entry
    return wanted[0] if wanted else None


def _comparisons(comparisons: Sequence[Comparison]) -> list[_Block]:
    if not comparisons:
        return []
    rows = tuple(
        (
            entry["a"],
            entry["b"],
            entry["metric"],
            signed(entry["delta"]),
            _interval([entry["ci_low"], entry["ci_high"]], signs=True),
            p_value(entry["p"]),
            p_value(entry["p_holm"]),
            p_value(entry["p_question_level"]),
            str(entry["clusters"]),
        )
        for entry in comparisons
    )
    header = ("a", "b", "metric", "a - b", "95% interval", "p", "p (Holm)", "p by question*", "conversations")
    return [
        _Heading("Comparisons"),
        _Paragraph(
            "Paired per question, clustered by conversation: p from a sign-flip test over conversations, "
            "intervals from a bootstrap over conversations. Holm's correction covers all rows. With n "
            "conversations no p below 2^(1 - n) is possible."
        ),
        _Table(header, rows, text_columns=3),
        _Paragraph(
            "* Treats questions as independent, which they are not. Anti-conservative: shown for comparison "
            "with published tables, not to support a claim."
        ),
        _Bullets(tuple(comparison_sentence(entry) for entry in comparisons)),
    ]


def _seeds(strategies: Mapping[str, StrategySummary]) -> list[_Block]:
    rows = tuple(
        (name, seed, *(unsigned(scores[metric]) for metric in ("recall@5", "recall@10", "recall@20", "ndcg@10")))
        for name, entry in strategies.items()
        for seed, scores in entry["by_seed"].items()
    )
    if not rows:
        return []
    return [
        _Heading("By seed"),
        _Paragraph("Everywhere else a question's score is the mean over these trainings."),
        _Table(("strategy", "seed", "recall@5", "recall@10", "recall@20", "nDCG@10"), rows, text_columns=2),
    ]


def _second_gold(results: Results) -> list[_Block]:
    second = results.get("second_gold")
    if second is None:
        return []
    rows = tuple(
        (name, *(unsigned(entry["overall"][metric]) for metric in ("recall@5", "recall@10", "recall@20", "ndcg@10")))
        for name, entry in second["strategies"].items()
    )
    return [
        _Heading("Against corrected evidence"),
        _Paragraph(
            f"The same rankings; the published corrections change the gold of {second['changed']} questions. "
            "p-values here are corrected among themselves."
        ),
        _Table(("strategy", "recall@5", "recall@10", "recall@20", "nDCG@10"), rows),
        _Bullets(tuple(comparison_sentence(entry) for entry in second["comparisons"])),
    ]


def _latency(strategies: Mapping[str, StrategySummary], figure: _Figure) -> list[_Block]:
    rows = tuple(
        (
            name,
            *(milliseconds(entry[part][share]) for part in ("latency_ms", "encode_ms") for share in ("p50", "p95")),
        )
        for name, entry in strategies.items()
    )
    header = ("strategy", "search p50", "search p95", "encoding p50", "encoding p95")
    return [
        _Heading("Latency"),
        _Paragraph("Milliseconds per question; encoding the query is counted apart."),
        _Table(header, rows),
        figure,
    ]


def _provenance(results: Results) -> list[_Block]:
    corpus, manifest = results["corpus"], results["manifest"]
    blocks: list[_Block] = [_Heading("Questions that were not scored")]
    if corpus["skipped"]:
        skipped = tuple((reason, str(count)) for reason, count in sorted(corpus["skipped"].items()))
        blocks.append(_Table(("reason", "questions"), skipped))
    else:
        blocks.append(_Paragraph("None."))
    commit, command = manifest.get("commit"), manifest.get("command")
    steps = [
        f"Check out commit {commit}." if commit else "The manifest names no commit.",
        f"Check that the SHA-256 of {corpus['path']} is {corpus['sha256']}.",
        "Run the command below; scores, intervals and p-values must be the same, times will differ."
        if command
        else "The manifest names no command; run locigraph evaluate with the configuration in it.",
    ]
    blocks += [_Heading("How to reproduce"), _Bullets(tuple(steps))]
    if command:
        blocks.append(_Code(str(command)))
    written = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False)
    blocks += [_Heading("Manifest"), _Code(written)]
    return blocks


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _interval(ends: Interval, *, signs: bool = False) -> str:
    low, high = ends
    if low is None or high is None:
        return "[unknown]"
    write = signed if signs else unsigned
    return f"[{write(low)}, {write(high)}]"


def _p(p: float) -> str:
    written = p_value(p)
    return f"p{written}" if written.startswith("<") else f"p={written}"


# Markdown


def _markdown(blocks: Sequence[_Block]) -> str:
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block: _Block) -> str:
    match block:
        case _Heading(text, level):
            rendered = "#" * level + " " + _markdown_text(text)
        case _Paragraph(text):
            rendered = _markdown_text(text)
        case _Warning(text):
            rendered = "> **Warning:** " + _markdown_text(text)
        case _Bullets(items):
            rendered = "\n".join("- " + _markdown_text(item) for item in items)
        case _Table():
            rendered = _markdown_table(block)
        case _Figure(_, caption, _):
            rendered = f"![{_markdown_text(caption)}]({block.path})"
        case _Code(text):
            # A fence longer than any run of backticks inside cannot be closed by the text.
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            rendered = f"{fence}\n{text}\n{fence}"
    return rendered


def _markdown_table(table: _Table) -> str:
    align = ["---"] * table.text_columns + ["---:"] * (len(table.header) - table.text_columns)
    header, *rows = ([_markdown_text(cell) for cell in row] for row in (table.header, *table.rows))
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, align, *rows))


def _markdown_text(text: str) -> str:
    """Plain text that Markdown shows as it is: no markup, no HTML, no table cell or line break of its own."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", flat(text)).replace("&", "&amp;")


# HTML

_STYLE = """
:root { color-scheme: light dark;
        --ink: #1f2328; --ground: #ffffff; --soft: #f3f4f6; --line: #d0d7de; --warn: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --ground: #0d1117; --soft: #161b22; --line: #30363d; --warn: #d29922; }
}
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; color: var(--ink); background: var(--ground);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: left; }
td, th { white-space: nowrap; }
.number { text-align: right; }
thead th { border-bottom-width: 2px; }
tbody tr:hover { background: var(--soft); }
figure { margin: 1.2rem 0; } figure svg { width: 100%; height: auto; max-width: 52rem; }
figcaption { font-size: .87rem; opacity: .85; }
pre { padding: .8rem; overflow-x: auto; background: var(--soft); border-radius: 6px; font-size: .82rem; }
.warning { padding: .6rem .9rem; border-left: 4px solid var(--warn); background: var(--soft); }
"""


def _page(blocks: Sequence[_Block]) -> str:
    body = "\n".join(_html_block(block) for block in blocks)
    # The policy lets the page use its own styles and nothing else: no script, no request, even if one slipped
    # in.
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Retrieval evaluation</title>
<style>{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _html_block(block: _Block) -> str:
    match block:
        case _Heading(text, level):
            rendered = f"<h{level}>{_html_text(text)}</h{level}>"
        case _Paragraph(text):
            rendered = f"<p>{_html_text(text)}</p>"
        case _Warning(text):
            rendered = f'<p class="warning"><strong>Warning:</strong> {_html_text(text)}</p>'
        case _Bullets(items):
            rendered = "<ul>\n" + "\n".join(f"<li>{_html_text(item)}</li>" for item in items) + "\n</ul>"
        case _Table():
            rendered = _html_table(block)
        case _Figure(_, caption, svg):
            rendered = f"<figure>\n{svg}<figcaption>{_html_text(caption)}</figcaption>\n</figure>"
        case _Code(text):
            rendered = f"<pre><code>{html.escape(text)}</code></pre>"
    return rendered


def _html_text(text: str) -> str:
    return html.escape(flat(text))


def _html_table(table: _Table) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        classes = ["" if column < table.text_columns else ' class="number"' for column in range(len(row))]
        return "".join(f"<{tag}{kind}>{_html_text(cell)}</{tag}>" for cell, kind in zip(row, classes, strict=True))

    rows = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return (
        '<div class="scroll"><table>\n'
        f"<thead><tr>{cells(table.header, 'th')}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )
