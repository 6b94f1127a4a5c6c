"""Retrieval strategies: one table, from which commands, their help, checks, comparisons and reports derive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from locigraph.assembly.search_parts import SearchParts
from locigraph.kg.registry import Table
from locigraph.retrieval.rank_fusion import ADAPTED_ANN_WEIGHT, USUAL_RRF_K

if TYPE_CHECKING:
    from locigraph.assembly.fold_task import Asker, FoldTask
    from locigraph.retrieval.evaluation.outcomes import StrategyRun
    from locigraph.retrieval.protocols import Retriever
    from locigraph.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class Strategy:
    """A row of the table.

    Attributes:
        name: The name by which users choose it.
        description: One sentence for help texts and reports.
        make: Builds the retriever over an indexed graph; None for a strategy that can only be evaluated.
        learn: For a strategy that learns inside the folds of an evaluation: trains in one fold and runs its questions.
        zero_shot: For a strategy that uses what a given checkpoint has learnt: runs all questions.
        changes: For a graph network that is trained inside folds: its changes to the given settings.
        is_random: Whether what it learns depends on the random seed.
        needs_index: Whether it searches the vector index.
        searches_graph_embeddings: Whether that search is one of graph embeddings: v2 and its variants, which are tested
            against the baselines, and for which the embeddings of changed turns are brought up to date first.
        uses_adapter: Whether it uses the text encoder with its adapter; the others use the text encoder without.
        needs_adapter: Whether it is refused if there is no adapter.
        has_adapted: Whether the table also holds it with the adapter, as ``<name>-adapted``.
        is_baseline: Whether v2 and its variants are tested against it when the caller names no baselines.
    """

    name: str
    description: str
    make: Callable[[SearchParts, Strategy], Retriever] | None = None
    learn: Callable[[FoldTask, Strategy], StrategyRun] | None = None
    zero_shot: Callable[[Asker, Checkpoint, Strategy], StrategyRun] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    is_random: bool = False
    needs_index: bool = False
    searches_graph_embeddings: bool = False
    uses_adapter: bool = False
    needs_adapter: bool = False
    has_adapted: bool = False
    is_baseline: bool = False

    @property
    def is_trained(self) -> bool:
        """Whether it learns inside the folds of an evaluation."""
        return self.learn is not None

    @property
    def needs_checkpoint(self) -> bool:
        """Whether it uses what a given checkpoint has learnt."""
        return self.zero_shot is not None

    @property
    def in_recall(self) -> bool:
        """Whether ``locigraph recall`` offers it."""
        return self.make is not None


def _hybrid(parts: SearchParts, strategy: Strategy, **options: Any) -> Retriever:
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


def _over_snapshots(module: str, name: str) -> Callable[[SearchParts, Strategy], Retriever]:
    """Builds a strategy that reads snapshots with embeddings; its class is imported when it is first built."""

    def make(parts: SearchParts, strategy: Strategy) -> Retriever:
        made: Retriever = getattr(import_module(f"locigraph.retrieval.strategies.{module}"), name)(
            parts.snapshots(strategy), parts.encoder_of(strategy), name=strategy.name
        )
        return made

    return make


def _magma(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.query_generator import WrittenQueries
    from locigraph.retrieval.strategies.magma import Intent, MagmaRetriever, intent_of

    written = parts.queries.intent_of if isinstance(parts.queries, WrittenQueries) else lambda _: None

    def route(question: str) -> Intent:
        told = written(question)
        return intent_of(question) if told is None else Intent(told)

    return MagmaRetriever(parts.snapshots(strategy), parts.encoder_of(strategy), route=route, name=strategy.name)


def _tempr(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.retrieval.strategies.tempr import TemprRetriever

    return TemprRetriever(
        parts.snapshots(strategy),
        parts.encoder_of(strategy),
        name=strategy.name,
        pool=parts.opened.enter_context(ThreadPoolExecutor(4, thread_name_prefix="tempr")),
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


def _train(task: FoldTask, strategy: Strategy) -> StrategyRun:
    return task.asker.checkpoint(task.trained(strategy), task.questions, name=strategy.name)


def _learn_fusion(task: FoldTask, strategy: Strategy) -> StrategyRun:
    from locigraph.training.fusion import learn_fusion

    return task.asker.fusion(learn_fusion(task.signals()), task.questions, name=strategy.name)


def _learn_trees(task: FoldTask, strategy: Strategy) -> StrategyRun:
    from locigraph.training.fusion import learn_fusion, learn_trees

    examples = task.signals()
    trees = learn_trees(examples, learn_fusion(examples), seed=task.seed)
    return task.asker.fusion(trees, task.questions, name=strategy.name)


def _learn_assomem(task: FoldTask, strategy: Strategy) -> StrategyRun:
    from locigraph.retrieval.strategies.assomem import AssoMemRetriever
    from locigraph.retrieval.strategies.magma import intent_of
    from locigraph.training.assomem_weights import WeightsOfQuestion, learn_signal_weights

    def make(weights: WeightsOfQuestion) -> AssoMemRetriever:
        return AssoMemRetriever(task.parts.snapshots(strategy), task.parts.encoder_of(strategy), weights=weights)

    weights = learn_signal_weights(make, task.training_questions, task.validation_questions, intent_of)
    return task.asker.retriever(make(weights), task.questions, name=strategy.name)


def _zero_shot(asker: Asker, checkpoint: Checkpoint, strategy: Strategy) -> StrategyRun:
    return asker.checkpoint(checkpoint, asker.questions, name=strategy.name)


def _zero_shot_fusion(asker: Asker, checkpoint: Checkpoint, strategy: Strategy) -> StrategyRun:
    from locigraph.training.fusion import fusion_of

    return asker.fusion(fusion_of(checkpoint), asker.questions, name=strategy.name)


def _with_adapted(rows: Sequence[Strategy]) -> Iterator[Strategy]:
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
    _with_adapted(
        [
            Strategy(
                "v1",
                "BM25 and ANN over node descriptions, fused by RRF with the constant 2, chosen on the corpus threads",
                _hybrid,
                needs_index=True,
                is_baseline=True,
                has_adapted=True,
            ),
            Strategy(
                "v1-time",
                "v1 with a further ranking of only those memories that fall into the time that the question names",
                partial(_hybrid, uses_windows=True),
                needs_index=True,
                has_adapted=True,
            ),
            Strategy(
                "v1-weighted-adapted",
                "v1-adapted whose ANN arm counts three times as much as BM25, chosen on the corpus threads",
                partial(_hybrid, ann_weight=ADAPTED_ANN_WEIGHT),
                uses_adapter=True,
                needs_adapter=True,
                is_baseline=True,
            ),
            Strategy(
                "v1-k60", "v1 with RRF's usual constant, 60", partial(_hybrid, rrf_k=USUAL_RRF_K), needs_index=True
            ),
            Strategy(
                "v2",
                "one ANN search over embeddings of the Heterogeneous Graph Transformer, trained inside folds",
                _v2,
                learn=_train,
                is_random=True,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Strategy(
                "v2-mixing",
                "ablation of v2, with relation mixing instead of attention and without pre-training",
                learn=_train,
                changes={"model.encoder": "mixing", "training.pretrain_epochs": 0},
                is_random=True,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Strategy(
                "v2-zero",
                "v2 zero-shot: a checkpoint that was not trained on the corpus",
                zero_shot=_zero_shot,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Strategy(
                "flat",
                "v2 without the edges of the graph: only text, words, speaker and date of the turn",
                learn=_train,
                changes={"model.excluded_relations": ["*"], "training.pretrain_epochs": 0},
                is_random=True,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Strategy(
                "fusion",
                "linear fusion, learnt inside folds, of fifteen signals, made from most of what v2 reads: the same "
                "supervision without a graph network",
                learn=_learn_fusion,
                uses_adapter=True,
                is_baseline=True,
            ),
            Strategy(
                "fusion-zero",
                "the linear fusion zero-shot: weights learnt from the same questions as the checkpoint",
                _fusion_zero,
                zero_shot=_zero_shot_fusion,
                uses_adapter=True,
                is_baseline=True,
            ),
            Strategy(
                "boosted",
                "boosted trees over the signals of fusion, learnt inside folds",
                learn=_learn_trees,
                is_random=True,
                uses_adapter=True,
                is_baseline=True,
            ),
            Strategy(
                "sum",
                "sum of six min-max normalised signals with equal weights, not learnt; compare fusion",
                _over_snapshots("weighted_sum", "FusionRetriever"),
                is_baseline=True,
                has_adapted=True,
            ),
            Strategy("dense", "cosine of question and turn", _dense, needs_index=True, has_adapted=True),
            Strategy("bm25", "BM25 of question and turn", _bm25),
            Strategy(
                "gaama",
                "GAAMA: similarity and PageRank over topics, facts and turns",
                _over_snapshots("gaama", "GaamaRetriever"),
                has_adapted=True,
            ),
            Strategy(
                "assomem",
                "AssoMem: relevance, importance and time over a graph of clues",
                _over_snapshots("assomem", "AssoMemRetriever"),
                has_adapted=True,
            ),
            Strategy(
                "assomem-learnt",
                "AssoMem with weights by conditional mutual information for each type of question, learnt inside folds",
                learn=_learn_assomem,
                is_baseline=True,
                has_adapted=True,
            ),
            Strategy(
                "magma",
                "MAGMA: beam search over four graphs, weighted by the intent of the question",
                _magma,
                has_adapted=True,
            ),
            Strategy(
                "tempr",
                "TEMPR: meaning, words, spreading activation and time fused by RRF with the constant 60",
                _tempr,
                has_adapted=True,
            ),
            Strategy(
                "hipporag",
                "HippoRAG 2: PageRank over entities and turns from the best facts",
                _over_snapshots("hipporag", "HippoRagRetriever"),
                has_adapted=True,
            ),
        ]
    ),
)


def recalled() -> Table[Strategy]:
    """The strategies that ``locigraph recall`` offers."""
    return Table("strategy", [row for row in STRATEGIES.values() if row.in_recall])


def made(parts: SearchParts, name: str) -> Retriever:
    """The retriever of a strategy that is built over an indexed graph."""
    row = STRATEGIES[name]
    assert row.make is not None, name
    return row.make(parts, row)


def made_of(parts: SearchParts, chosen: Sequence[str]) -> dict[str, Retriever]:
    """Retrievers, by name, of the chosen strategies that neither learn nor need a checkpoint."""
    rows = [STRATEGIES[name] for name in chosen]
    return {row.name: made(parts, row.name) for row in rows if not (row.is_trained or row.needs_checkpoint)}
