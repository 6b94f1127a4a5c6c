"""Converts a snapshot into the tensors that the graph network reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locigraph.gnn.errors import GraphError
from locigraph.gnn.relations import NetworkRelation
from locigraph.gnn.sketch import HashedFeatures, LexicalStatistics
from locigraph.kg.language.terms import terms
from locigraph.kg.schema import EPISODE, NODE_TYPES
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import Turn

#: Features of a node besides its content: the log of its length; whether it asks a question, shares an image, and is
#: one of the first two turns of its session.
TRAITS = ("log_length", "is_question", "has_image", "opens_session")
_DAY_S = 86_400.0


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """Turns of a space and their neighbours. Turns come first among the nodes, in conversation order.

    The structure (from ``node_type`` on) stays on the CPU wherever the features are: what depends on it alone is
    computed there, and only the resulting indices go to the device, so that no step waits for the device.

    Attributes:
        text: Embeddings of the descriptions, [nodes, text_dim].
        lexical: Lexical sketches of the descriptions, [nodes, lexical_dim].
        context: Hashed speaker and dates, [nodes, context_dim].
        speakers: The speaker's columns of ``context``, [nodes, speaker_dim]; 0 for nodes without a speaker.
        traits: The features that ``TRAITS`` lists, [nodes, 4].
        days: When the node happened or was said, in days since 1970; NaN where undated, [nodes].
        node_type: Position of the node's type among ``node_types(relations)``, int64 [nodes].
        rows: Row of each node in the snapshot, int64 [nodes].
        source: Neighbour at the start of each edge, int64 [edges].
        target: Turn at the end of each edge, int64 [edges]; the edges are sorted by it.
        relation: Position of the edge's relation among the encoder's relations, int64 [edges].
        num_turns: Number of turns that are encoded.
        other_facts: Number of facts of each node whose facts are not among the edges, since it is a turn that is only
            a neighbour here; 0 for all others, int64 [nodes]. None if every turn of the space is encoded.
    """

    text: Tensor
    lexical: Tensor
    context: Tensor
    speakers: Tensor
    traits: Tensor
    days: Tensor
    node_type: Tensor
    rows: Tensor
    source: Tensor
    target: Tensor
    relation: Tensor
    num_turns: int
    other_facts: Tensor | None = None

    def to(self, device: torch.device | str) -> GraphInputs:
        """A copy with its features moved to a device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in _FEATURES})

    def on_device(self, structure: Tensor) -> Tensor:
        """What was computed from the structure, where the features are, without waiting for the device."""
        return structure.to(self.text.device, non_blocking=True)

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor, Tensor]:
        """Source, target and relation of each edge, where the features are."""
        return self.on_device(self.source), self.on_device(self.target), self.on_device(self.relation)

    def with_edges(self, keep: Tensor) -> GraphInputs:
        """A copy with all nodes but only the edges where ``keep``, bool [edges], is true."""
        return replace(self, source=self.source[keep], target=self.target[keep], relation=self.relation[keep])


_FEATURES = ("text", "lexical", "context", "speakers", "traits", "days")


def node_types(relations: Sequence[NetworkRelation]) -> tuple[str, ...]:
    """The node types at the ends of some relations, turns first."""
    return tuple(dict.fromkeys([EPISODE, *(relation.source for relation in relations)]))


class GraphReader:
    """Reads the inputs of the graph network from a snapshot: of all its active turns, or of some of them.

    A turn's vector depends on the turn, on its neighbours, on how many facts a neighbouring turn has, and on statistics
    of the words of the space. All of these are read for the turns that are asked for, so a turn's vector is the same
    whichever others are encoded with it.

    Args:
        snapshot: The graph, with embeddings.
        hashed: Makes the features of words, speakers and dates.
        relations: Relations of the graph network.
        statistics: Counts of words to go by; None to count those of the snapshot.

    Raises:
        GraphError: If the snapshot has no turn or no embeddings.
        UnknownNameError: If the snapshot has a type that the schema does not know.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        hashed: HashedFeatures,
        relations: Sequence[NetworkRelation],
        *,
        statistics: LexicalStatistics | None = None,
    ) -> None:
        if snapshot.num_nodes and snapshot.embeddings.shape[1] == 0:
            raise GraphError(f"snapshot of space {snapshot.space!r} has no embeddings; load it with an embedding model")
        #: Rows of all active turns in the snapshot, ascending, int64 [turns].
        self.turns = snapshot.active_rows((EPISODE,))
        if not len(self.turns):
            raise GraphError(f"snapshot of space {snapshot.space!r} holds no turns: none had been said by its time")
        self.snapshot = snapshot
        self._hashed, self._relations, self._given = hashed, relations, statistics
        # The graph network's type of every node (``network`` in ``kg.schema``), [nodes].
        self._kinds = np.asarray([NODE_TYPES[name].network for name in snapshot.types.tolist()], dtype=np.str_)
        edges = [_edges(snapshot, self._kinds, relation) for relation in relations]
        ends = np.concatenate([np.zeros((2, 0), dtype=np.int64), *edges], axis=1)
        relation = np.repeat(np.arange(len(edges)), [each.shape[1] for each in edges])
        order = np.lexsort((ends[0], relation, ends[1]))
        # Source, target (as rows of the snapshot) and relation of every edge, sorted by the target.
        self._ends, self._relation = ends[:, order], relation[order].astype(np.int64)
        counted = [position for position, each in enumerate(relations) if each.is_counted]
        self._facts = np.bincount(
            self._ends[1, np.isin(self._relation, counted)], minlength=snapshot.num_nodes
        )  # of each node, [nodes]

    @cached_property
    def statistics(self) -> LexicalStatistics:
        """The given counts of words, or those of all turns and their neighbours."""
        if self._given is not None:
            return self._given
        return self.counted(np.ones(self.snapshot.num_nodes, dtype=bool))

    def counted(self, known: NDArray[np.bool_]) -> LexicalStatistics:
        """The counts of words of the turns and their neighbours where ``known``, bool [nodes of the snapshot]."""
        rows = self._with_neighbours(self.turns, self._ends[0])
        rows = rows[known[rows]]
        texts = (_words(self.snapshot, row, self._speakers) for row in rows.tolist())
        return LexicalStatistics.of(zip(texts, self._kinds[rows].tolist(), strict=True))

    def inputs(self, turns: NDArray[np.int64] | None = None) -> GraphInputs:
        """The inputs of some active turns (by default all) and of the active nodes that a relation joins to them.

        Args:
            turns: Rows of the turns in the snapshot, ascending; at least one.
        """
        is_whole = turns is None or len(turns) == len(self.turns)
        chosen = self.turns if is_whole or turns is None else turns
        ends, relation = self._ends, self._relation
        if not is_whole:
            first, last = np.searchsorted(ends[1], [chosen[0], chosen[-1] + 1])
            ends, relation = ends[:, first:last], relation[first:last]
            kept = np.isin(ends[1], chosen)
            ends, relation = ends[:, kept], relation[kept]
        rows = self._with_neighbours(chosen, ends[0])
        place = np.full(self.snapshot.num_nodes, -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        source, target = place[ends[0]], place[ends[1]]
        types = node_types(self._relations)
        features = self._node_features(rows, is_all=is_whole)
        other_facts = None
        if not is_whole:
            other_facts = torch.from_numpy(self._facts[rows])
            other_facts[: len(chosen)] = 0
        return GraphInputs(
            **{name: torch.from_numpy(values) for name, values in features.items()},
            node_type=torch.tensor([types.index(kind) for kind in self._kinds[rows].tolist()], dtype=torch.int64),
            rows=torch.from_numpy(rows),
            source=torch.from_numpy(source),
            target=torch.from_numpy(target),
            relation=torch.from_numpy(relation),
            num_turns=len(chosen),
            other_facts=other_facts,
        )

    def blocks(self, size: int, turns: NDArray[np.int64] | None = None) -> Iterator[GraphInputs]:
        """The inputs of turns (see ``inputs``; by default all) in blocks of up to ``size``, in conversation order."""
        chosen = self.turns if turns is None else turns
        for start in range(0, len(chosen), size):
            yield self.inputs(chosen[start : start + size])

    @staticmethod
    def _with_neighbours(turns: NDArray[np.int64], sources: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.concatenate([turns, np.setdiff1d(sources, turns)])

    @cached_property
    def _speakers(self) -> dict[int, str]:
        rows = self.snapshot.episode_rows.tolist()
        return dict(zip(rows, self.snapshot.speakers, strict=True))

    @cached_property
    def _opening(self) -> frozenset[int]:
        """Rows of the first two turns of each session."""
        found: list[int] = []
        turns_before: Counter[str] = Counter()  # by session, since turns of several sessions may alternate
        for row, session in zip(self.snapshot.episode_rows.tolist(), self.snapshot.session_ids, strict=True):
            if turns_before[session] < 2:
                found.append(row)
            turns_before[session] += 1
        return frozenset(found)

    def _node_features(self, rows: NDArray[np.int64], *, is_all: bool) -> dict[str, NDArray[np.float32]]:
        snapshot, hashed, kinds = self.snapshot, self._hashed, self._kinds[rows]
        names = [self._speakers.get(row) for row in rows.tolist()]
        texts = [snapshot.descriptions[row] for row in rows.tolist()]
        words = [_words(snapshot, row, self._speakers) for row in rows.tolist()]
        if is_all and self._given is None:  # counted here, since they are at hand
            self.__dict__["statistics"] = LexicalStatistics.of(zip(words, kinds.tolist(), strict=True))
        # The valid time of a fact is open-ended and starts when the fact was stated, so only turns and events are
        # dated.
        is_dated = np.asarray([NODE_TYPES[str(kind)].dated for kind in snapshot.types[rows]], dtype=bool)
        first = np.where(is_dated, snapshot.valid_from[rows], NO_TIME)
        last = np.where(is_dated, snapshot.valid_to[rows], NO_TIME)
        contexts = np.stack(
            [hashed.node(who, a, b) for who, a, b in zip(names, first.tolist(), last.tolist(), strict=True)]
        )
        traits = np.zeros((len(rows), len(TRAITS)), dtype=np.float32)
        traits[:, 0] = np.log1p([len(each) for each in words]) - 2.0  # about 0 for a turn of seven terms
        traits[:, 1] = ["?" in text for text in texts]
        traits[:, 2] = [Turn.shares_image(text) for text in texts]
        traits[:, 3] = [row in self._opening for row in rows.tolist()]
        return {
            "text": snapshot.embeddings[rows],
            "lexical": hashed.documents(words, kinds=kinds.tolist(), statistics=self.statistics),
            "context": contexts,
            "speakers": contexts[:, : hashed.speaker_dim],
            "traits": traits,
            "days": np.where(first == NO_TIME, np.nan, first / _DAY_S).astype(np.float32),
        }


def _words(snapshot: Snapshot, row: int, speakers: Mapping[int, str]) -> list[str]:
    """The terms of a node. Descriptions of turns begin with the speaker's name, a term of all the speaker's turns."""
    text, speaker = snapshot.descriptions[row], speakers.get(row)
    return terms(Turn.without_speaker(text, speaker) if speaker else text)


def _edges(snapshot: Snapshot, kinds: NDArray[np.str_], relation: NetworkRelation) -> NDArray[np.int64]:
    """(Neighbour, turn) of each edge of a relation between active nodes, as rows of the snapshot, [2, edges]."""
    of_family = snapshot.families == relation.family
    source, target = snapshot.source[of_family], snapshot.target[of_family]
    if relation.is_reversed:
        source, target = target, source
    follower = np.full(snapshot.num_nodes, -1, dtype=np.int64)
    follower[source] = target
    for _ in range(relation.hops - 1):
        target = follower[target]
        source, target = source[target >= 0], target[target >= 0]
    fits = (kinds[source] == relation.source) & (kinds[target] == EPISODE)
    fits &= snapshot.active[source] & snapshot.active[target]
    return np.stack([source[fits], target[fits]])
