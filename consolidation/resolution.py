"""Which existing entity or concept a mention means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.language.tokens import STOP_WORDS, terms, words
from locigraph.kg.types import Node, NodeId

_ARTICLE = re.compile(r"^(the|a|an|my|our|his|her|their)\s+", re.IGNORECASE)
#: Cosine from which two topics are one.
CONCEPT_MERGE = 0.92


@dataclass
class _Known:
    by_key: dict[str, NodeId] = field(default_factory=dict)
    ids: list[NodeId] = field(default_factory=list)
    room: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    def append(self, node_id: NodeId, vector: NDArray[np.float32]) -> None:
        if len(self.ids) == len(self.room):  # double, so that learning stays cheap
            grown = np.zeros((max(16, 2 * len(self.room)), len(vector)), dtype=np.float32)
            if self.ids:
                grown[: len(self.ids)] = self.room
            self.room = grown
        self.room[len(self.ids)] = vector
        self.ids.append(node_id)


class Resolver:
    """Entities and concepts of one space, by canonical key and, for concepts, by meaning.

    Args:
        nodes: The entities and concepts that exist.
        vectors: Their embeddings, float32 [nodes, dim].
    """

    def __init__(self, nodes: Iterable[Node], vectors: NDArray[np.float32]) -> None:
        self._entities = _Known()
        self._concepts = _Known()
        for node, vector in zip(nodes, vectors, strict=True):
            self.learn(node.id, node.type, node.label, vector)

    def learn(self, node_id: NodeId, kind: str, label: str, vector: NDArray[np.float32]) -> None:
        """Take in a node that now exists."""
        known, key = (self._entities, entity_key(label)) if kind == "entity" else (self._concepts, concept_key(label))
        known.by_key.setdefault(key, node_id)
        known.append(node_id, vector)

    def entity(self, name: str, speakers: Sequence[str]) -> NodeId | None:
        """The entity that a name means; a short form of a speaker's name means the speaker."""
        return self._entities.by_key.get(entity_key(full_name(name, speakers)))

    def concept(self, label: str, vector: NDArray[np.float32]) -> NodeId | None:
        """The concept of the same canonical label, or the nearest one above ``CONCEPT_MERGE``."""
        known = self._concepts
        found = known.by_key.get(concept_key(label))
        if found is not None or not known.ids:
            return found
        cosines = known.room[: len(known.ids)] @ vector
        best = int(cosines.argmax())
        return known.ids[best] if cosines[best] >= CONCEPT_MERGE else None


def full_name(name: str, speakers: Sequence[str]) -> str:
    """The speaker that a short form abbreviates ("Mel" for Melanie), or the name itself."""
    matches = [s for s in speakers if len(name) >= 3 and s.lower().startswith(name.lower())]
    return matches[0] if len(matches) == 1 else name


def entity_key(name: str) -> str:
    """What two spellings of one name share: case, article and possessive removed; a name of signs is itself."""
    return " ".join(words(_ARTICLE.sub("", name.strip()).removesuffix("'s").removesuffix("’s"))) or name.strip()


def concept_key(label: str) -> str:
    """What two spellings of one topic share: stemmed content words, so plural and singular are one."""
    return " ".join(terms(label)) or label.lower()


def concept_label(text: str) -> str | None:
    """Snake-case topic label of at most five words; None when the text names nothing but generic words."""
    kept = [word for word in words(text) if word not in STOP_WORDS and not word.isdigit()][:5]
    return "_".join(kept) if len(kept) >= 2 else None
