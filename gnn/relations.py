"""The table of relations along which turns aggregate their neighbours.

Only turns aggregate neighbours, since only turns are searched. A row names the neighbour's type, the relation of the
graph, its direction, and the initial weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from locigraph.gnn.errors import GraphError
from locigraph.kg.errors import nearest
from locigraph.kg.registry import Table
from locigraph.kg.schema import EPISODE, fact_types

#: The content blocks of a vector, to which neighbours contribute. Weights are listed in this order.
BLOCKS = ("text", "lexical", "context")
#: Turns up to this many turns apart in a session are neighbours.
MAX_HOPS = 4
_FURTHER_HOPS = range(2, MAX_HOPS + 1)


@dataclass(frozen=True)
class NetworkRelation:
    """A relation that ends at a turn.

    Attributes:
        name: Shown in explanations, and accepted by ``excluded_relations``.
        source: The graph network's node type of the neighbour (see ``network`` in ``kg.schema``).
        family: Family of the relation label in the graph, such as ``DERIVED_FROM``.
        is_reversed: Whether the graph's edge starts at the turn, so that it is walked backwards.
        hops: Number of consecutive edges from the neighbour to the turn.
        is_counted: Whether the number of these neighbours is a trait of the turn.
        start: Initial weights of the mean over the neighbours' text, lexical and context blocks. They are round numbers
            in the proportions of a hand-set smoothing that works without training. None excludes a block: the speaker
            and date of another turn say nothing about this one, and when they had weights, the model memorised the
            names and dates of the training conversations and did worse on all others.
    """

    name: str
    source: str
    family: str
    is_reversed: bool = False
    hops: int = 1
    is_counted: bool = False
    start: tuple[float | None, float | None, float | None] = (0.0, 0.0, None)

    @property
    def is_answer(self) -> bool:
        """Whether the neighbour is a fact or event drawn from the turn, so that its edge gives the answer away."""
        return self.source in fact_types()


RELATIONS: Table[NetworkRelation] = Table(
    "network relation",
    [
        NetworkRelation("fact", "knowledge_node", "DERIVED_FROM", is_counted=True, start=(0.5, 0.5, None)),
        # The date of an event also applies to its turn.
        NetworkRelation("event", "event_node", "DERIVED_FROM", start=(0.15, 0.1, 0.5)),
        NetworkRelation("topic", "concept", "HAS_CONCEPT", is_reversed=True, start=(0.1, 0.05, None)),
        NetworkRelation("previous", EPISODE, "NEXT", start=(0.15, 0.1, None)),
        NetworkRelation("next", EPISODE, "NEXT", is_reversed=True, start=(0.15, 0.1, None)),
        *(NetworkRelation(f"previous_{hop}", EPISODE, "NEXT", hops=hop) for hop in _FURTHER_HOPS),
        *(NetworkRelation(f"next_{hop}", EPISODE, "NEXT", is_reversed=True, hops=hop) for hop in _FURTHER_HOPS),
    ],
)


def network_relations(excluded: Sequence[str] = ()) -> tuple[NetworkRelation, ...]:
    """The rows of the table, in its order, without those that are excluded by their names.

    The name of a family excludes all rows of the family; ``*`` excludes all rows.

    Raises:
        GraphError: If a name is not known.
    """
    known = {"*", *RELATIONS, *(row.family for row in RELATIONS.values())}
    for name in excluded:
        if name not in known:
            raise GraphError(f"excluded relation {name!r} is not known{nearest(name, known)}; known: {sorted(known)}")
    return tuple(row for row in RELATIONS.values() if not {"*", row.name, row.family} & {*excluded})
