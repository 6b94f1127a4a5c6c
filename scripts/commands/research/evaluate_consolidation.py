"""``locigraph evaluate-consolidation``: compare the facts that a language model extracts with known ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locigraph.assembly.settings import CorpusSettings, EncoderSettings, LLMSettings

if TYPE_CHECKING:
    from locigraph.kg.corpora import Conversation, Corpus
    from locigraph.kg.store import Store
    from locigraph.research.experiments.quality import Quality, Statement
    from locigraph.retrieval.text.text_encoder import CachedTextEncoder

_DECIMAL = ("covered", "repeated", "dates_right", "seconds_per_turn")
_COLUMNS = (
    "covered", "repeated", "dates_right", "made", "failed", "invalid", "repaired", "given_up",
    "calls", "tokens", "cost",
)  # fmt: skip


def evaluate_consolidation(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    llm: LLMSettings = LLMSettings(cassette=""),
    threshold: float = 0.7,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    dry_run: bool = False,
    encoder: EncoderSettings = EncoderSettings(),
    output: str = "runs/consolidation",
) -> None:
    """Build graphs with a language model from a corpus with recorded facts, and score them against these facts.

    Prints a table and writes consolidation.json. The rows ``rules`` and ``recorded`` are for reference. Can be
    interrupted and run again. Run again with other models, endpoints, parameters or prompts, it keeps the rows of those
    before, so that one table compares them.

    Args:
        corpus: Conversations with recorded facts (corpus.extractions); choose few, since every turn costs requests.
        llm: The language models; without a model, only the rows for reference are computed. Without a cassette, the
            replies are recorded in a file beside the graph.
        threshold: Smallest cosine at which a statement covers a recorded one of the same turn.
        max_tokens: Limit on the tokens that the models read and write; at the limit the command stops with exit code 3,
            and it continues when it is run again with a higher limit.
        max_cost: The same limit for the cost, in the currency of the prices.
        dry_run: Whether to only estimate the requests and their cost, without calling models or writing anything.
        encoder: Text encoder that compares statements.
        output: Folder of the graphs and of the result.
    """
    from locigraph.assembly import defaults, graphs, opening, options
    from locigraph.assembly.language_models import clients_of
    from locigraph.consolidation.ledger import Ledger
    from locigraph.consolidation.protocols import MeteredExtractor
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.store import Store
    from locigraph.research.experiments import extracting_models as models

    options.check_cosine(threshold)
    loaded = opening.read_corpus(corpus)
    _require_recorded(loaded)
    if llm.model and llm.mode == "replay" and not llm.cassette:
        raise LocigraphError("llm.mode is 'replay', but llm.cassette is not set; name the cassette to replay")
    setup = models.setup_of(llm)
    # A graph depends on the text encoder too, by which it finds known nodes.
    files = {
        name: Path(output) / f"{name}-{models.digest([made_by, defaults.model_and_dtype(encoder)])}.sqlite"
        for name, made_by in {
            **dict.fromkeys(models.REFERENCES), "recorded": loaded.extractions, "llm": setup,
        }.items()
    }  # fmt: skip
    llm = replace(llm, cassette=llm.cassette or str(files["llm"].with_suffix(".replies.sqlite")))
    replies = models.RecordedReplies(llm)
    ledger = Ledger(max_tokens=max_tokens, max_cost=max_cost, on_recorded=replies)
    clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost, ledger=ledger)
    if dry_run:
        extractor = graphs.extractor_for("llm", loaded, clients)
        with opening.present_store(str(files["llm"])) as present:
            print(graphs.foreseen(loaded, extractor, present))
        return
    text_encoder = opening.text_encoder(encoder).without_adapter()
    rows: dict[str, dict[str, Any]] = {}
    for name in (*models.REFERENCES, *(["llm"] if llm.model else [])):
        extractor = graphs.extractor_for(name, loaded, clients)
        with Store(files[name]) as graph:
            with models.kept_with(graph, replies):
                failed = graphs.build_graph(loaded, extractor, graph, text_encoder)
            rows[name] = _row(loaded, graph, text_encoder, threshold, failed=sum(map(len, failed.values())))
            if isinstance(extractor, MeteredExtractor):
                rows[name] |= {"setup": setup, **models.usage_of(graph, loaded.conversations)}
    measured = {
        "corpus": loaded.path, "sha256": loaded.sha256, "conversations": [c.space for c in loaded.conversations],
        "turns": sum(len(conversation.turns) for conversation in loaded.conversations), "threshold": threshold,
        "encoder": text_encoder.model_id, "reference": loaded.extractions,
    }  # fmt: skip
    _write(Path(output) / "consolidation.json", measured, rows)


def _write(file: Path, measured: Mapping[str, Any], rows: dict[str, dict[str, Any]]) -> None:
    """Write rows beside those of other models that were measured on the same earlier, and print all of them."""
    import json

    from locigraph.kg.files import replace_file
    from locigraph.research.experiments import extracting_models as models

    of_models = {models.digest(row["setup"]): row for row in _earlier_rows(file, measured)}
    if made := rows.pop("llm", None):
        of_models[models.digest(made["setup"])] = made
    rows |= zip(models.names_of([row["setup"] for row in of_models.values()]), of_models.values(), strict=True)
    replace_file(file, json.dumps({**measured, "rows": rows}, indent=1) + "\n")
    print(_table(rows, measured["turns"], measured["threshold"]))
    print(f"written to {file}")


def _require_recorded(corpus: Corpus) -> None:
    from locigraph.kg.errors import LocigraphError

    lacking = [conversation.space for conversation in corpus.conversations if conversation.extractions.is_empty]
    if lacking:
        raise LocigraphError(
            f"conversation {lacking[0]!r} has no recorded facts to compare with; name a file with "
            "corpus.extractions, or choose other conversations with corpus.conversations"
        )


def _row(corpus: Corpus, graph: Store, encoder: CachedTextEncoder, threshold: float, *, failed: int) -> dict[str, Any]:
    """What was measured of a graph, of which so many turns failed."""
    from locigraph.research.experiments import extracting_models as models

    found = _judged(corpus, graph, encoder, threshold)
    row: dict[str, Any] = {"seconds_per_turn": models.seconds_per_turn(graph), "failed": failed}
    return row | {**found.shares(), "counts": asdict(found), "made": found.made}


def _earlier_rows(file: Path, measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The models' rows of a result of the same measurement; none if the file is absent, unreadable or of another one.

    Rows of earlier versions do not say by which endpoint and parameters they were made, and are left out.
    """
    import json

    try:
        found = json.loads(file.read_text())
        rows = [row for row in found.pop("rows").values() if "setup" in row]
    except (OSError, ValueError, AttributeError, KeyError):
        return []
    if rows and found != measured:
        changed = [name for name in measured if found.get(name) != measured[name]]
        print(f"{file}: its rows had another {' and '.join(changed)}, and are left out; run again with their models")
        return []
    return rows


def _judged(corpus: Corpus, graph: Store, encoder: CachedTextEncoder, threshold: float) -> Quality:
    from locigraph.kg.language.dated_texts import undated
    from locigraph.research.experiments.quality import Quality, quality

    total = Quality()
    for conversation in corpus.conversations:
        made, recorded = _made(graph, conversation), _recorded(conversation)
        vectors = [encoder.encode([undated(statement.text) for statement in each]) for each in (made, recorded)]
        total += quality(made, vectors[0], recorded, vectors[1], threshold=threshold)
    return total


def _made(graph: Store, conversation: Conversation) -> list[Statement]:
    from locigraph.kg.schema import dated_types, plannable_types
    from locigraph.research.experiments.quality import Statement

    nodes = graph.nodes(conversation.space, types=plannable_types())
    return [
        Statement(
            node.description,
            node.provenance,
            (node.valid_from.date(), node.valid_to.date())
            if node.type in dated_types() and node.valid_from and node.valid_to
            else None,
        )
        for node in nodes
    ]


def _recorded(conversation: Conversation) -> list[Statement]:
    from locigraph.research.experiments.quality import Statement

    given = conversation.extractions
    facts = [Statement(fact.text, fact.turn_ids) for fact in given.facts]
    return facts + [Statement(event.text, event.turn_ids, event.days) for event in given.events]


def _table(rows: dict[str, dict[str, Any]], turns: int, threshold: float) -> str:
    from locigraph.kg.counts import counted

    def shown(name: str, value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.3f}" if name in _DECIMAL else f"{value:,.4g}"

    width = max(len(name) for name in rows)
    lines = [f"{counted(turns, 'turn')}; covered: a statement of the same turn has a cosine of at least {threshold}"]
    lines.append(" " * width + "".join(f"{column:>12}" for column in _COLUMNS) + f"{'s/turn':>12}")
    for name, row in rows.items():
        cells = [shown(column, row.get(column)) for column in (*_COLUMNS, "seconds_per_turn")]
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)
