"""Assigns events and facts to categories: to the nearest one that fits, or to a new one for each remaining cluster.

A category is represented by its prototype, the mean embedding of its members. Embeddings are centred on the mean of
their speaker; otherwise categories would group speakers instead of subjects. Nodes that resemble no others have no
category until similar ones come; of more than a thousand such nodes, those of about the same time are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from locigraph.consolidation.blueprint import Wording
from locigraph.consolidation.errors import ConsolidationError, ReplyFormatError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.prompting import ask
from locigraph.consolidation.replies import Form, nonblank_line
from locigraph.consolidation.visibility import worded_since
from locigraph.kg.counts import Counts, counted
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.language.tokens import STOP_WORDS, words
from locigraph.kg.schema import NODE_TYPES
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NewNode, NewRelation, NodeId, SpaceId

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

#: Lowest cosine to a prototype, and lowest mean cosine within a cluster, at which a node belongs to it.
THRESHOLD = 0.12
_SMALLEST = 3  # smallest cluster that becomes a category
_BATCH = 1_000  # nodes of a type that are classified in one transaction; memory of clustering is quadratic in it
_FEW = 10  # shrinkage: a speaker's mean is multiplied by n / (n + 10), where n is the number of its nodes
_KEY_TERMS = 3
_SHOWN = 12  # members of a cluster that a language model is shown

#: Names a cluster, given the node type, the members' texts (most typical first), and all texts of that type.
Namer = Callable[[str, Sequence[str], Sequence[str]], Wording]


@dataclass(frozen=True, slots=True)
class Classified(Counts):
    """Counts of a run: nodes assigned to a category, categories made, and nodes that resemble no others."""

    nodes: int = 0
    categories: int = 0
    waiting: int = 0

    def __str__(self) -> str:
        nodes = counted(self.nodes, "node")
        return f"{nodes} classified, new categories: {self.categories}, like no others: {self.waiting}"


def category_types() -> dict[str, str]:
    """For each node type that is classified, the type of its categories, according to the schema."""
    return {
        row.name: row.parent
        for row in NODE_TYPES.values()
        if row.parent is not None and NODE_TYPES[row.parent].parent is None
    }


def key_terms(node_type: str, members: Sequence[str], everything: Sequence[str]) -> Wording:
    """Name a cluster by the words that are most over-represented in its texts, and describe it by its typical text."""
    in_all = Counter(word for text in everything for word in _content_words(text))
    in_members = Counter(word for text in members for word in _content_words(text))
    others = max(1, len(everything) - len(members))
    worth = {word: count / len(members) - (in_all[word] - count) / others for word, count in in_members.items()}
    best = sorted(worth, key=lambda word: (-worth[word], word))[:_KEY_TERMS]
    label = " ".join(best) or "various"
    return Wording(
        label, f"{_plural(node_type)} about {', '.join(best) or 'various things'}, such as: {members[0][:300]}"
    )


def _content_words(text: str) -> set[str]:
    return {word for word in words(text) if word not in STOP_WORDS and len(word) > 2 and not word.isdigit()}


def _plural(node_type: str) -> str:
    return {"event_node": "Events", "knowledge_node": "Facts"}.get(node_type, node_type)


class CategoryForm(Form):
    """What a language model replies."""

    label: Annotated[str, Field(min_length=1, max_length=60)]
    description: Annotated[str, Field(min_length=1, max_length=300)]


class LLMNamer:
    """Names clusters by a language model, or by their key terms if its replies are unusable.

    Args:
        client: The model.
        space: The space of the clusters, to which the usage is attributed.
    """

    def __init__(self, client: ChatClient, space: SpaceId) -> None:
        self._client = client
        self._space = space

    def __call__(self, node_type: str, members: Sequence[str], everything: Sequence[str]) -> Wording:
        """Label and description of a cluster."""
        document = {"kind": _plural(node_type), "members": list(members[:_SHOWN])}

        def read(form: CategoryForm) -> Wording:
            return Wording(nonblank_line(form.label), nonblank_line(form.description))

        try:
            return ask(self._client, Purpose("category", self._space), document, CategoryForm, read)
        except ReplyFormatError:  # the replies are kept beside the cassette
            return key_terms(node_type, members, everything)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The nodes of a type, and their categories, as rows of a graph.

    Attributes:
        seen: The graph.
        members: The active nodes, int64 [nodes].
        categories: The active categories.
        category_of: The category of each node that has one.
    """

    seen: Snapshot
    members: NDArray[np.int64]
    categories: list[int]
    category_of: dict[int, int]

    @property
    def unclassified(self) -> list[int]:
        """The active nodes without a category."""
        return [row for row in self.members.tolist() if row not in self.category_of]


class Classifier:
    """Classifies the events and facts of a space; running it twice changes nothing more.

    Args:
        store: The graph; each batch is one transaction, so a build may run at the same time.
        encoder: Text encoder whose embeddings the graph holds.
        threshold: Lowest cosine at which a node belongs to a category, between 0 and 1.
    """

    def __init__(self, store: Store, encoder: TextEncoder, *, threshold: float = THRESHOLD) -> None:
        if not 0 < threshold <= 1:
            raise ConsolidationError(f"threshold is {threshold}; expected a cosine above 0 and up to 1")
        self._store = store
        self._encoder = encoder
        self._threshold = threshold

    def run(
        self, space: SpaceId, namer: Namer = key_terms, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> Classified:
        """Classify all nodes without a category, batch by batch; ``is_stopped`` is asked before each batch.

        Raises:
            UnknownNodeError: If a node was erased meanwhile; run again.
            UnknownTurnError: If a source turn of a node was forgotten meanwhile; run again.
        """
        total = Classified()
        for node_type, parent in category_types().items():
            waiting: set[NodeId] = set()  # passed over by later batches, so that these reach the nodes behind
            is_stale = False  # whether nodes were classified since some of these were looked at
            while not is_stopped():
                found, alone = self._classify(space, node_type, parent, namer, waiting)
                if alone:
                    waiting.update(alone)
                elif found.nodes:
                    is_stale = bool(waiting)
                elif is_stale:  # they may fit the categories as they are now
                    waiting, is_stale = set(), False
                else:
                    break
                total += found
            total += Classified(waiting=len(waiting))
        return total

    def _read(self, space: SpaceId, node_type: str, parent: str) -> _Nodes:
        seen = self._store.snapshot(space, embedding_model=self._encoder.model_id)
        categories = seen.active_rows([parent])
        # One without source turns is of an earlier version, which filed there what was like nothing else.
        categories = categories[np.isin(categories, seen.provenance[:, 0])]
        is_edge = (seen.relations == "CONTAINS") & np.isin(seen.source, categories)
        category_of = dict(zip(seen.target[is_edge].tolist(), seen.source[is_edge].tolist(), strict=True))
        return _Nodes(seen, seen.active_rows([node_type]), categories.tolist(), category_of)

    def _classify(
        self, space: SpaceId, node_type: str, parent: str, namer: Namer, waiting: set[NodeId]
    ) -> tuple[Classified, list[NodeId]]:
        """Classify a batch of nodes other than those that wait; if none fits anything, these nodes come second."""
        read = self._read(space, node_type, parent)
        seen, members = read.seen, read.members
        due = [row for row in read.unclassified if seen.ids[row] not in waiting]
        free = np.array(due[:_BATCH], dtype=np.int64)
        if not free.size:
            return Classified(), []
        assigned: list[tuple[str, int, float]] = []  # category, row, cosine
        vectors = _beside_speakers(seen, members)
        left = free
        prototypes = _prototypes(seen, vectors, read.category_of, read.categories)
        if prototypes:
            cosines = vectors[free] @ np.stack(list(prototypes.values())).T
            best = cosines.argmax(axis=1)
            fits = cosines[np.arange(len(free)), best] >= self._threshold
            rows = list(prototypes)
            assigned += [
                (seen.ids[rows[b]], int(row), float(cosines[i, b]))
                for i, (row, b) in enumerate(zip(free.tolist(), best.tolist(), strict=True))
                if fits[i]
            ]
            left = free[~fits]
        nodes: list[NewNode] = []
        everything = [seen.descriptions[row] for row in members]
        for cluster in _clusters(vectors[left], self._threshold):
            rows = left[cluster].tolist()
            if len(rows) < _SMALLEST:
                continue
            likeness = vectors[rows] @ _centre(vectors[rows])
            typical = [rows[i] for i in np.argsort(-likeness, kind="stable")]
            described = [seen.descriptions[row] for row in typical]
            wording = namer(node_type, described, everything)
            ref = f"category {len(nodes)}"
            nodes.append(NewNode(ref, parent, wording.label, wording.description, _turns_of(seen, rows)))
            assigned += [(ref, row, float(cosine)) for row, cosine in zip(rows, likeness, strict=True)]
        if not assigned:
            return Classified(), [seen.ids[row] for row in free.tolist()]
        self._commit(seen, nodes, assigned)
        return Classified(len(assigned), len(nodes)), []

    def _commit(self, seen: Snapshot, nodes: Sequence[NewNode], assigned: Sequence[tuple[str, int, float]]) -> None:
        vectors = self._encoder.encode([node.description for node in nodes])
        self._store.commit(
            GraphChange(
                seen.space,
                worded_since(self._store, seen.space, {seen.ids[row] for _, row, _ in assigned}),
                nodes=tuple(replace(node, embedding=vector) for node, vector in zip(nodes, vectors, strict=True)),
                relations=tuple(NewRelation(name, "CONTAINS", seen.ids[row], weight) for name, row, weight in assigned),
                embedding_model=self._encoder.model_id,
            )
        )


def _beside_speakers(seen: Snapshot, members: NDArray[np.int64]) -> NDArray[np.float32]:
    """Members' embeddings minus the mean of their speaker, L2-normalised, float32 [nodes, dim]; 0 for other nodes."""
    rows, turns = seen.provenance[:, 0], seen.provenance[:, 1]
    first = dict(zip(rows[::-1].tolist(), turns[::-1].tolist(), strict=True))  # first source turn of each node
    speakers = np.array([seen.speakers[first[row]] if row in first else "" for row in members.tolist()])
    vectors = np.zeros_like(seen.embeddings)
    for speaker in dict.fromkeys(speakers.tolist()):
        own = members[speakers == speaker]
        # Shrink the mean of few nodes, which depends more on their subjects than on the speaker.
        mean = seen.embeddings[own].sum(axis=0) / (len(own) + _FEW)
        vectors[own] = seen.embeddings[own] - mean
    normalised: NDArray[np.float32] = vectors / np.maximum(
        np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-9)
    )
    return normalised


def _prototypes(
    seen: Snapshot, vectors: NDArray[np.float32], category_of: dict[int, int], categories: Sequence[int]
) -> dict[int, NDArray[np.float32]]:
    """Mean direction of the active members of each category, by the category's row; empty categories are left out."""
    rows: dict[int, list[int]] = {category: [] for category in categories}
    for member, category in category_of.items():
        if category in rows and seen.active[member]:
            rows[category].append(member)
    return {category: _centre(vectors[members]) for category, members in rows.items() if members}


def _centre(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = vectors.mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-9)


def _clusters(vectors: NDArray[np.float32], threshold: float) -> list[NDArray[np.int64]]:
    """Row numbers of each cluster; average linkage merges clusters while their mean cosine reaches the threshold."""
    if len(vectors) < _SMALLEST:
        return [np.arange(len(vectors))] if len(vectors) else []
    from sklearn.cluster import AgglomerativeClustering  # takes a second to import

    grouping = AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=1 - threshold
    )
    labels = grouping.fit_predict(vectors)
    return [np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())]


def _turns_of(seen: Snapshot, rows: Sequence[int]) -> tuple[Any, ...]:
    pairs = seen.provenance[np.isin(seen.provenance[:, 0], rows)]
    return tuple(seen.turn_ids[turn] for turn in sorted({int(turn) for turn in pairs[:, 1]}))
