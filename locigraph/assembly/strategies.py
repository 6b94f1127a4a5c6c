"""Retrieval strategies of ``locigraph recall``: one table, from which commands, their help and checks derive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from locigraph.assembly.search_parts import SearchParts
from locigraph.kg.errors import LocigraphError, abridged, shortened
from locigraph.kg.registry import Table, UnknownNameError

if TYPE_CHECKING:
    from locigraph.retrieval.protocols import Retriever

#: Entry points of installed packages, each a sequence of further rows.
_ADDED = "locigraph.strategies"


@dataclass(frozen=True)
class Strategy:
    """A row of the table.

    Attributes:
        name: The name by which users choose it.
        description: One sentence for help texts and reports.
        make: Builds the retriever over an indexed graph; None for a strategy that can only be evaluated.
        needs_index: Whether it searches the vector index.
        searches_graph_embeddings: Whether that search is one of graph embeddings, as v2's is, for which the embeddings
            of changed turns are brought up to date first.
        uses_adapter: Whether it uses the text encoder with its adapter; the others use the text encoder without.
        needs_adapter: Whether it is refused if there is no adapter.
        has_adapted: Whether the table also holds it with the adapter, as ``<name>-adapted``.
    """

    name: str
    description: str
    make: Callable[[SearchParts, Strategy], Retriever] | None = None
    needs_index: bool = False
    searches_graph_embeddings: bool = False
    uses_adapter: bool = False
    needs_adapter: bool = False
    has_adapted: bool = False


StrategyT = TypeVar("StrategyT", bound=Strategy)


def hybrid(parts: SearchParts, strategy: Strategy, **options: Any) -> Retriever:
    """v1's retriever, with other options of ``HybridRetriever``."""
    from locigraph.retrieval.strategies.hybrid import HybridRetriever

    if parts.queries is not None:
        options["queries"] = parts.queries
    return HybridRetriever(
        parts.indexes.words,
        parts.vectors(strategy),
        parts.encoder_of(strategy),
        name=strategy.name,
        pool=parts.opened.enter_context(ThreadPoolExecutor(1, thread_name_prefix="ann")),
        **options,
    )


def _dense(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.strategies.single_signal import DenseRetriever

    return DenseRetriever(parts.vectors(strategy), parts.encoder_of(strategy), parts.texts, name=strategy.name)


def _bm25(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.strategies.single_signal import Bm25Retriever

    return Bm25Retriever(parts.indexes.words_of_turns)


def _fusion_zero(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.strategies.weighted_sum import FusionRetriever
    from locigraph.training.fusion import fusion_of

    fusion = fusion_of(parts.checkpoint())
    return FusionRetriever(parts.snapshots(strategy), parts.encoder_of(strategy), fusion=fusion, name=strategy.name)


def _v2(parts: SearchParts, strategy: Strategy) -> Retriever:
    return parts.graph_embeddings()


def with_adapted(rows: Sequence[StrategyT]) -> Iterator[StrategyT]:
    """Each row, followed by its variant with the text encoder's adapter if it has one."""
    for row in rows:
        yield row
        if row.has_adapted:
            yield replace(
                row,
                name=f"{row.name}-adapted",
                description=f"{row.name} with the adapted text encoder",
                needs_index=False,  # vectors of adapters are searched in memory, exactly
                uses_adapter=True,
                needs_adapter=True,
            )


STRATEGIES: Table[Strategy] = Table(
    "strategy",
    with_adapted(
        [
            Strategy(
                "v1",
                "BM25 and ANN over node descriptions, fused by RRF with the constant 2, chosen on the corpus threads",
                hybrid,
                needs_index=True,
                has_adapted=True,
            ),
            Strategy(
                "v2",
                "one ANN search over embeddings of the Heterogeneous Graph Transformer, trained inside folds",
                _v2,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Strategy(
                "fusion-zero",
                "the linear fusion zero-shot: weights learnt from the same questions as the checkpoint",
                _fusion_zero,
                uses_adapter=True,
            ),
            Strategy("dense", "cosine of question and turn", _dense, needs_index=True, has_adapted=True),
            Strategy("bm25", "BM25 of question and turn", _bm25),
        ]
    ),
)


@cache
def _of_other_packages() -> Table[Strategy]:
    """Rows that installed packages add, among them the published memories of ``locigraph.research``."""
    added: Table[Strategy] = Table("strategy")
    for entry in entry_points(group=_ADDED):
        try:
            for row in entry.load():
                added.add(row)
            Table("strategy", [*STRATEGIES.values(), *added.values()])  # whose names must differ
        except Exception as error:  # what a package may raise while it is imported is not known
            raise LocigraphError(
                f"the strategies of {entry.value!r} cannot be loaded ({abridged(error)}); repair or uninstall the "
                "package that has this entry point"
            ) from error
    return added


def recalled() -> Table[Strategy]:
    """The strategies that ``locigraph recall`` offers: those above, and those that installed packages add."""
    return Table(
        "strategy", [row for row in (*STRATEGIES.values(), *_of_other_packages().values()) if row.make is not None]
    )


def strategy_named(name: str) -> Strategy:
    """The row of a name, for a recall; other packages are looked at only if it is none of ours.

    Raises:
        UnknownNameError: If there is no such strategy.
        LocigraphError: If it can only be evaluated, or a package that adds strategies cannot be loaded.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    added = _of_other_packages()
    if not added:
        raise LocigraphError(
            f"strategy {shortened(name)} is not known; known: {', '.join(STRATEGIES)}; others are found if the "
            "package is installed (pip install -e . in a checkout)"
        )
    if name not in added:
        raise UnknownNameError("strategy", name, recalled())
    row = added[name]
    if row.make is None:
        ending = (
            "in recall, use v2 with --checkpoint"
            if row.searches_graph_embeddings
            else "it is trained there, inside folds"
        )
        raise LocigraphError(f"strategy {name!r} is only for locigraph evaluate; {ending}")
    return row


def require_adapter(row: Strategy, adapter: str | None) -> None:
    """Raise LocigraphError if a strategy needs an adapter and there is none."""
    if adapter is None and row.needs_adapter:
        raise LocigraphError(f"strategy {row.name!r} needs an adapter; name one with --encoder.adapter")


def made(parts: SearchParts, row: Strategy) -> Retriever:
    """The retriever of a strategy that is built over an indexed graph."""
    assert row.make is not None, row.name
    return row.make(parts, row)
