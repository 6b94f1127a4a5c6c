"""The graph's schema: node types and relation labels, which the store also holds as rows of two tables.

These are the built-in rows. Extractors may coin further relation labels, which the store keeps with a description in
the family ``RELATED_TO``. The graph network reads only a few families (``gnn.relations``), and not this one.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from locigraph.kg.registry import Table


@dataclass(frozen=True, slots=True)
class NodeType:
    """A kind of node.

    Attributes:
        name: Name of the type.
        parent: The type one level above; None for a top-level type.
        description: One sentence for people and language models.
        network: The node type that the graph network uses for it; rare types share the weights of the closest type.
        searchable: Whether a search may return its nodes; nodes of other types only give the graph structure.
        plannable: Whether an architect may create nodes of this type.
        answer: Whether its nodes' text states what a turn says, so that it can answer a question.
        dated: Whether its valid time is the date of the event. A fact's is not: it begins when the fact was stated.
    """

    name: str
    parent: str | None
    description: str
    network: str
    searchable: bool = False
    plannable: bool = False
    answer: bool = False
    dated: bool = False


@dataclass(frozen=True, slots=True)
class RelationLabel:
    """A kind of edge.

    Attributes:
        name: Name of the label.
        kind: ``structural`` or ``semantic``.
        family: The group of labels to which it belongs; the graph network reads some of them (``gnn.relations``).
        description: One sentence for people and language models.
        plannable: Whether language models may use it; edges with other labels are made only by code.
    """

    name: str
    kind: str
    family: str
    description: str
    plannable: bool = False


COINED_FAMILY = "RELATED_TO"
#: Type of the nodes that represent turns; only these have graph embeddings.
EPISODE = "episode"
#: Label of the edge from a node to one that has replaced it.
SUPERSEDED_BY = "SUPERSEDED_BY"
#: Node types for things that many turns mention; two nodes of such a type may mean the same and be merged.
NAMED_TYPES = ("entity", "concept")
#: Attributes of an archived node that was merged into another: the ID of that node, and what merged them:
#: "consolidation", or for a second pass "spelling" or "meaning".
MERGED_INTO, MERGED_BY = "merged_into", "merged_by"
#: Attribute of a node that a language model archived because of a turn: the ID of that turn.
ARCHIVED_BY = "archived_by"
#: Pattern that a coined relation label must match.
LABEL_PATTERN = re.compile(r"[A-Z][A-Z0-9_]{0,63}")

# Parents come before their children. The pipeline makes episodes; second passes make categories and reflections.
NODE_TYPES: Table[NodeType] = Table(
    "node type",
    [
        NodeType(
            EPISODE, None, "One turn of dialogue, verbatim.", EPISODE, searchable=True, answer=True, dated=True
        ),
        NodeType("event_category", None, "A class of events.", "concept"),
        NodeType(
            "event_node", "event_category", "Something that happened or will happen.", "event_node",
            searchable=True, plannable=True, answer=True, dated=True,
        ),
        NodeType(
            "sub_event", "event_node", "A part of an event.", "event_node", searchable=True, plannable=True, dated=True
        ),
        NodeType("knowledge_category", None, "A class of facts.", "concept"),
        NodeType(
            "knowledge_node", "knowledge_category", "An atomic fact, preference or attribute.", "knowledge_node",
            searchable=True, plannable=True, answer=True,
        ),
        NodeType(
            "reflection", None, "An insight drawn from several facts.", "knowledge_node", searchable=True
        ),
        NodeType(
            "concept", None, "A topic of two to five words; never a person, a date or a generic word.", "concept"
        ),
        NodeType("entity", None, "A person, organisation, location, product or other named thing.", "entity"),
    ],
)  # fmt: skip

RELATION_LABELS: Table[RelationLabel] = Table(
    "relation label",
    [
        RelationLabel("CONTAINS", "structural", "CONTAINS", "Category to node, event to sub-event."),
        RelationLabel("NEXT", "structural", "NEXT", "Episode to the episode that follows it in the session."),
        RelationLabel("PRECEDES", "structural", "PRECEDES", "Event to a later event."),
        RelationLabel("DERIVED_FROM", "structural", "DERIVED_FROM", "Fact or event to the episode it came from."),
        RelationLabel("DERIVED_FROM_FACT", "structural", "DERIVED_FROM_FACT", "Reflection to the fact behind it."),
        RelationLabel("HAS_CONCEPT", "structural", "HAS_CONCEPT", "Episode to its topic."),
        RelationLabel("ABOUT_CONCEPT", "structural", "ABOUT_CONCEPT", "Fact to its topic."),
        RelationLabel("MENTIONS", "structural", "MENTIONS", "Episode, fact or event to a named thing."),
        RelationLabel("SUPERSEDED_BY", "structural", "SUPERSEDED_BY", "Outdated fact to the fact that replaced it."),
        RelationLabel("HAS_GOAL", "semantic", "HAS_GOAL", "Person or event to what it aims at.", True),
        RelationLabel(
            "REFERENCES_KNOWLEDGE", "semantic", "REFERENCES_KNOWLEDGE", "Event to a fact it relies on.", True
        ),
        RelationLabel("CAUSES", "semantic", "CAUSES", "Cause to effect.", True),
        RelationLabel("SIMILAR_TO", "semantic", "SIMILAR_TO", "Nodes of like meaning, weighted by cosine."),
        RelationLabel(COINED_FAMILY, "semantic", COINED_FAMILY, "Any relation whose label was coined."),
    ],
)


def searchable_types() -> tuple[str, ...]:
    """Names of the node types that a search may return."""
    return tuple(row.name for row in NODE_TYPES.values() if row.searchable)


def plannable_types() -> tuple[str, ...]:
    """Names of the node types of which an architect may create nodes."""
    return tuple(row.name for row in NODE_TYPES.values() if row.plannable)


def plannable_labels() -> tuple[RelationLabel, ...]:
    """The relation labels that a language model may use."""
    return tuple(row for row in RELATION_LABELS.values() if row.plannable)


def answer_types() -> tuple[str, ...]:
    """Names of the node types whose text states what a turn says."""
    return tuple(row.name for row in NODE_TYPES.values() if row.answer)


def fact_types() -> tuple[str, ...]:
    """Names of the node types that extraction creates and that state what turns say: facts and events."""
    return tuple(row.name for row in NODE_TYPES.values() if row.answer and row.plannable)


def dated_types() -> tuple[str, ...]:
    """Names of the node types whose valid time is the date of the event."""
    return tuple(row.name for row in NODE_TYPES.values() if row.dated)


def schema_hash() -> str:
    """Hash of all names, parents, kinds and families, 12 hexadecimal digits; stored with checkpoints and indexes."""
    rows = [{"name": t.name, "parent": t.parent} for t in NODE_TYPES.values()]
    rows += [{"name": r.name, "kind": r.kind, "family": r.family} for r in RELATION_LABELS.values()]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:12]
