"""What ``locigraph evaluate`` compares: strategies of recall, their variants and ablations, published memories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from locigraph.assembly.search_parts import SearchParts
from locigraph.assembly.strategies import STRATEGIES, Strategy, hybrid, made, with_adapted
from locigraph.kg.registry import Table
from locigraph.retrieval.rank_fusion import ADAPTED_ANN_WEIGHT, USUAL_RRF_K

if TYPE_CHECKING:
    from locigraph.research.evaluation.outcomes import StrategyRun
    from locigraph.research.experiments.fold_task import Asker, FoldTask
    from locigraph.retrieval.protocols import Retriever
    from locigraph.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class Contender(Strategy):
    """A strategy with what an evaluation needs to know of it.

    Attributes:
        learn: For a strategy that learns inside the folds of an evaluation: trains in one fold and runs its questions.
        zero_shot: For a strategy that uses what a given checkpoint has learnt: runs all questions.
        changes: For a graph network that is trained inside folds: its changes to the given settings.
        is_random: Whether what it learns depends on the random seed.
        is_baseline: Whether v2 and its variants (all that search graph embeddings) are tested against it when the
            caller names no baselines.
        reads_causes: Whether it searches along the links to causes that ``locigraph link`` adds.
    """

    learn: Callable[[FoldTask, Contender], StrategyRun] | None = None
    zero_shot: Callable[[Asker, Checkpoint, Contender], StrategyRun] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    is_random: bool = False
    is_baseline: bool = False
    reads_causes: bool = False

    @property
    def is_trained(self) -> bool:
        """Whether it learns inside the folds of an evaluation."""
        return self.learn is not None

    @property
    def needs_checkpoint(self) -> bool:
        """Whether it uses what a given checkpoint has learnt."""
        return self.zero_shot is not None


def _over_snapshots(module: str, name: str) -> Callable[[SearchParts, Strategy], Retriever]:
    """Builds a strategy that reads snapshots with embeddings; its class is imported when it is first built."""

    def make(parts: SearchParts, strategy: Strategy) -> Retriever:
        retriever: Retriever = getattr(import_module(f"locigraph.{module}"), name)(
            parts.snapshots(strategy), parts.encoder_of(strategy), name=strategy.name
        )
        return retriever

    return make


def _magma(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.research.published.magma import Intent, MagmaRetriever, intent_of
    from locigraph.retrieval.query_generator import WrittenQueries

    written = parts.queries.intent_of if isinstance(parts.queries, WrittenQueries) else lambda _: None

    def route(question: str) -> Intent:
        told = written(question)
        return intent_of(question) if told is None else Intent(told)

    return MagmaRetriever(parts.snapshots(strategy), parts.encoder_of(strategy), route=route, name=strategy.name)


def _tempr(parts: SearchParts, strategy: Strategy) -> Retriever:
    from locigraph.research.published.tempr import TemprRetriever

    return TemprRetriever(
        parts.snapshots(strategy),
        parts.encoder_of(strategy),
        name=strategy.name,
        pool=parts.opened.enter_context(ThreadPoolExecutor(4, thread_name_prefix="tempr")),
    )


def _train(task: FoldTask, strategy: Contender) -> StrategyRun:
    return task.asker.checkpoint(task.trained(strategy), task.questions, name=strategy.name)


def _learn_fusion(task: FoldTask, strategy: Contender) -> StrategyRun:
    from locigraph.training.fusion import learn_fusion

    return task.asker.fusion(learn_fusion(task.signals()), task.questions, name=strategy.name)


def _learn_trees(task: FoldTask, strategy: Contender) -> StrategyRun:
    from locigraph.training.fusion import learn_fusion, learn_trees

    examples = task.signals()
    trees = learn_trees(examples, learn_fusion(examples), seed=task.seed)
    return task.asker.fusion(trees, task.questions, name=strategy.name)


def _learn_assomem(task: FoldTask, strategy: Contender) -> StrategyRun:
    from locigraph.research.published.assomem import AssoMemRetriever
    from locigraph.research.published.assomem_weights import WeightsOfQuestion, learn_signal_weights
    from locigraph.research.published.magma import intent_of

    def make(weights: WeightsOfQuestion) -> AssoMemRetriever:
        return AssoMemRetriever(task.parts.snapshots(strategy), task.parts.encoder_of(strategy), weights=weights)

    weights = learn_signal_weights(make, task.training_questions, task.validation_questions, intent_of)
    return task.asker.retriever(make(weights), task.questions, name=strategy.name)


def _zero_shot(asker: Asker, checkpoint: Checkpoint, strategy: Contender) -> StrategyRun:
    return asker.checkpoint(checkpoint, asker.questions, name=strategy.name)


def _zero_shot_fusion(asker: Asker, checkpoint: Checkpoint, strategy: Contender) -> StrategyRun:
    from locigraph.training.fusion import fusion_of

    return asker.fusion(fusion_of(checkpoint), asker.questions, name=strategy.name)


def _compared(name: str, **of_evaluation: Any) -> Contender:
    """A strategy of ``locigraph.assembly.strategies``, with what an evaluation needs to know of it."""
    row = STRATEGIES[name]
    return Contender(**{each.name: getattr(row, each.name) for each in fields(Strategy)}, **of_evaluation)


CONTENDERS: Table[Contender] = Table(
    "strategy",
    with_adapted(
        [
            _compared("v1", is_baseline=True),
            Contender(
                "v1-time",
                "v1 with a further ranking of only those memories that fall into the time that the question names",
                partial(hybrid, uses_windows=True),
                needs_index=True,
                has_adapted=True,
            ),
            Contender(
                "v1-weighted-adapted",
                "v1-adapted whose ANN arm counts three times as much as BM25, chosen on the corpus threads",
                partial(hybrid, ann_weight=ADAPTED_ANN_WEIGHT),
                uses_adapter=True,
                needs_adapter=True,
                is_baseline=True,
            ),
            Contender(
                "v1-k60", "v1 with RRF's usual constant, 60", partial(hybrid, rrf_k=USUAL_RRF_K), needs_index=True
            ),
            _compared("v2", learn=_train, is_random=True),
            Contender(
                "v2-mixing",
                "ablation of v2, with relation mixing instead of attention and without pre-training",
                learn=_train,
                changes={"model.encoder": "mixing", "training.pretrain_epochs": 0},
                is_random=True,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Contender(
                "v2-zero",
                "v2 zero-shot: a checkpoint that was not trained on the corpus",
                zero_shot=_zero_shot,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Contender(
                "flat",
                "v2 without the edges of the graph: only text, words, speaker and date of the turn",
                learn=_train,
                changes={"model.excluded_relations": ["*"], "training.pretrain_epochs": 0},
                is_random=True,
                needs_index=True,
                searches_graph_embeddings=True,
                uses_adapter=True,
            ),
            Contender(
                "fusion",
                "linear fusion, learnt inside folds, of fifteen signals, made from most of what v2 reads: the same "
                "supervision without a graph network",
                learn=_learn_fusion,
                uses_adapter=True,
                is_baseline=True,
            ),
            _compared("fusion-zero", zero_shot=_zero_shot_fusion, is_baseline=True),
            Contender(
                "boosted",
                "boosted trees over the signals of fusion, learnt inside folds",
                learn=_learn_trees,
                is_random=True,
                uses_adapter=True,
                is_baseline=True,
            ),
            Contender(
                "sum",
                "sum of six min-max normalised signals with equal weights, not learnt; compare fusion",
                _over_snapshots("retrieval.strategies.weighted_sum", "FusionRetriever"),
                is_baseline=True,
                has_adapted=True,
            ),
            _compared("dense"),
            _compared("bm25"),
            Contender(
                "gaama",
                "GAAMA: similarity and PageRank over topics, facts and turns",
                _over_snapshots("research.published.gaama", "GaamaRetriever"),
                has_adapted=True,
            ),
            Contender(
                "assomem",
                "AssoMem: relevance, importance and time over a graph of clues",
                _over_snapshots("research.published.assomem", "AssoMemRetriever"),
                has_adapted=True,
            ),
            Contender(
                "assomem-learnt",
                "AssoMem with weights by conditional mutual information for each type of question, learnt inside folds",
                learn=_learn_assomem,
                is_baseline=True,
                has_adapted=True,
            ),
            Contender(
                "magma",
                "MAGMA: beam search over four graphs, weighted by the intent of the question",
                _magma,
                has_adapted=True,
                reads_causes=True,
            ),
            Contender(
                "tempr",
                "TEMPR: meaning, words, spreading activation and time fused by RRF",
                _tempr,
                has_adapted=True,
                reads_causes=True,
            ),
            Contender(
                "hipporag",
                "HippoRAG 2: PageRank over entities and turns from the best facts",
                _over_snapshots("research.published.hipporag", "HippoRagRetriever"),
                has_adapted=True,
            ),
        ]
    ),
)

#: What ``locigraph recall`` does not have of its own: the entry point ``locigraph.strategies``.
ADDED = tuple(row for row in CONTENDERS.values() if row.name not in STRATEGIES)


def made_of(parts: SearchParts, chosen: Sequence[str]) -> dict[str, Retriever]:
    """Retrievers, by name, of the chosen strategies that neither learn nor need a checkpoint."""
    rows = [CONTENDERS[name] for name in chosen]
    return {
        row.name: made(parts, row)
        for row in rows
        if row.make is not None and not (row.is_trained or row.needs_checkpoint)
    }
