"""MAGMA: beam search along four graphs, weighted by the intent of the question."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, SpaceId
from locigraph.research.published.beam_search import beam_search
from locigraph.retrieval.budgets import ContextRules
from locigraph.retrieval.protocols import Hit, SnapshotLoader
from locigraph.retrieval.rank_fusion import FEW_RRF_K, reciprocal_rank_fusion
from locigraph.retrieval.strategies.memory_graph import Asked, GraphRetriever, Ranking, WordedGraph


class Intent(StrEnum):
    """The intent of a question."""

    WHY = "why"
    WHEN = "when"
    ENTITY = "entity"


#: Weight of a link by intent, within the ranges of the paper's table of hyper-parameters.
INTENT_WEIGHTS: Mapping[Intent, Mapping[str, float]] = MappingProxyType(
    {
        Intent.WHY: {"semantic": 1.0, "temporal": 2.0, "causal": 5.0, "entity": 2.5},
        Intent.WHEN: {"semantic": 1.0, "temporal": 4.0, "causal": 3.0, "entity": 2.5},
        Intent.ENTITY: {"semantic": 1.0, "temporal": 0.5, "causal": 3.0, "entity": 6.0},
    }
)
_WHY = re.compile(r"\b(why|how come|reasons?|because|causes?|caused|led to|leads? to|motivat\w+|made \w+ decide)\b")
_WHEN = re.compile(
    r"\b(when|what (?:day|date|month|year|time)|which (?:day|date|month|year)|how long|how many (?:days|weeks|months"
    r"|years)|before|after|since|until|first|last|recently|latest|earliest)\b"
)


def intent_of(question: str) -> Intent:
    """The intent of a question by its words: WHY takes precedence over WHEN; ENTITY if it asks for neither."""
    lowered = question.lower()
    if _WHY.search(lowered):
        return Intent.WHY
    return Intent.WHEN if _WHEN.search(lowered) else Intent.ENTITY


def causal_order(nodes: Sequence[int], causes: Iterable[tuple[int, int]]) -> list[int]:
    """The nodes with every cause before its effects.

    Args:
        nodes: Nodes; their order is kept where causes do not decide.
        causes: Pairs (cause, effect); pairs with a node that is not among ``nodes`` are ignored. In a cycle of causes
            the node that comes first in ``nodes`` goes first.
    """
    waits: dict[int, set[int]] = {node: set() for node in nodes}
    for cause, effect in causes:
        if cause in waits and effect in waits and cause != effect:
            waits[effect].add(cause)
    ordered: list[int] = []
    while waits:
        free = next((node for node, before in waits.items() if before.isdisjoint(waits)), next(iter(waits)))
        del waits[free]
        ordered.append(free)
    return ordered


class MagmaGraph(WordedGraph):
    """Four graphs over one set of memories.

    Args:
        snapshot: The graph, with embeddings of length 1.
        similar_cosine: Memories of at least this cosine have semantic links.
        similar: Number of semantic links from each memory, to those of the greatest cosine.
    """

    def __init__(self, snapshot: Snapshot, similar_cosine: float, similar: int) -> None:
        super().__init__(snapshot)
        near, alike, _ = self.similar(self.memories, at_least=similar_cosine, most=similar)
        drawn, turn = self.memory_edges("DERIVED_FROM", "DERIVED_FROM_FACT")
        #: Causes and their effects.
        self.causes = self.memory_edges("CAUSES")
        memory, entity = self.edges("MENTIONS")
        semantic = self.links(np.concatenate([near, drawn]), np.concatenate([alike, turn]))
        mentions = self.links(memory, entity)
        #: By link type, a function from a memory to its neighbours.
        self.neighbours: Mapping[str, Callable[[int], NDArray[np.integer]]] = {
            "semantic": partial(_row, semantic),
            "temporal": partial(_row, self.links(*self.memory_edges("NEXT", "PRECEDES"))),
            "causal": partial(_row, self.links(*self.causes)),
            # A matrix of all memories that share an entity would be dense.
            "entity": lambda node: np.concatenate(
                [np.empty(0, np.int64), *(_row(mentions, each) for each in _row(mentions, node))]
            ),
        }


class MagmaRetriever(GraphRetriever[MagmaGraph]):
    """Ranks the memories that a beam search reaches from anchors, along the links that suit the question's intent.

    Anchors are the best memories by reciprocal rank fusion of cosine, BM25 and, if the question names a time, the
    cosine among memories of that time (eq. 4). A step along a link of type t to memory v adds
    exp(lambda_1 * weight[intent][t] + lambda_2 * cosine of v and the question) (eq. 5 and 6) to the decayed score of
    the previous memory (algorithm 1).

    Args:
        load, encoder, name: See ``GraphRetriever``.
        route: Intent of a question; a language model can stand for the rules.
        anchors: Number of anchors.
        rrf_k: Constant of reciprocal rank fusion.
        structure_weight: lambda_1.
        meaning_weight: lambda_2, the middle of the paper's range from .3 to .7.
        decay: Multiplies the score of the previous memory.
        width: Number of memories that are kept after each hop; None for as many as let ``depth`` hops use up the
            budget: (budget - anchors) / depth, which is 36 by default.
        depth: Largest number of hops.
        budget: Largest number of memories to visit.
        similar_cosine, similar: Memories of at least this cosine have semantic links; each makes so many at most.

    Deviations:
        *Graph* (section 3.2): turns, facts, events and reflections are the paper's event nodes; a fact has a semantic
        link to its turn, which the paper lacks. All links are walked in both directions, including temporal and causal
        links, which are directed in the paper. Entities are not nodes of the walk: two memories that name the same
        entity are neighbours. Each memory makes at most five semantic links; the paper has only a threshold.
        *Slow path* (eq. 8, algorithm 3): ``locigraph link`` (``consolidation.linking``), by rules or a language model.
        Causal links are the ``CAUSES`` edges between two memories and entity links the ``MENTIONS`` edges, made by that
        command and by the extractor. ``SIMILAR_TO`` joins aliases to what they were merged into, and is not read.
        *Query analysis* (section 3.3, stage 1): the intent is found by rules, or by the language model of
        ``--queries llm``. Time expressions are resolved by ``kg.language.dates``, relative to ``as_of`` or else to the
        day of the last turn. The window adds one arm to the search for anchors (eq. 4); it filters nothing else.
        The constant of the fusion is that of v1, chosen on the corpus threads, where it ranks better than the paper's
        60.
        *Traversal* (algorithm 1): of several links to a memory the best counts, and the last hop adds no more memories
        than the budget has left. Visited memories are ranked in the order of the visits, anchors first; the paper does
        not rank them. The drop threshold of .15 (table 6) is left out: the text does not say what it applies to, and
        no step scores so little, since exp(.5 - .5) = 1 is the minimum with these weights. The weights of keywords and
        phrases (table 6) are left out too, since no equation uses them. The paper gives no beam width: here it is 36,
        with which five hops from 20 anchors visit the 200 memories of its budget. It does not give ``decay``,
        ``similar`` or the single weights within its ranges either.
        *Context* (section 3.3, stage 4): a line has the format of ``retrieval.packing``, not that of eq. 7. Memories
        that fit are taken in the order of the ranking, and a brevity code counts those left out between two lines, as
        far as the budget allows.

    Source:
        Jiang et al. 2026, "MAGMA: A Multi-Graph based Agentic Memory Architecture for AI Agents", arXiv:2601.03236,
        section 3.3: eq. 4 to 6, algorithm 1; table 6.
    """

    context_rules = ContextRules(brevity=True)

    def __init__(
        self,
        load: SnapshotLoader,
        encoder: TextEncoder,
        *,
        route: Callable[[str], Intent] = intent_of,
        anchors: int = 20,
        rrf_k: int = FEW_RRF_K,
        structure_weight: float = 1.0,
        meaning_weight: float = 0.5,
        decay: float = 0.9,
        width: int | None = None,
        depth: int = 5,
        budget: int = 200,
        similar_cosine: float = 0.3,
        similar: int = 5,
        name: str = "magma",
    ) -> None:
        super().__init__(load, encoder, name=name)
        self._route = route
        self._anchors, self._rrf_k = anchors, rrf_k
        self._structure_weight, self._meaning_weight = structure_weight, meaning_weight
        self._decay, self._depth, self._budget = decay, depth, budget
        self._width = math.ceil(max(budget - anchors, 0) / max(depth, 1)) if width is None else width
        self._similar_cosine, self._similar = similar_cosine, similar

    def prepare(self, snapshot: Snapshot) -> MagmaGraph:
        """The four graphs of a space."""
        return MagmaGraph(snapshot, self._similar_cosine, self._similar)

    def rank(self, graph: MagmaGraph, asked: Asked, *, top_k: int) -> Ranking:
        """See ``GraphRetriever``. Signals: ``cosine``, ``bm25``, ``beam`` (score of the search)."""
        cosine, bm25 = graph.cosine(asked.vector), graph.bm25(asked.text)
        weights = INTENT_WEIGHTS[self._route(asked.text)]
        gains = {
            name: np.exp(self._structure_weight * weight + self._meaning_weight * cosine)
            for name, weight in weights.items()
        }
        visited = beam_search(
            graph.neighbours,
            gains,
            self._anchors_of(graph, asked, cosine, bm25),
            decay=self._decay,
            width=self._width,
            depth=self._depth,
            budget=self._budget,
            ties=graph.place,
        )
        rows = np.array(list(visited), dtype=np.int64)
        beam = np.full(len(cosine), np.nan)
        beam[rows] = list(visited.values())
        scores = 1.0 / np.arange(1, len(rows) + 1)
        return Ranking(rows, scores, {"cosine": cosine, "bm25": np.where(bm25 > 0, bm25, np.nan), "beam": beam})

    def arrange(
        self, question: str, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None
    ) -> list[NodeId] | None:
        """Order in which a context shows hits: causes before effects for WHY, by the time they are about for WHEN.

        Returns:
            Node IDs; None for the order in which the memories were said.
        """
        graph, intent = self.graph_of(space, as_of), self._route(question)
        if intent is Intent.ENTITY:
            return None
        rows = np.array([graph.snapshot.row_of[hit.node_id] for hit in hits], dtype=np.int64)
        rows = rows[
            np.lexsort((graph.place[rows], graph.snapshot.first_turn_place[rows], graph.snapshot.times[0][rows]))
        ]
        if intent is Intent.WHY:
            rows = np.array(causal_order(rows.tolist(), zip(*(ends.tolist() for ends in graph.causes), strict=True)))
        return [graph.snapshot.ids[row] for row in rows.tolist()]

    def _anchors_of(
        self, graph: MagmaGraph, asked: Asked, cosine: NDArray[np.float64], bm25: NDArray[np.float64]
    ) -> list[int]:
        arms = [
            graph.best(cosine, graph.memories, self._anchors),
            graph.best(bm25, graph.memories[bm25[graph.memories] > 0], self._anchors),
        ]
        if asked.window is not None:
            arms.append(
                graph.best(
                    cosine, np.intersect1d(graph.memories, np.flatnonzero(graph.within(asked.window))), self._anchors
                )
            )
        ids = graph.snapshot.ids
        fused = reciprocal_rank_fusion([[ids[row] for row in arm.tolist()] for arm in arms], rrf_k=self._rrf_k)
        return [graph.snapshot.row_of[node] for node, _ in fused[: self._anchors]]


def _row(links: csr_array, node: int) -> NDArray[np.int64]:
    neighbours: NDArray[np.int64] = links.indices[links.indptr[node] : links.indptr[node + 1]]
    return neighbours
