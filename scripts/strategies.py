"""Retrieval strategies: one table, from which commands, their help, checks, comparisons and reports derive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from locigraph.kg.errors import LocigraphError
from locigraph.kg.joint import read_apart, side_by_side
from locigraph.kg.registry import Table
from locigraph.kg.types import NodeId, SpaceId
from locigraph.scripts.options import names

if TYPE_CHECKING:
    from locigraph.kg.snapshot import Snapshot
    from locigraph.kg.store import Store
    from locigraph.retrieval.evaluation import StrategyRun
    from locigraph.retrieval.index.descriptions import DescriptionIndexer
    from locigraph.retrieval.index.documents import LexicalIndex
    from locigraph.retrieval.index.milvus import MilvusIndex
    from locigraph.retrieval.protocols import NodeTexts, Retriever, VectorSearch
    from locigraph.retrieval.query_generator import QueryGenerator
    from locigraph.retrieval.strategies.memory_graph import SnapshotLoader
    from locigraph.retrieval.text.text_encoder import CachedTextEncoder
    from locigraph.scripts.evaluation import Asker, FoldTask
    from locigraph.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class Strategy:
    """A row of the table.

    Attributes:
        name: The name by which users choose it.
        description: One sentence for help texts and reports.
        make: Builds the retriever over an indexed graph; None for a strategy that learns or takes a checkpoint.
        learn: For a strategy that learns inside the folds of an evaluation: learns in one fold and asks its questions.
        transfer: For a strategy that takes what a given checkpoint has learnt: asks all questions.
        changes: For a graph network that is trained inside folds, what it changes in the settings that are given.
        is_random: Whether what it learns depends on the random seed.
        needs_index: Whether it searches the vector index.
        uses_adapter: Whether it takes the text encoder's adapter; the others take the text encoder as it is.
        needs_adapter: Whether it is refused without one.
        is_baseline: Whether claimants are tested against it when the caller names no baselines.
        in_recall: Whether ``locigraph recall`` offers it.
    """

    name: str
    description: str
    make: Callable[[SearchParts, Strategy], Retriever] | None = None
    learn: Callable[[FoldTask, Strategy], StrategyRun] | None = None
    transfer: Callable[[Asker, Checkpoint, Strategy], StrategyRun] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    is_random: bool = False
    needs_index: bool = False
    uses_adapter: bool = False
    needs_adapter: bool = False
    is_baseline: bool = False
    in_recall: bool = True

    @property
    def is_trained(self) -> bool:
        """Whether it learns inside the folds of an evaluation."""
        return self.learn is not None

    @property
    def needs_checkpoint(self) -> bool:
        """Whether it takes what a given checkpoint has learnt."""
        return self.transfer is not None

    @property
    def is_claimant(self) -> bool:
        """Whether it is what a comparison is about: graph embeddings."""
        return (self.is_trained or self.needs_checkpoint) and not self.is_baseline


class SearchParts:
    """What strategies are built of: the graph, its indexes and the text encoder. Each part is made when first used.

    Args:
        store: The graph.
        encoder: Text encoder, with its adapter if it has one.
        spaces: The spaces that will be asked.
        index: Vector index; None if no strategy needs one.
        opened: Closes what the strategies hold.
        queries: Makes the queries of v1; None for its own rules.
        is_joint: Whether the spaces are searched together, whatever space a strategy is asked for, as if their graphs
            were one (see ``kg.joint``): ranks, word counts and scaled scores are those of all of them.
    """

    def __init__(
        self,
        store: Store,
        encoder: CachedTextEncoder,
        spaces: Sequence[SpaceId],
        index: MilvusIndex | None,
        opened: ExitStack,
        queries: QueryGenerator | None = None,
        *,
        is_joint: bool = False,
    ) -> None:
        self.store, self.encoder, self.spaces, self.index, self.opened = store, encoder, spaces, index, opened
        self.queries = queries
        self.is_joint = is_joint

    def encoder_of(self, strategy: Strategy) -> CachedTextEncoder:
        """The text encoder that a strategy uses."""
        return self.encoder if strategy.uses_adapter else self.encoder.without_adapter()

    def snapshots(self, strategy: Strategy) -> SnapshotLoader:
        """Reads spaces with the embeddings of a strategy's text encoder."""
        model = self.encoder_of(strategy).model_id
        return lambda space, as_of: self.snapshot(space, as_of, model)

    def snapshot(self, space: SpaceId, as_of: datetime | None, model: str | None = None) -> Snapshot:
        """The graph of a space, or of all of them side by side where they are searched together."""
        read = self.spaces if self.is_joint else [space]
        found = [self.store.snapshot(each, as_of=as_of, embedding_model=model) for each in read]
        return side_by_side(found, space) if self.is_joint else found[0]

    @property
    def texts(self) -> NodeTexts:
        """Reads the texts of the hits of a search."""
        return texts_of(self.store, is_joint=self.is_joint)

    @cached_property
    def words(self) -> LexicalIndex:
        """BM25 over all searchable nodes."""
        from locigraph.retrieval.index.documents import LexicalIndex

        return LexicalIndex(self.snapshot)

    @cached_property
    def words_of_turns(self) -> LexicalIndex:
        """BM25 over turns alone: what is common in facts must not weigh on the words of turns."""
        from locigraph.retrieval.index.documents import LexicalIndex

        return LexicalIndex(self.snapshot, types=("episode",))

    def vectors(self, strategy: Strategy) -> VectorSearch:
        """Description embeddings: those of the text encoder as it is are indexed, those of an adapter are not."""
        from locigraph.retrieval.index.joint_vectors import JointVectors

        found = self._adapted if strategy.uses_adapter else self._indexed
        return JointVectors(found, self.spaces) if self.is_joint else found

    @cached_property
    def _indexed(self) -> VectorSearch:
        assert self.index is not None
        indexer = indexer_of(self.store, self.index, self.encoder)
        indexer.require_complete(self.spaces)
        return indexer.collection()

    @cached_property
    def _adapted(self) -> VectorSearch:
        from locigraph.retrieval.index.memory_vectors import MemoryVectors

        vectors = MemoryVectors()
        for space in self.spaces:
            vectors.add_snapshot(self.store.snapshot(space, embedding_model=self.encoder.model_id))
        return vectors


def _hybrid(parts: SearchParts, strategy: Strategy, **options: Any) -> Retriever:
    from locigraph.retrieval.strategies.hybrid import HybridRetriever

    if parts.queries is not None:
        options["queries"] = parts.queries
    return HybridRetriever(
        parts.words,
        parts.vectors(strategy),
        parts.encoder_of(strategy),
        name=strategy.name,
        pool=parts.opened.enter_context(ThreadPoolExecutor(1, thread_name_prefix="ann")),
        **options,
    )


def _hybrid_usual(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.rank_fusion import USUAL_RRF_K

    return _hybrid(parts, strategy, rrf_k=USUAL_RRF_K)


def _hybrid_in_time(parts: SearchParts, strategy: Strategy) -> Retriever:
    return _hybrid(parts, strategy, uses_windows=True)


def _over_snapshots(module: str, name: str) -> Callable[[SearchParts, Strategy], Retriever]:
    """Builds a strategy that reads snapshots with embeddings; its class is imported when it is first built."""

    def make(parts: SearchParts, strategy: Strategy) -> Retriever:
        made: Retriever = getattr(import_module(f"locigraph.retrieval.strategies.{module}"), name)(
            parts.snapshots(strategy), parts.encoder_of(strategy), name=strategy.name
        )
        return made

    return make


def _dense(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.strategies.single_signal import DenseRetriever

    return DenseRetriever(parts.vectors(strategy), parts.encoder_of(strategy), parts.texts, name=strategy.name)


def _bm25(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.strategies.single_signal import Bm25Retriever

    return Bm25Retriever(parts.words_of_turns)


def _train(task: FoldTask, strategy: Strategy) -> StrategyRun:
    return task.asker.checkpoint(task.trained(strategy), task.questions, name=strategy.name)


def _learn_fusion(task: FoldTask, strategy: Strategy) -> StrategyRun:
    from locigraph.training.fusion import learn_weights

    return task.asker.fusion(learn_weights(task.signals()), task.questions, name=strategy.name)


def _learn_trees(task: FoldTask, strategy: Strategy) -> StrategyRun:
    from locigraph.training.fusion import learn_trees, learn_weights

    examples = task.signals()
    trees = learn_trees(examples, learn_weights(examples), seed=task.seed)
    return task.asker.fusion(trees, task.questions, name=strategy.name)


def _learn_assomem(task: FoldTask, strategy: Strategy) -> StrategyRun:
    from locigraph.retrieval.strategies.assomem import AssoMemRetriever
    from locigraph.retrieval.strategies.magma import intent_of
    from locigraph.training.assomem_weights import WeightsOfQuestion, learn_weights

    def make(weights: WeightsOfQuestion) -> AssoMemRetriever:
        return AssoMemRetriever(task.parts.snapshots(strategy), task.parts.encoder_of(strategy), weights=weights)

    weights = learn_weights(make, task.training_questions, task.validation_questions, intent_of)
    return task.asker.retriever(make(weights), task.questions, name=strategy.name)


def _transfer(asker: Asker, checkpoint: Checkpoint, strategy: Strategy) -> StrategyRun:
    return asker.checkpoint(checkpoint, asker.questions, name=strategy.name)


def _transfer_fusion(asker: Asker, checkpoint: Checkpoint, strategy: Strategy) -> StrategyRun:
    from locigraph.training.fusion import fusion_of

    return asker.fusion(fusion_of(checkpoint), asker.questions, name=strategy.name)


_PUBLISHED = ("gaama", "assomem", "assomem-learnt", "magma", "tempr", "hipporag")


def _with_adapted(rows: Sequence[Strategy]) -> Iterator[Strategy]:
    """Each row, and for those with dense signals that matter the same with the text encoder's adapter."""
    for row in rows:
        yield row
        if row.name in ("v1", "v1-time", "sum", "dense", *_PUBLISHED):
            yield replace(
                row,
                name=f"{row.name}-adapted",
                description=f"{row.name} with the adapted text encoder",
                needs_index=False,  # vectors of adapters are searched in memory, exactly
                uses_adapter=True,
                needs_adapter=True,
                is_baseline=row.name in ("v1", "sum") or row.is_trained,
            )


STRATEGIES: Table[Strategy] = Table(
    "strategy",
    _with_adapted(
        [
            Strategy(
                "v1",
                "BM25 and ANN over node descriptions, fused by RRF with the constant 2, chosen on the corpus threads",
                _hybrid,
                needs_index=True,
                is_baseline=True,
            ),
            Strategy(
                "v1-time",
                "v1 that ranks once more, by itself, what falls into the time that the question names",
                _hybrid_in_time,
                needs_index=True,
            ),
            Strategy("v1-k60", "v1 with RRF's usual constant, 60", _hybrid_usual, needs_index=True),
            Strategy(
                "v2",
                "one ANN search over embeddings of the Heterogeneous Graph Transformer, trained inside folds",
                learn=_train,
                is_random=True,
                needs_index=True,
                uses_adapter=True,
            ),
            Strategy(
                "v2-mixing",
                "v2 with relation mixing in the place of attention and without pre-training: its ablation",
                learn=_train,
                changes={"model.encoder": "mixing", "training.pretrain_epochs": 0},
                is_random=True,
                needs_index=True,
                uses_adapter=True,
                in_recall=False,
            ),
            Strategy(
                "v2-zero",
                "v2 zero-shot: a checkpoint that has not seen the corpus, as it is",
                transfer=_transfer,
                needs_index=True,
                uses_adapter=True,
                in_recall=False,
            ),
            Strategy(
                "flat",
                "v2 without the edges of the graph: text, words, speaker and date of the turn alone",
                learn=_train,
                changes={
                    "model.excluded_relations": ["NEXT", "DERIVED_FROM", "HAS_CONCEPT"],
                    "training.pretrain_epochs": 0,
                },
                is_random=True,
                needs_index=True,
                uses_adapter=True,
                in_recall=False,
            ),
            Strategy(
                "fusion",
                "linear fusion, learnt inside folds, of all signals that v2 uses: the same supervision without a graph "
                "network",
                learn=_learn_fusion,
                uses_adapter=True,
                is_baseline=True,
                in_recall=False,
            ),
            Strategy(
                "fusion-zero",
                "the linear fusion zero-shot: weights learnt from the same questions as the checkpoint",
                transfer=_transfer_fusion,
                uses_adapter=True,
                is_baseline=True,
                in_recall=False,
            ),
            Strategy(
                "boosted",
                "boosted trees over the signals of fusion, learnt inside folds",
                learn=_learn_trees,
                is_random=True,
                uses_adapter=True,
                is_baseline=True,
                in_recall=False,
            ),
            Strategy(
                "sum",
                "weighted sum of six min-max signals with equal weights",
                _over_snapshots("weighted_sum", "FusionRetriever"),
                is_baseline=True,
            ),
            Strategy("dense", "cosine of question and turn", _dense, needs_index=True),
            Strategy("bm25", "BM25 of question and turn", _bm25),
            Strategy(
                "gaama",
                "GAAMA: similarity and PageRank over topics, facts and turns",
                _over_snapshots("gaama", "GaamaRetriever"),
            ),
            Strategy(
                "assomem",
                "AssoMem: relevance, importance and time over a graph of clues",
                _over_snapshots("assomem", "AssoMemRetriever"),
            ),
            Strategy(
                "assomem-learnt",
                "AssoMem with weights by conditional mutual information for each type of question, learnt inside folds",
                learn=_learn_assomem,
                is_baseline=True,
                in_recall=False,
            ),
            Strategy(
                "magma",
                "MAGMA: beam search over four graphs, weighed by the intent of the question",
                _over_snapshots("magma", "MagmaRetriever"),
            ),
            Strategy(
                "tempr",
                "TEMPR: meaning, words, spreading activation and time fused by RRF with the constant 60",
                _over_snapshots("tempr", "TemprRetriever"),
            ),
            Strategy(
                "hipporag",
                "HippoRAG 2: PageRank over entities and turns from the best facts",
                _over_snapshots("hipporag", "HippoRagRetriever"),
            ),
        ]
    ),
)


@contextmanager
def search_parts(
    store: Store,
    encoder: CachedTextEncoder,
    *,
    spaces: Sequence[SpaceId],
    index: MilvusIndex | None = None,
    queries: QueryGenerator | None = None,
    is_joint: bool = False,
) -> Iterator[SearchParts]:
    """What strategies are built of; what they hold is closed at the end. The arguments are those of ``SearchParts``."""
    with ExitStack() as opened:
        yield SearchParts(store, encoder, spaces, index, opened, queries, is_joint=is_joint)


@contextmanager
def built_strategies(
    store: Store,
    encoder: CachedTextEncoder,
    chosen: Sequence[str],
    *,
    spaces: Sequence[SpaceId],
    index: MilvusIndex | None = None,
    queries: QueryGenerator | None = None,
    is_joint: bool = False,
) -> Iterator[dict[str, Retriever]]:
    """Retrievers by name of those chosen strategies that neither learn nor need a checkpoint; see ``search_parts``."""
    with search_parts(store, encoder, spaces=spaces, index=index, queries=queries, is_joint=is_joint) as parts:
        yield made_of(parts, chosen)


def made_of(parts: SearchParts, chosen: Sequence[str]) -> dict[str, Retriever]:
    """Retrievers by name of those chosen strategies that neither learn nor need a checkpoint."""
    rows = [STRATEGIES[name] for name in chosen]
    return {row.name: row.make(parts, row) for row in rows if row.make is not None}


def indexer_of(store: Store, index: MilvusIndex, encoder: CachedTextEncoder) -> DescriptionIndexer:
    """The indexer of descriptions.

    It holds vectors of the text encoder without its adapter: v1 is the same whatever v2 has learnt.
    """
    from locigraph.retrieval.index.descriptions import DescriptionIndexer

    return DescriptionIndexer(store, index, encoder.without_adapter().model_id)


def texts_of(store: Store, *, is_joint: bool = False) -> NodeTexts:
    """Reads the texts of the hits of a search from the store; of a search of several spaces, by their joint names."""

    def read(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        return {node.id: node.description for node in store.nodes(space, ids=node_ids, as_of=as_of)}

    def read_joint(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        return read_apart(node_ids, lambda each, own: read(each, own, as_of))

    return read_joint if is_joint else read


def reranked(model: str | None) -> Callable[[Retriever], Retriever]:
    """Adds a cross-encoder to a strategy, or nothing where none is named."""
    if model is None:
        return lambda retriever: retriever
    from locigraph.retrieval.rerank import CrossEncoderReranker, RerankedRetriever

    reranker = CrossEncoderReranker(model)
    return lambda retriever: RerankedRetriever(retriever, reranker)


def chosen(listed: str, *, checkpoint: str | None, adapter: str | None) -> list[str]:
    """The strategies of a list of names.

    Raises:
        LocigraphError: If one is not known or lacks what it needs, or there is none.
    """
    found = names(listed, STRATEGIES)
    if not found:
        raise LocigraphError(f"strategies is {listed!r}; name at least one of {', '.join(STRATEGIES)}")
    for name in found:
        if STRATEGIES[name].needs_checkpoint and checkpoint is None:
            raise LocigraphError(f"strategy {name!r} needs a checkpoint; name one with --checkpoint")
    require_adapter(found, adapter)
    return found


def require_adapter(strategies: Sequence[str], adapter: str | None) -> None:
    """Refuse strategies that need an adapter where there is none; graph networks and fusions can do without.

    Raises:
        LocigraphError: Names the first.
    """
    for row in map(STRATEGIES.__getitem__, strategies):
        if adapter is None and row.needs_adapter:
            raise LocigraphError(f"strategy {row.name!r} needs an adapter; name one with --encoder.adapter")


def comparisons(strategies: Sequence[str], baselines: str | None) -> list[tuple[str, str]] | None:
    """Which strategy is tested against which.

    Args:
        strategies: All that are run.
        baselines: Names separated by commas; None for the rows that are baselines (where some with the adapter are
            run, v1 and those with the adapter), or for all others where none of these is run.

    Returns:
        The first claimant and each of the baselines. Without a claimant, all others and each of the baselines, or None
        where none are named: the report's own choice.

    Raises:
        LocigraphError: If a baseline is not among the strategies, or nothing is left to test against them.
    """
    claimant = next((name for name in strategies if STRATEGIES[name].is_claimant), None)
    if baselines is None and claimant is None:
        return None
    others = [name for name in strategies if name != claimant]
    if baselines is not None:
        tested = names(baselines, Table("baseline", (STRATEGIES[name] for name in others)))
    else:
        rows = [STRATEGIES[name] for name in others if STRATEGIES[name].is_baseline]
        if any(row.uses_adapter for row in rows):  # v1 as it is besides
            rows = [row for row in rows if row.uses_adapter or row.name == "v1"]
        tested = [row.name for row in rows] or others
    claimants = [name for name in others if name not in tested] if claimant is None else [claimant]
    if tested and not claimants:
        raise LocigraphError(f"baselines is {baselines!r}: no strategy is left to test against them; add one")
    return [(name, baseline) for name in claimants for baseline in tested]


def unused_options(
    strategies: Sequence[str], *, checkpoint: str | None, adapter: str | None, of_training: Mapping[str, object]
) -> list[str]:
    """Notes on options, perhaps of a shared configuration, that a choice of strategies leaves without use.

    Args:
        strategies: All that are run.
        checkpoint: The given checkpoint; None for none.
        adapter: The text encoder's adapter; None for none.
        of_training: Options by name that only training inside folds uses; false where they have their default.
    """
    rows = [STRATEGIES[name] for name in strategies]
    said = []
    if checkpoint is not None and not any(row.needs_checkpoint for row in rows):
        said.append("checkpoint was not used, since no strategy that takes one was run")
    if adapter is not None and not any(row.uses_adapter for row in rows):
        said.append("encoder.adapter was not used, since no strategy that uses it was run")
    if not any(row.is_trained for row in rows):
        said += [f"{name} was not used, since no strategy was trained" for name, given in of_training.items() if given]
    return said
