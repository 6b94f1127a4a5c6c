"""The graph's own description: node types and relation labels, which the store holds as data.

These are the built-in rows. An LLM may coin further relation labels; the store keeps each with a description,
and the graph network sees it as the family ``RELATED_TO``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class NodeType:
    """A kind of node; ``parent`` is the type one level above, or None."""

    name: str
    parent: str | None
    description: str


@dataclass(frozen=True, slots=True)
class RelationLabel:
    """A kind of edge. ``family`` is the relation by which the graph network knows it."""

    name: str
    kind: str  # "structural" or "semantic"
    family: str
    description: str


COINED_FAMILY = "RELATED_TO"

NODE_TYPES: tuple[NodeType, ...] = (
    NodeType("episode", None, "One turn of dialogue, verbatim."),
    NodeType("event_category", None, "A class of events."),
    NodeType("event_node", "event_category", "Something that happened or will happen."),
    NodeType("sub_event", "event_node", "A part of an event."),
    NodeType("knowledge_category", None, "A class of facts."),
    NodeType("knowledge_node", "knowledge_category", "An atomic fact, preference or attribute."),
    NodeType("reflection", None, "An insight drawn from several facts."),
    NodeType("concept", None, "A topic of two to five words; never a person, a date or a generic word."),
    NodeType("entity", None, "A person, organisation, location, product or other named thing."),
)

RELATION_LABELS: tuple[RelationLabel, ...] = (
    RelationLabel("CONTAINS", "structural", "CONTAINS", "Category to node, event to sub-event."),
    RelationLabel("NEXT", "structural", "NEXT", "Episode to the episode that follows it in the session."),
    RelationLabel("PRECEDES", "structural", "PRECEDES", "Event to a later event."),
    RelationLabel("DERIVED_FROM", "structural", "DERIVED_FROM", "Fact or event to the episode it came from."),
    RelationLabel("DERIVED_FROM_FACT", "structural", "DERIVED_FROM_FACT", "Reflection to the fact behind it."),
    RelationLabel("HAS_CONCEPT", "structural", "HAS_CONCEPT", "Episode to its topic."),
    RelationLabel("ABOUT_CONCEPT", "structural", "ABOUT_CONCEPT", "Fact to its topic."),
    RelationLabel("MENTIONS", "structural", "MENTIONS", "Episode, fact or event to a named thing."),
    RelationLabel("SUPERSEDED_BY", "structural", "SUPERSEDED_BY", "Outdated fact to the fact that replaced it."),
    RelationLabel("HAS_GOAL", "semantic", "HAS_GOAL", "Person or event to what it aims at."),
    RelationLabel("REFERENCES_KNOWLEDGE", "semantic", "REFERENCES_KNOWLEDGE", "Event to a fact it relies on."),
    RelationLabel("CAUSES", "semantic", "CAUSES", "Cause to effect."),
    RelationLabel("SIMILAR_TO", "semantic", "SIMILAR_TO", "Nodes of like meaning, weighted by cosine."),
    RelationLabel(COINED_FAMILY, "semantic", COINED_FAMILY, "Any relation whose label was coined."),
)

#: What a search may return; everything else is structure (see ``kg.types.Node``).
SEARCHABLE_TYPES: tuple[str, ...] = ("episode", "event_node", "sub_event", "knowledge_node", "reflection")


def schema_hash() -> str:
    """Twelve hexadecimal digits that change whenever a built-in type or relation does."""
    rows = [asdict(t) for t in NODE_TYPES] + [asdict(r) for r in RELATION_LABELS]
    names = [{k: v for k, v in row.items() if k != "description"} for row in rows]
    return hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()[:12]
