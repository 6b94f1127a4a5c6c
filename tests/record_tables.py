"""Tables of the documents, generated from the records in ``docs/results``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from locigraph.kg.corpora import load_corpus
from locigraph.kg.language.languages import LANGUAGES
from locigraph.research.evaluation.formatting import p_value, signed, unsigned
from locigraph.research.evaluation.question_scores import compare_again

RESULTS = Path(__file__).parent.parent / "docs" / "results"
_CATEGORIES = ("multi-hop", "temporal", "open-domain", "single-hop")
_RANKED = ("recall@10", "ndcg@10")
_SHOWN = ("recall@10", "nDCG@10")  # the same in headings
_CONTEXTS = ("recall@500tokens", "recall@1000tokens", "recall@4000tokens")
_TESTS = ("recall@10 [95%] (p by Holm)", "nDCG@10 [95%] (p by Holm)")
_GRAPHS = ("recorded", "rules")
#: What the shipped checkpoint has not learnt from: title, record, and name in it.
_UNSEEN = (
    ("LoCoMo, recorded", "transfer-published", "locomo-recorded"),
    ("LoCoMo, rules", "transfer-published", "locomo-rules"),
    ("MSC", "transfer-msc", "msc"),
    ("LongMemEval", "transfer-longmemeval", "longmemeval-52"),
    ("RealMem", "transfer-realmem", "realmem"),
    ("projects", "transfer-projects", "projects"),
)
#: Rows of the table of differences: title, record, and the corpus of a cell where the record is a matrix.
_TESTED = (
    ("LoCoMo, recorded, trained in folds", "locomo-recorded-five", None),
    ("LoCoMo, rules, trained in folds", "locomo-rules-five", None),
    ("LoCoMo, recorded, zero-shot", "locomo-recorded-zero", None),
    ("LoCoMo, rules, zero-shot", "locomo-rules-zero", None),
    ("MSC", "transfer-msc", "msc"),
    ("RealMem", "transfer-realmem", "realmem"),
    ("projects", "transfer-projects", "projects"),
)
_PUBLISHED = {"gaama": "GAAMA", "assomem": "AssoMem", "magma": "MAGMA", "tempr": "TEMPR", "hipporag": "HippoRAG 2"}
_KINDS_OF_TALK = (
    ("multi-session", "several sessions"), ("temporal-reasoning", "time"), ("knowledge-update", "knowledge update"),
    ("single-session-assistant", "one session: assistant"), ("single-session-user", "one session: user"),
    ("single-session-preference", "one session: preference"),
)  # fmt: skip


def locomo() -> str:
    """All strategies that were evaluated on both graphs of LoCoMo, by descending recall@10 on recorded extractions."""
    recorded, rules = (_evaluated(graph) for graph in _GRAPHS)
    rows = []
    for name, entry in _by_recall(recorded):
        both = ((_with_interval(each), _share(each["overall"], "ndcg@10")) for each in (entry, rules[name]))
        rows.append([name, *(text for pair in both for text in pair)])
    head = (f"{graph}: {shown}" for graph in _GRAPHS for shown in ("recall@10 [95%]", "nDCG@10"))
    return _table(("strategy", *head), rows)


def categories(*names: str) -> str:
    """recall@10 of some strategies by category of LoCoMo, on recorded extractions and on the graph by rules."""
    found = [_evaluated(graph) for graph in _GRAPHS]
    rows = [
        [name, *map(" / ".join, zip(*(_of_categories(each[name]) for each in found), strict=True))] for name in names
    ]
    return _table(("recall@10, recorded / rules", *_CATEGORIES), rows)


def tested(run: str, *others: str) -> str:
    """v2 minus all or some of the strategies that it was compared with on both graphs of LoCoMo, in a run.

    Args:
        run: ``five`` or ``zero``.
        others: Names of the other strategies; none for all. Holm's correction is over all in any case.
    """
    recorded, rules = (_compared(_record(f"locomo-{graph}-{run}")["comparisons"]) for graph in _GRAPHS)
    rows = [[other, *_tests(recorded[other]), *_tests(rules[other])] for other in others or recorded]
    name = "v2" if run == "five" else "v2-zero"
    return _table((f"{name} minus", *(f"{graph}: {shown}" for graph in _GRAPHS for shown in _TESTS)), rows)


def encoders() -> str:
    """The shipped checkpoint minus its ablation ``mixing``, computed again from the scores of both."""
    rows = []
    for title, file, graph in _UNSEEN:
        both = [RESULTS / f"{file}{mixing}--{graph}.scores.jsonl.gz" for mixing in ("", "-mixing")]
        each = _compared(compare_again(both[0], [("v2-zero", "v2-zero@2")], also=both[1:], metrics=_RANKED, seed=0))
        found = [each["v2-zero@2"][metric] for metric in _RANKED]
        rows.append([title, *(f"{_with_bounds(test)} (p {p_value(test['p'])})" for test in found)])
    return _table(("tested on", *_SHOWN), rows)


def details(*names: str) -> str:
    """Scores of each seed, and of some strategies against corrected evidence."""
    lines = []
    for graph, title in zip(_GRAPHS, ("recorded extractions", "the graph by rules"), strict=True):
        record = _record(f"locomo-{graph}-five")
        by_seed = record["strategies"]["v2"]["by_seed"]
        seeds = ", ".join(_pair(each) for _, each in sorted(by_seed.items()))
        scores = ", ".join(f"{name} {_pair(record['second_gold']['strategies'][name]['overall'])}" for name in names)
        lines.append(f"On {title}: v2 by seed {seeds}; against the corrected gold {scores}.")
    return "\n\n".join(lines)


def times(file: str, *names: str) -> str:
    """Search times of some strategies of an evaluation in milliseconds."""
    rows = []
    for name in names:
        taken = _record(file)["strategies"][name]["latency_ms"]
        rows.append([name, f"{taken['p50']:.1f} / {taken['p95']:.1f}"])
    return _table(("strategy", "search p50 / p95, ms"), rows)


def matrix(file: str) -> str:
    """v2-zero, trained on one corpus and tested on another, and its difference from the fusion."""
    cells = {(each["trained"], each["tested"]): each for each in _record(file)["cells"]}
    graphs = list(dict.fromkeys(graph for _, graph in cells))
    rows = []
    for trained in dict.fromkeys(each for each, _ in cells):
        row = [trained]
        for graph in graphs:
            cell = cells.get((trained, graph))
            if cell is None:
                row.append("")
                continue
            test = _compared(cell["comparisons"])["fusion-zero"]["recall@10"]
            means = cell["means"]["v2-zero"]
            if cell.get("left_out"):  # of the questions that the difference is about
                means = means_of(unlearnt(f"{file}/{trained}--{graph}"), "v2-zero")
            row.append(f"{_share(means, 'recall@10')} {_difference(test['delta'])} (p {p_value(test['p'])})")
        rows.append(row)
    learning_nothing = {graph: cell["means"]["v1-adapted"] for (_, graph), cell in cells.items()}
    rows.append(["none: `v1-adapted`", *(_share(learning_nothing[graph], "recall@10") for graph in graphs)])
    return _table(("trained on", *graphs), rows)


def unseen() -> str:
    """Strategies on corpora unknown to the checkpoint: first those with v2's text encoder, each group best first."""
    shipped, mixing = (
        {title: _unseen_means(file, graph, trained) for title, file, graph in _UNSEEN}
        for trained in ("shipped", "mixing")
    )
    order = shipped["MSC"]
    others = sorted(
        dict.fromkeys(name for means in shipped.values() for name in means if name not in ("v2-zero", "fusion-zero")),
        key=lambda name: (not name.endswith("-adapted"), -order[name]["recall@10"] if name in order else 0.0),
    )
    rows = [
        ["v2-zero", *(_pair(each["v2-zero"]) for each in shipped.values())],
        ["v2-zero, checkpoint `mixing`", *(_pair(each["v2-zero"]) for each in mixing.values())],
        *(
            [name, *(_pair(each[name]) if name in each else "" for each in shipped.values())]
            for name in ("fusion-zero", *others)
        ),
    ]
    return _table(("strategy", *shipped), rows)


def against_unseen(metric: str, *names: str) -> str:
    """The shipped checkpoint minus some strategies on corpora unknown to it, corrected over all strategies there."""
    found = {title: _compared(_cell(file, graph, "shipped")["comparisons"]) for title, file, graph in _UNSEEN}
    rows = []
    for name in names:
        tests = (each[name][metric] for each in found.values())
        rows.append([name, *(f"{_difference(test['delta'])} (p {p_value(test['p_holm'])})" for test in tests)])
    return _table((f"{dict(zip(_RANKED, _SHOWN, strict=True))[metric]}: v2-zero minus", *found), rows)


def unseen_contexts(*names: str) -> str:
    """Strategies in contexts of equal length, on corpora unknown to the checkpoint."""
    means = {title: _unseen_means(file, graph) for title, file, graph in _UNSEEN}
    scored = {title: each for title, each in means.items() if _CONTEXTS[0] in each[names[0]]}
    rows = [
        [name, *(" / ".join(unsigned(means[name][key]) for key in _CONTEXTS) for means in scored.values())]
        for name in names
    ]
    return _table(("strategy", *scored), rows)


def by_kind(file: str, *names: str) -> str:
    """Strategies, each given as ``name=title``, on the questions of LongMemEval that are not left out, by kind."""
    scored = unlearnt(file)
    parts = [
        ("all {}", scored),
        *((f"{title} ({{}})", [each for each in scored if each["category"] == kind]) for kind, title in _KINDS_OF_TALK),
    ]
    rows = [
        [title.format(len(part)), *(_pair(means_of(part, each.partition("=")[0])) for each in names)]
        for title, part in parts
    ]
    return _table(("questions", *(each.partition("=")[2] for each in names)), rows)


def long_talk(*names: str) -> str:
    """Strategies on the bundled corpus `projects`: with an assistant, between people, and by category of question."""
    scored = _questions("transfer-projects--projects")
    with_assistant = {
        conversation.space
        for conversation in load_corpus("jsonl", "projects").conversations
        if {turn.speaker for turn in conversation.turns} == {"User", "Assistant"}
    }
    parts = {
        "with an assistant": [each for each in scored if each["space"] in with_assistant],
        "between people": [each for each in scored if each["space"] not in with_assistant],
    }
    for each in scored:
        parts.setdefault(each["category"], []).append(each)
    return _by_part("questions", parts, names)


def languages(file: str, *names: str) -> str:
    """Strategies on the corpus in six languages, by language: the first letters of a space."""
    scored = _questions(file)
    by_language: dict[str, list[dict[str, Any]]] = {}
    for each in scored:
        by_language.setdefault(LANGUAGES[each["space"][:2]].english_name.title(), []).append(each)
    return _by_part("language (questions)", {**by_language, "all": scored}, names)


def confidence(file: str) -> str:
    """How well confidence tells questions with an answer from others, on corpora that it was not fitted on."""
    kinds = ("unanswerable", "evidence removed", "other speaker", "other conversation")
    rows = [
        [
            name,
            *(unsigned(tested["auroc"][kind]) if kind in tested["auroc"] else "" for kind in kinds),
            *(unsigned(tested[what]) for what in ("auroc of all kinds", "ece", "auroc of hits", "ece of hits")),
        ]
        for name, tested in _record(file)["tested"].items()
    ]
    return _table(("tested on", *kinds, "last three", "ECE", "hits: AUROC", "hits: ECE"), rows)


def ablation(file: str) -> str:
    """The full model, and then variants with one change each, by ascending recall@10."""
    record = _record(file)
    tests = {each["a"]: each for each in record["comparisons"] if each["metric"] == "recall@10"}
    rows = []
    scored = record["strategies"].items()
    for name, entry in sorted(scored, key=lambda each: (each[0] != "full", each[1]["overall"]["recall@10"])):
        test = f"{_with_bounds(tests[name])} (p {p_value(tests[name]['p_holm'])})" if name in tests else ""
        rows.append([name, _share(entry["overall"], "recall@10"), _share(entry["overall"], "ndcg@10"), test])
    return _table(("variant", *_SHOWN, "difference in recall@10 [95%] (p by Holm)"), rows)


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


_RERANKED = {
    "reranking-locomo-rules": "LoCoMo-10, graph by rules",
    "reranking-projects": "projects, the 20 conversations that nothing has learnt from",
}


def reranking(version: str | None = None) -> str:
    """What the shipped reranker adds to strategies of ``locigraph recall``; of one version, if it is given."""
    rows = []
    for file, title in _RERANKED.items():
        if not (RESULTS / f"{file}.json").is_file():
            continue
        record = _record(file)
        if version not in (None, record["reranker"]):
            continue
        for strategy, row in record["strategies"].items():
            scores = [
                f"{unsigned(row[metric]['before'])} to {unsigned(row[metric]['after'])} (p {p_value(row[metric]['p'])})"
                for metric in _RANKED
            ]
            rows.append([f"{title}, {record['questions']:,} questions", strategy, *scores, f"{row['cpu_ms']:.0f}"])
    return _table(["", "strategy", "recall@10", "nDCG@10", "CPU ms"], rows) if rows else "No record of this reranker."


def overview() -> str:
    """The shipped checkpoint on all corpora that it does not know, beside what has the same text encoder."""
    published = _record("transfer-published")["cells"]
    cells = {each["tested"]: each for each in published if each["trained"] == "shipped"}
    talk = [
        ("two people (LoCoMo, {:,} questions), graph from published extractions", _counted(cells["locomo-recorded"])),
        ("the same, graph by our rules", _counted(cells["locomo-rules"])),
        ("chats between people (MSC, {:,} facts as questions)", _counted(_cell("transfer-msc", "msc", "shipped"))),
        (
            "long histories with an assistant (LongMemEval, {:,})",
            _counted(_cell("transfer-longmemeval", "longmemeval-52", "shipped")),
        ),
        ("requests to an assistant (RealMem, {:,})", _counted(_cell("transfer-realmem", "realmem", "shipped"))),
        (
            "long talk, half of it with an assistant (`projects`, {:,})",
            _counted(_cell("transfer-projects", "projects", "shipped")),
        ),
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
        record = _cell(file, corpus, "shipped") if corpus else _record(file)
        compared = _compared(each for each in record["comparisons"] if each["a"] in ("v2", "v2-zero"))
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
        locomo, categories, tested, encoders, details, times, matrix, unseen, against_unseen,
        unseen_contexts, by_kind, long_talk, languages, confidence, ablation, pretraining, reranking, differences,
        overview,
    )
}  # fmt: skip


def _evaluated(graph: str) -> dict[str, Any]:
    """Results of all strategies on a graph of LoCoMo, in folds and zero-shot."""
    return {
        name: entry
        for run in ("zero", "five")
        for name, entry in _record(f"locomo-{graph}-{run}")["strategies"].items()
    }


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


def _cell(file: str, tested_on: str, trained: str) -> Mapping[str, Any]:
    """The cell of a matrix."""
    cell: Mapping[str, Any]
    (cell,) = (each for each in _record(file)["cells"] if (each["trained"], each["tested"]) == (trained, tested_on))
    return cell


def _unseen_means(file: str, graph: str, trained: str = "shipped") -> Mapping[str, Mapping[str, float]]:
    """Mean scores of each strategy over the questions of a graph whose evidence is not in the training data."""
    record = f"{file}{'-mixing' * (trained == 'mixing')}"
    cell = _cell(record, graph, trained)
    if not cell["left_out"]:
        means: Mapping[str, Mapping[str, float]] = cell["means"]
        return means
    kept = unlearnt(f"{record}--{graph}")
    return {name: means_of(kept, name) for name in cell["means"]}


def _by_part(title: str, parts: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """Mean scores of strategies on parts of the questions, each part with its number of questions."""
    rows = [[f"{part} ({len(of)})", *(_pair(means_of(of, name)) for name in names)] for part, of in parts.items()]
    return _table((title, *names), rows)


def _by_recall(entries: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(entries.items(), key=lambda each: -each[1]["overall"]["recall@10"])


def _compared(tested: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Comparisons by baseline and metric."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for each in tested:
        found.setdefault(each["b"], {})[each["metric"]] = each
    return found


def _of_categories(entry: Mapping[str, Any]) -> list[str]:
    return [_share(entry["by_category"][name], "recall@10") for name in _CATEGORIES]


def _share(scores: Mapping[str, float], metric: str) -> str:
    return unsigned(scores[metric])


def _pair(scores: Mapping[str, float], between: str = " / ") -> str:
    return f"{unsigned(scores['recall@10'])}{between}{unsigned(scores['ndcg@10'])}"


def _with_interval(entry: Mapping[str, Any]) -> str:
    low, high = entry["intervals"]["recall@10"]
    return f"{_share(entry['overall'], 'recall@10')} [{unsigned(low)}, {unsigned(high)}]"


def _tests(by_metric: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = [by_metric[metric] for metric in _RANKED]
    return [f"{_with_bounds(each)} (p {p_value(each['p_holm'])})" for each in found]


def _with_bounds(each: Mapping[str, Any]) -> str:
    return f"{_difference(each['delta'])} [{_difference(each['ci_low'])}, {_difference(each['ci_high'])}]"


def _difference(value: float) -> str:
    text = signed(value)
    return ".000" if text == "0" else text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"| {cell} " if cell else "| " for cell in cells) + "|" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])
