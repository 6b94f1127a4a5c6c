"""Tables of the documents, generated from the records in ``docs/results``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from locigraph.retrieval.evaluation.formatting import p_value, signed, unsigned

RESULTS = Path(__file__).parent.parent / "docs" / "results"
_CATEGORIES = ("multi-hop", "temporal", "open-domain", "single-hop")
_RANKED = ("recall@10", "ndcg@10")
_SHOWN = ("recall@10", "nDCG@10")  # the same in headings
_CONTEXTS = ("recall@500tokens", "recall@1000tokens", "recall@4000tokens")
#: Rows of README: the title of a strategy there, the run that it is taken from, and its name in that run.
_SUMMARY = (
    ("**`v2-zero`**, the shipped checkpoint, never trained on LoCoMo", "zero", "v2-zero"),
    (
        "linear fusion of fifteen signals (`fusion-zero`), trained on the same questions as the checkpoint",
        "zero",
        "fusion-zero",
    ),
    ("v1 with v2's text encoder (`v1-adapted`)", "zero", "v1-adapted"),
    ("v1: BM25 and dense search", "zero", "v1"),
    ("BM25", "five", "bm25"),
    ("dense search", "zero", "dense"),
    ("**`v2`**, trained in folds of LoCoMo", "five", "v2"),
    ("linear fusion of the same signals (`fusion`), trained in the same folds", "five", "fusion"),
)
#: Rows of the table of differences: title, record, and the corpus of a cell where the record is a matrix.
_TESTED = (
    ("LoCoMo, recorded, trained in folds", "locomo-recorded-five", None),
    ("LoCoMo, rules, trained in folds", "locomo-rules-five", None),
    ("LoCoMo, recorded, zero-shot", "locomo-recorded-zero", None),
    ("LoCoMo, rules, zero-shot", "locomo-rules-zero", None),
    ("LongMemEval, unlearnt questions", "transfer-longmemeval", "longmemeval-150"),
    ("MSC", "transfer-published", "msc"),
    ("RealMem", "transfer-published", "realmem"),
)
_PUBLISHED = {"gaama": "GAAMA", "assomem": "AssoMem", "magma": "MAGMA", "tempr": "TEMPR", "hipporag": "HippoRAG 2"}
_KINDS_OF_TALK = (
    ("multi-session", "several sessions"), ("temporal-reasoning", "time"), ("knowledge-update", "knowledge update"),
    ("single-session-assistant", "one session: assistant"), ("single-session-user", "one session: user"),
    ("single-session-preference", "one session: preference"),
)  # fmt: skip


def strategies(file: str) -> str:
    """All strategies of an evaluation, by descending recall@10."""
    head = ("recall@5", "recall@10 [95%]", "recall@20", "nDCG@10", "MRR", *_CATEGORIES)
    rows = []
    for name, entry in _by_recall(_record(file)["strategies"]):
        overall = entry["overall"]
        first = [_share(overall, "recall@5"), _with_interval(entry)]
        others = [_share(overall, metric) for metric in ("recall@20", "ndcg@10", "mrr")]
        rows.append([name, *first, *others, *_of_categories(entry, _CATEGORIES)])
    return _table(("strategy", *head), rows)


def comparisons(file: str) -> str:
    """All comparisons of an evaluation."""
    rows = []
    for each in _record(file)["comparisons"]:
        parts = ", ".join(f"{name} {_difference(part['delta'])}" for name, part in sorted(each["by_category"].items()))
        tests = [p_value(each["p"]), p_value(each["p_holm"])]
        rows.append([f"{each['a']} - {each['b']}", each["metric"], _with_bounds(each), *tests, parts])
    return _table(("comparison", "metric", "difference [95%]", "p", "p (Holm)", "by category"), rows)


def details(file: str) -> str:
    """Scores of each seed, and against corrected evidence."""
    record = _record(file)
    lines = []
    for name in ("v2", "v2-mixing"):
        seeds = "; ".join(
            f"{seed}: {_pair(each)}" for seed, each in sorted(record["strategies"][name]["by_seed"].items())
        )
        lines.append(f"{name} by seed, recall@10 / nDCG@10: {seeds}.")
    corrected = record["second_gold"]
    scores = ", ".join(f"{name} {_pair(each['overall'])}" for name, each in corrected["strategies"].items())
    changed = f"{corrected['changed']} questions change"
    lines.append(f"Against the published corrections of the evidence ({changed}), recall@10 / nDCG@10: {scores}.")
    return "\n\n".join(lines)


def all_strategies(file: str) -> str:
    """All strategies of an evaluation with contexts and times, by descending recall@10."""
    head = (
        "strategy", "recall@5", "recall@10", "recall@20", "nDCG@10", "MRR", *sorted(_CATEGORIES), "in 500 tokens",
        "in 1,000", "in 4,000", "tokens used of 4,000", "search p50 / p95, ms",
    )  # fmt: skip
    rows = []
    for name, entry in _by_recall(_record(file)["strategies"]):
        scores = [_share(entry["overall"], key) for key in ("recall@5", "recall@10", "recall@20", "ndcg@10", "mrr")]
        packed = [_share(entry["overall"], key) for key in _CONTEXTS]
        used = f"{entry['context_tokens'][_CONTEXTS[-1]]:,.0f}"
        times = f"{entry['latency_ms']['p50']:.1f} / {entry['latency_ms']['p95']:.1f}"
        rows.append([name, *scores, *_of_categories(entry, sorted(_CATEGORIES)), *packed, used, times])
    return _table(head, rows)


def against_all(file: str) -> str:
    """The first strategy of the comparisons against each of the others."""
    compared = _compared(_record(file)["comparisons"])
    rows = []
    for other, by_metric in compared.items():
        recall, ndcg = by_metric["recall@10"], by_metric["ndcg@10"]
        tests = [p_value(recall["p"]), p_value(recall["p_holm"])]
        rows.append([other, _with_bounds(recall), *tests, _difference(ndcg["delta"]), p_value(ndcg["p_holm"])])
    return _table(("v2 minus", "recall@10 [95%]", "p", "p (Holm)", "nDCG@10", "p (Holm)"), rows)


def contexts(file: str, *others: str) -> str:
    """The first strategy of the comparisons against some others, in contexts of equal length."""
    compared = _compared(_record(file)["comparisons"])
    rows = []
    for other in others:
        found = [compared[other][key] for key in _CONTEXTS]
        rows.append(
            [other, *(text for each in found for text in (_difference(each["delta"]), p_value(each["p_holm"])))]
        )
    return _table(("v2 minus", "in 500 tokens", "p (Holm)", "in 1,000", "p (Holm)", "in 4,000", "p (Holm)"), rows)


def matrix(file: str) -> str:
    """Checkpoints that were trained on one corpus and tested on another."""
    names = ("v2-zero", "fusion-zero", "v1-adapted", "dense-adapted")
    rows = []
    for cell in _record(file)["cells"]:
        compared = _compared(cell["comparisons"])
        tests = [
            f"{_difference(compared[other][metric]['delta'])} (p {p_value(compared[other][metric]['p'])})"
            for other in ("fusion-zero", "v1-adapted")
            for metric in _RANKED
        ]
        scores = [_pair(cell["means"][name], "/") for name in names]
        rows.append([cell["trained"], cell["tested"], *scores, *tests])
    minus = "v2-zero \N{MINUS SIGN}"
    differences = (f"{minus} {other}: {metric}" for other in ("fusion-zero", "v1-adapted") for metric in _SHOWN)
    return _table(("trained on", "tested on", *names, *differences), rows)


def unseen(file: str) -> str:
    """Strategies on corpora unknown to the checkpoint: first those with v2's text encoder, each group best first."""
    means: dict[str, dict[str, Any]] = {}
    for cell in _record(file)["cells"]:
        means.setdefault(cell["trained"], {})[_title_of(cell)] = _unlearnt_means(file, cell)
    shipped, mixing = means["shipped"], means["mixing"]
    learnt = ("v2-zero", "fusion-zero")
    order = shipped.get("msc") or next(iter(shipped.values()))
    others = sorted(
        (name for name in order if name not in learnt),
        key=lambda name: (not name.endswith("-adapted"), -order[name]["recall@10"]),
    )
    rows = [
        ["v2-zero", *(_pair(each["v2-zero"]) for each in shipped.values())],
        ["v2-zero, checkpoint `mixing`", *(_pair(mixing[graph]["v2-zero"]) for graph in shipped)],
        *([name, *(_pair(each[name]) for each in shipped.values())] for name in ("fusion-zero", *others)),
    ]
    return _table(("strategy", *shipped), rows)


def unseen_contexts(file: str, *names: str) -> str:
    """The shipped checkpoint and strategies in contexts of equal length, on corpora unknown to the checkpoint."""
    cells = [cell for cell in _record(file)["cells"] if cell["trained"] == "shipped"]
    scored = [_unlearnt_means(file, cell) for cell in cells]
    rows = [
        [name, *(" / ".join(unsigned(means[name][key]) for key in _CONTEXTS) for means in scored)]
        for name in ("v2-zero", *names)
    ]
    return _table(("strategy", *map(_title_of, cells)), rows)


def in_folds(file: str, *names: str) -> str:
    """Strategies, each given as ``name=title``, on the questions of LongMemEval that are not left out, by kind."""
    scored = unlearnt(file)
    ids = {each["question_id"] for each in _questions("longmemeval-150")}
    second = [each for each in scored if each["question_id"] in ids]
    parts = [
        ("all {}", scored),
        *([("the {} of the second file", second)] if len(second) < len(scored) else []),
        *((f"{title} ({{}})", [each for each in scored if each["category"] == kind]) for kind, title in _KINDS_OF_TALK),
    ]
    rows = [
        [title.format(len(part)), *(_pair(means_of(part, each.partition("=")[0])) for each in names)]
        for title, part in parts
    ]
    return _table(("questions", *(each.partition("=")[2] for each in names)), rows)


def ablation(file: str) -> str:
    """The full model, and then variants with one change each, by ascending recall@10."""
    record = _record(file)
    tested = {each["a"]: each for each in record["comparisons"] if each["metric"] == "recall@10"}
    rows = []
    scored = record["strategies"].items()
    for name, entry in sorted(scored, key=lambda each: (each[0] != "full", each[1]["overall"]["recall@10"])):
        cells = ["", "", ""]
        if name in tested:
            each = tested[name]
            bounds = f"{signed(each['ci_low'])} to {signed(each['ci_high'])}"
            cells = [signed(each["delta"]), bounds, p_value(each["p_holm"])]
        rows.append([name, _share(entry["overall"], "recall@10"), _share(entry["overall"], "ndcg@10"), *cells])
    head = ("variant", "recall@10", "nDCG@10", "difference in recall@10", "95% interval", "p (Holm)")
    return _table(head, rows)


def pretraining(file: str) -> str:
    """Without and with pre-training, by the number of conversations with questions; p of the difference."""
    rows = []
    for graph, entry in _record(file).items():
        by_count: dict[int, list[Any]] = {}
        for row in entry["rows"]:
            by_count.setdefault(row["conversations"], []).append(row)
        for count, (without, after) in by_count.items():
            means = (" / ".join(unsigned(row[metric]["mean"]) for metric in _RANKED) for row in (without, after))
            tests = (f"{_difference(after[m]['difference'])} (p {p_value(after[m]['p'])})" for m in _RANKED)
            rows.append([graph, str(count), *means, *tests])
    head = ("graph", "conversations with questions", "without", "with pre-training", *_SHOWN)
    return _table(head, rows)


def summary() -> str:
    """Summary of the results on LoCoMo."""
    rows = []
    for title, run, name in _SUMMARY:
        found = [_record(f"locomo-{graph}-{run}")["strategies"][name] for graph in ("recorded", "rules")]
        rows.append([title, *map(_with_interval, found)])
    return _table(("", "recorded: recall@10 [95%]", "rules: recall@10 [95%]"), rows)


def other_corpora() -> str:
    """Summary of the results on other corpora than LoCoMo."""
    names = ("v2-zero", "fusion-zero", "v1-adapted")
    kept = unlearnt("transfer-longmemeval--longmemeval-150")
    title = f"talk with an assistant (LongMemEval, {len(kept)} questions)"
    rows = [[title, *(_pair(means_of(kept, name)) for name in names)]]
    cells = {each["tested"]: each for each in _record("transfer-published")["cells"] if each["trained"] == "shipped"}
    for corpus, title in (
        ("msc", "chats between people (MSC, {:,} facts as questions)"),
        ("realmem", "requests to an assistant (RealMem, {:,})"),
    ):
        means = cells[corpus]["means"]
        rows.append([title.format(cells[corpus]["questions"]), *(_pair(means[name]) for name in names)])
    return _table(("", "v2", "its fusion", "v1 with v2's text encoder"), rows)


def overview() -> str:
    """The shipped checkpoint on all corpora that it does not know, beside what has the same text encoder."""
    published = _record("transfer-published")["cells"]
    cells = {each["tested"]: each for each in published if each["trained"] == "shipped"}
    kept = unlearnt("transfer-longmemeval--longmemeval-150")
    (assistant,) = (each for each in _record("transfer-longmemeval")["cells"] if each["trained"] == "shipped")
    talk = [
        ("two people (LoCoMo, {:,} questions), graph from published extractions", _counted(cells["locomo-recorded"])),
        ("the same, graph by our rules", _counted(cells["locomo-rules"])),
        (
            "with an assistant (LongMemEval, {:,})",
            (len(kept), {name: means_of(kept, name) for name in assistant["means"]}),
        ),
        ("chats between people (MSC, {:,} facts as questions)", _counted(cells["msc"])),
        ("requests to an assistant (RealMem, {:,})", _counted(cells["realmem"])),
    ]
    rows = []
    for title, (questions, means) in talk:
        best = max((f"{name}-adapted" for name in _PUBLISHED), key=lambda name: means[name]["recall@10"])
        ours = [_pair(means[name]) for name in ("v2-zero", "fusion-zero", "v1-adapted")]
        rows.append([title.format(questions), *ours, f"{_pair(means[best])} ({_PUBLISHED[best[: -len('-adapted')]]})"])
    return _table(("recall@10 / nDCG@10", "v2", "its fusion", "v1", "best published memory"), rows)


def _counted(cell: Mapping[str, Any]) -> tuple[int, Mapping[str, Mapping[str, float]]]:
    return cell["questions"], cell["means"]


def differences() -> str:
    """v2 against its fusion and against v1 with the same text encoder, in all records of today's checkpoint."""
    rows = []
    for title, file, corpus in _TESTED:
        record = _record(file)
        cells = [each for each in record.get("cells", ()) if (each["trained"], each["tested"]) == ("shipped", corpus)]
        tested = [each for each in (cells or [record])[0]["comparisons"] if each["a"] in ("v2", "v2-zero")]
        compared = _compared(tested)
        found = [compared["fusion" if "fusion" in compared else "fusion-zero"][metric] for metric in _RANKED] + [
            compared["v1-adapted"][metric] for metric in _RANKED
        ]
        rows.append([title, *(f"{_difference(each['delta'])} (p {p_value(each['p_holm'])})" for each in found)])
    head = (
        "",
        *(f"{other}: {metric}" for other in ("v2 minus its fusion", "v2 minus v1-adapted") for metric in _SHOWN),
    )
    return _table(head, rows)


TABLES: dict[str, Callable[..., str]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        strategies, comparisons, details, all_strategies, against_all, contexts, matrix, unseen, in_folds, ablation,
        unseen_contexts, pretraining, summary, differences, other_corpora, overview,
    )
}  # fmt: skip


def _record(file: str) -> Any:
    return json.loads((RESULTS / f"{file}.json").read_text())


def _questions(file: str) -> list[dict[str, Any]]:
    """Scores of each question."""
    with gzip.open(RESULTS / f"{file}.scores.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def unlearnt(file: str) -> list[dict[str, Any]]:
    """Scores of each question whose evidence is not in the training data."""
    return [each for each in _questions(file) if not each.get("left_out")]


def means_of(scored: Iterable[Mapping[str, Any]], name: str) -> dict[str, float]:
    """Mean scores of a strategy over questions."""
    found = [each["scores"][name] for each in scored]
    return {metric: fmean(each[metric] for each in found) for metric in found[0]}


def _unlearnt_means(file: str, cell: Mapping[str, Any]) -> Mapping[str, Mapping[str, float]]:
    """Mean scores of each strategy over the questions of a cell whose evidence is not in the training data."""
    if not cell["left_out"]:
        means: Mapping[str, Mapping[str, float]] = cell["means"]
        return means
    kept = unlearnt(f"{file}{'-mixing' * (cell['trained'] == 'mixing')}--{cell['tested']}")
    return {name: means_of(kept, name) for name in cell["means"]}


def _title_of(cell: Mapping[str, Any]) -> str:
    kept = cell["questions"] - cell["left_out"]
    return f"{kept} of {cell['tested']}" if cell["left_out"] else str(cell["tested"])


def _by_recall(entries: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(entries.items(), key=lambda each: -each[1]["overall"]["recall@10"])


def _compared(tested: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Comparisons by baseline and metric."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for each in tested:
        found.setdefault(each["b"], {})[each["metric"]] = each
    return found


def _of_categories(entry: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [_share(entry["by_category"][name], "recall@10") for name in names]


def _share(scores: Mapping[str, float], metric: str) -> str:
    return unsigned(scores[metric])


def _pair(scores: Mapping[str, float], between: str = " / ") -> str:
    return f"{unsigned(scores['recall@10'])}{between}{unsigned(scores['ndcg@10'])}"


def _with_interval(entry: Mapping[str, Any]) -> str:
    low, high = entry["intervals"]["recall@10"]
    return f"{_share(entry['overall'], 'recall@10')} [{unsigned(low)}, {unsigned(high)}]"


def _with_bounds(each: Mapping[str, Any]) -> str:
    return f"{_difference(each['delta'])} [{_difference(each['ci_low'])}, {_difference(each['ci_high'])}]"


def _difference(value: float) -> str:
    text = signed(value)
    return ".000" if text == "0" else text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"| {cell} " if cell else "| " for cell in cells) + "|" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])
