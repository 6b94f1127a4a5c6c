"""Entity resolution: finds the existing entity or concept to which a mention refers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from locigraph.kg import products
from locigraph.kg.language.terms import terms
from locigraph.kg.language.tokens import STOP_WORDS, signed_words, words
from locigraph.kg.schema import MERGED_INTO
from locigraph.kg.store import Store
from locigraph.kg.types import Node, NodeId, SpaceId

_ARTICLE = re.compile(r"^(the|a|an|my|our|his|her|their)\s+", re.IGNORECASE)
#: Kind of entities of which no more is known.
OTHER = "other"
_ONE_LETTER = re.compile(r"[^\W\d_](?![^\W\d_])")
#: Lowest cosine at which two topics are treated as the same.
CONCEPT_MERGE = 0.92


def entity_key(name: str) -> str:
    """Key shared by the spellings of a name: without case, article and possessive; symbols alone stay as they are."""
    plain = _ARTICLE.sub("", name.strip()).removesuffix("'s").removesuffix("’s")
    return " ".join(signed_words(plain)) or name.strip()


def spelling_key(name: str) -> str:
    """Key shared by names that differ only in case, article, possessive and plural.

    Capitalised words have no plural: Roberts is not Robert.
    """
    proper = {word.lower() for word in name.split() if word[0].isupper()}
    return " ".join(word if word in proper else _singular(word) for word in entity_key(name).split())


_IN_IE = frozenset(
    {
        "movie",
        "cookie",
        "brownie",
        "smoothie",
        "hoodie",
        "zombie",
        "selfie",
        "calorie",
        "prairie",
        "genie",
        "rookie",
        "auntie",
        "veggie",
        "foodie",
        "newbie",
        "beanie",
        "collie",
        "pixie",
        "bookie",
    }
)
_AFTER_SIBILANT = re.compile(r"(?:ss|x|[tz]z|paz|ch|sh|[^aeo]us|(?:ir|ell)is|\bgas)es$")  # boxes, but houses and sizes


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-1] if word[:-1] in _IN_IE else word[:-3] + "y"
    if len(word) > 4 and _AFTER_SIBILANT.search(word):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def concept_key(label: str) -> str:
    """Key shared by the spellings of a topic: its stemmed content words, so that singular and plural are the same."""
    return " ".join(terms(label)) or label.lower()


def concept_label(text: str) -> str | None:
    """Snake-case topic label of two to five content words; None if the text has fewer than two."""
    kept = [word for word in words(text) if word not in STOP_WORDS and not word.isdigit()][:5]
    return "_".join(kept) if len(kept) >= 2 else None


_KEYS = {"entity": entity_key, "concept": concept_key}


class Resolver:
    """Finds entities and concepts of one space by canonical key, and concepts also by embedding.

    Args:
        nodes: The entities and concepts that exist.
        vectors: Their embeddings, float32 [nodes, dim].
    """

    def __init__(self, nodes: Iterable[Node], vectors: NDArray[np.float32]) -> None:
        self._named: dict[str, dict[str, NodeId]] = {node_type: {} for node_type in _KEYS}
        self._concept_ids: list[NodeId] = []
        self._concept_vectors = np.zeros((0, 0), dtype=np.float32)  # has spare rows for further concepts
        for node, vector in zip(nodes, vectors, strict=True):
            self.learn(node.id, node.type, node.label, vector)

    def alias(self, node_type: str, label: str, node_id: NodeId) -> None:
        """Add another name by which an entity or concept is found from now on."""
        self._named[node_type][_KEYS[node_type](label)] = node_id

    def learn(self, node_id: NodeId, node_type: str, label: str, vector: NDArray[np.float32]) -> None:
        """Add a new entity or concept."""
        self._named[node_type].setdefault(_KEYS[node_type](label), node_id)
        if node_type != "concept":
            return
        count = len(self._concept_ids)
        if count == len(self._concept_vectors):  # double the capacity, so that adding stays cheap on average
            grown = np.zeros((max(16, 2 * count), len(vector)), dtype=np.float32)
            grown[:count] = self._concept_vectors.reshape(count, len(vector))
            self._concept_vectors = grown
        self._concept_vectors[count] = vector
        self._concept_ids.append(node_id)

    def entity(self, name: str) -> NodeId | None:
        """The entity to which a name refers; see ``full_name`` for short forms of the names of speakers."""
        return self._named["entity"].get(entity_key(name))

    def concept(self, label: str, vector: NDArray[np.float32]) -> tuple[NodeId, float | None] | None:
        """The concept with the same canonical label (and no cosine), or else the nearest concept and its cosine.

        Returns None if no label matches and the nearest concept has a cosine below ``CONCEPT_MERGE``.
        """
        same_label = self._named["concept"].get(concept_key(label))
        if same_label is not None:
            return same_label, None
        if not self._concept_ids:
            return None
        cosines = products.with_rows(self._concept_vectors[: len(self._concept_ids)], vector)
        best = int(cosines.argmax())
        return (self._concept_ids[best], float(cosines[best])) if cosines[best] >= CONCEPT_MERGE else None


def kinds_of_entities(store: Store, space: SpaceId) -> dict[NodeId, str]:
    """The kind of each active entity of a space; ``other`` where no more is known."""
    return {node.id: str(node.attributes.get("kind", OTHER)) for node in store.nodes(space, types=["entity"])}


def merged_nodes(nodes: Iterable[Node]) -> dict[NodeId, NodeId]:
    """For each of the nodes that was merged into another, the one that stays; that may be several merges away."""
    into = {node.id: NodeId(str(node.attributes[MERGED_INTO])) for node in nodes if MERGED_INTO in node.attributes}
    stays = dict(into)
    for node_id in into:
        while stays[node_id] in into:
            stays[node_id] = into[stays[node_id]]
    return stays


def full_name(name: str, speakers: Sequence[str]) -> str:
    """The only speaker whose name begins with a short form ("Mel" for Melanie), else the name itself.

    A short form lacks two letters or more: Daniel is not Daniela.
    """
    if len(name) < 3:
        return name
    matches = [speaker for speaker in speakers if speaker.lower().startswith(name.lower())]
    if len(matches) != 1 or _ONE_LETTER.match(matches[0], len(name)):
        return name
    return matches[0]
