"""Puts events and facts under categories: the nearest that fits, or a new one for each cluster that fits none.

A category is known by its prototype, the mean of the embeddings of what it contains. All embeddings are taken relative
to the mean of what the same speaker said: otherwise categories would be of speakers and not of subjects. What is like
no other node goes under a category for the rest, which has no prototype, once the space has no pending turns that might
bring its like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from locigraph.consolidation.blueprint import Wording
from locigraph.consolidation.errors import ConsolidationError, ReplyFormatError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.prompting import messages
from locigraph.consolidation.protocols import TextEncoder
from locigraph.consolidation.replies import Form, filled, one_line, strict_schema
from locigraph.kg.counts import Counts, counted
from locigraph.kg.language.tokens import STOP_WORDS, words
from locigraph.kg.schema import NODE_TYPES
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NewNode, NewRelation, SpaceId, TurnState

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

#: Cosine to a prototype, and mean cosine within a cluster, from which a node belongs there.
THRESHOLD = 0.12
_SMALLEST = 3  # nodes of a cluster that is a category of its own
_BATCH = 1_000  # nodes of a type that are classified in one transaction; clustering takes memory by its square
_FEW = 10  # nodes whose mean counts half as the mean of their speaker
_KEY_TERMS = 3
_SHOWN = 12  # members of a cluster that a language model is shown

#: Names a cluster: takes the type of its members, their texts, the most typical first, and all texts of that type.
Namer = Callable[[str, Sequence[str], Sequence[str]], Wording]


@dataclass(frozen=True, slots=True)
class Classified(Counts):
    """What a run over a space did: nodes put under a category, categories made, and nodes that wait for their like."""

    nodes: int = 0
    categories: int = 0
    waiting: int = 0

    def __str__(self) -> str:
        nodes = counted(self.nodes, "node")
        return f"{nodes} classified, new categories: {self.categories}, still waiting: {self.waiting}"


def category_types() -> dict[str, str]:
    """Type of the category by type of the nodes that it contains, of the schema."""
    return {
        row.name: row.parent
        for row in NODE_TYPES.values()
        if row.parent is not None and NODE_TYPES[row.parent].parent is None
    }


def key_terms(kind: str, members: Sequence[str], everything: Sequence[str]) -> Wording:
    """The words that more texts of a cluster have than others do, as a label; with its most typical text."""
    spread = Counter(word for text in everything for word in _content_words(text))
    held = Counter(word for text in members for word in _content_words(text))
    others = max(1, len(everything) - len(members))
    worth = {word: count / len(members) - (spread[word] - count) / others for word, count in held.items()}
    best = sorted(worth, key=lambda word: (-worth[word], word))[:_KEY_TERMS]
    label = " ".join(best) or "various"
    return Wording(label, f"{_plural(kind)} about {', '.join(best) or 'various things'}, such as: {members[0][:300]}")


def _content_words(text: str) -> set[str]:
    return {word for word in words(text) if word not in STOP_WORDS and len(word) > 2 and not word.isdigit()}


def _rest(kind: str) -> str:
    """Name of the category of what is like nothing else."""
    return f"other {_plural(kind).lower()}"


def _plural(kind: str) -> str:
    return {"event_node": "Events", "knowledge_node": "Facts"}.get(kind, kind)


class CategoryForm(Form):
    """What a language model replies."""

    label: Annotated[str, Field(min_length=1, max_length=60)]
    description: Annotated[str, Field(min_length=1, max_length=300)]


class LLMNamer:
    """Names clusters by a language model, and by their key terms where its replies are of no use.

    Args:
        client: The model.
        space: Whose clusters they are, for the accounts.
    """

    def __init__(self, client: ChatClient, space: SpaceId) -> None:
        self._client = client
        self._space = space

    def __call__(self, kind: str, members: Sequence[str], everything: Sequence[str]) -> Wording:
        """Label and description of a cluster."""
        document = {"kind": _plural(kind), "members": list(members[:_SHOWN])}

        def read(reply: Any) -> Wording:
            form = filled(CategoryForm, reply)
            return Wording(one_line(form.label), one_line(form.description))

        try:
            return self._client.ask(
                messages("category", document),
                strict_schema(CategoryForm),
                read,
                purpose=Purpose("category", self._space),
            )
        except ReplyFormatError:  # the replies are kept beside the cassette
            return key_terms(kind, members, everything)


class Classifier:
    """Classifies what a space holds; running it twice changes nothing more.

    Args:
        store: The graph; each batch is one transaction, so a build may run beside it.
        encoder: Text encoder whose embeddings the graph holds.
        threshold: Cosine from which a node belongs to a category, between 0 and 1.
    """

    def __init__(self, store: Store, encoder: TextEncoder, *, threshold: float = THRESHOLD) -> None:
        if not 0 < threshold < 1:
            raise ConsolidationError(f"threshold is {threshold}; expected a cosine above 0 and below 1")
        self._store = store
        self._encoder = encoder
        self._threshold = threshold

    def run(
        self, space: SpaceId, namer: Namer = key_terms, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> Classified:
        """Classify all nodes of a space without a category, batch by batch, until told to stop between two.

        Raises:
            UnknownNodeError: If a node was erased meanwhile; run again.
        """
        nodes = categories = waiting = 0
        for kind, parent in category_types().items():
            batch = Classified(nodes=1)
            while batch.nodes and not is_stopped():
                batch = self._classify(space, kind, parent, namer)
                nodes, categories = nodes + batch.nodes, categories + batch.categories
            waiting += batch.waiting
        return Classified(nodes, categories, waiting)

    def _classify(self, space: SpaceId, kind: str, parent: str, namer: Namer) -> Classified:
        is_growing = self._store.turn_counts(space)[TurnState.PENDING] > 0
        seen = self._store.snapshot(space, embedding_model=self._encoder.model_id)
        members = np.flatnonzero((seen.types == kind) & seen.active)
        categories = np.flatnonzero((seen.types == parent) & seen.active)
        is_edge = (seen.relations == "CONTAINS") & np.isin(seen.source, categories)
        held = dict(zip(seen.target[is_edge].tolist(), seen.source[is_edge].tolist(), strict=True))
        free = np.array([row for row in members.tolist() if row not in held][:_BATCH], dtype=np.int64)
        if not free.size:
            return Classified()
        put: list[tuple[str, int, float]] = []  # category, row, cosine
        vectors = _beside_speakers(seen, members)
        left = free
        prototypes = _prototypes(
            seen, vectors, held, [row for row in categories.tolist() if seen.labels[row] != _rest(kind)]
        )
        if prototypes:
            cosines = vectors[free] @ np.stack(list(prototypes.values())).T
            best = cosines.argmax(axis=1)
            fits = cosines[np.arange(len(free)), best] >= self._threshold
            rows = list(prototypes)
            put += [
                (seen.ids[rows[b]], int(row), float(cosines[i, b]))
                for i, (row, b) in enumerate(zip(free.tolist(), best.tolist(), strict=True))
                if fits[i]
            ]
            left = free[~fits]
        nodes: list[NewNode] = []
        alone: list[int] = []
        everything = [seen.descriptions[row] for row in members]
        for cluster in _clusters(vectors[left], self._threshold):
            rows = left[cluster].tolist()
            if len(rows) < _SMALLEST:
                alone += rows
                continue
            likeness = vectors[rows] @ _centre(vectors[rows])
            typical = [rows[i] for i in np.argsort(-likeness, kind="stable")]
            said = namer(kind, [seen.descriptions[row] for row in typical], everything)
            ref = f"category {len(nodes)}"
            nodes.append(NewNode(ref, parent, said.label, said.description, _turns_of(seen, rows)))
            put += [(ref, row, float(cosine)) for row, cosine in zip(rows, likeness, strict=True)]
        if alone and not put and not is_growing:  # otherwise the next batch may find that they fit what this one made
            name = _rest(kind)
            rest = [seen.ids[row] for row in categories.tolist() if seen.labels[row] == name]
            if not rest:
                nodes.append(NewNode(name, parent, name, f"{_plural(kind)} that are like no others.", ()))
            put += [(rest[0] if rest else name, row, 0.0) for row in alone]
            alone = []
        if put:
            self._commit(seen, nodes, put)
        return Classified(len(put), len(nodes), len(alone))

    def _commit(self, seen: Snapshot, nodes: Sequence[NewNode], put: Sequence[tuple[str, int, float]]) -> None:
        vectors = self._encoder.encode([node.description for node in nodes])
        latest = int(max(seen.recorded_at[row] for _, row, _ in put))  # nothing is known before what it is made of
        self._store.commit(
            GraphChange(
                seen.space,
                datetime.fromtimestamp(latest, UTC),
                nodes=tuple(replace(node, embedding=vector) for node, vector in zip(nodes, vectors, strict=True)),
                relations=tuple(NewRelation(name, "CONTAINS", seen.ids[row], weight) for name, row, weight in put),
                embedding_model=self._encoder.model_id,
            )
        )


def _beside_speakers(seen: Snapshot, members: NDArray[np.int64]) -> NDArray[np.float32]:
    """Directions of the members' embeddings from the mean of their speaker, float32 [nodes, dim]; 0 for other nodes."""
    rows, turns = seen.provenance[:, 0], seen.provenance[:, 1]
    first = dict(zip(rows[::-1].tolist(), turns[::-1].tolist(), strict=True))  # of several source turns the first
    speakers = np.array([seen.speakers[first[row]] if row in first else "" for row in members.tolist()])
    vectors = np.zeros_like(seen.embeddings)
    for speaker in dict.fromkeys(speakers.tolist()):
        said = members[speakers == speaker]
        # The mean of few says more of what they tell than of who told it.
        mean = seen.embeddings[said].sum(axis=0) / (len(said) + _FEW)
        vectors[said] = seen.embeddings[said] - mean
    made: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-9))
    return made


def _prototypes(
    seen: Snapshot, vectors: NDArray[np.float32], held: dict[int, int], categories: Sequence[int]
) -> dict[int, NDArray[np.float32]]:
    """Mean direction of what each category contains, by its row; without those that contain nothing any more."""
    rows: dict[int, list[int]] = {category: [] for category in categories}
    for member, category in held.items():
        if category in rows and seen.active[member]:
            rows[category].append(member)
    return {category: _centre(vectors[members]) for category, members in rows.items() if members}


def _centre(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = vectors.mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-9)


def _clusters(vectors: NDArray[np.float32], threshold: float) -> list[NDArray[np.int64]]:
    """Rows of each cluster, whose parts have at least the threshold as their mean cosine; in order of the rows."""
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
