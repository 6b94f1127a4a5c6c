"""The architect's plan for one turn, the scribe's wording of it, and the rules that both must follow."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date, datetime

from locigraph.consolidation.errors import BlueprintError, ConsolidationError, WordingError
from locigraph.kg.counts import counted
from locigraph.kg.errors import shortened
from locigraph.kg.schema import LABEL_PATTERN, RELATION_LABELS, plannable_types
from locigraph.kg.types import MAX_DESCRIPTION, MAX_NAME_BYTES, Attributes, NodeId, TurnId

# Recorded extractions of a whole session may be those of its last turn.
MAX_OPERATIONS = MAX_MENTIONS = MAX_TOPICS = 1_000
MAX_LABEL = 120


@dataclass(frozen=True, slots=True)
class AddNode:
    """A node to be created.

    Attributes:
        ref: Temporary id, unique within the plan; it contains no colon.
        type: A plannable node type of ``kg.schema.NODE_TYPES``.
        draft: The content that the scribe is to word; rule-based and recorded extractors give the final text.
        turn_ids: Ids of the source turns, including the present turn.
        days: First and last day, if the architect knows them; with None they are resolved from the wording.
        attributes: Further values that are stored with the node.
    """

    ref: str
    type: str
    draft: str
    turn_ids: tuple[TurnId, ...]
    days: tuple[date, date] | None = None
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdateNode:
    """A node whose content this turn repeats (``draft`` is None) or changes (``draft`` is the new content).

    ``turn_ids`` are further turns that say the same.
    """

    id: NodeId
    draft: str | None = None
    turn_ids: tuple[TurnId, ...] = ()


@dataclass(frozen=True, slots=True)
class SupersedeNode:
    """A node that is no longer true: its valid time ends, and it is linked to its successor, a new node's ``ref``.

    Of a late turn the new node may be the one that is no longer true, and its successor a node of a later turn.
    """

    id: NodeId | str
    successor: str


@dataclass(frozen=True, slots=True)
class ArchiveNode:
    """A node that should no longer be found; its history stays."""

    id: NodeId


@dataclass(frozen=True, slots=True)
class AddRelation:
    """An edge; each end is a ``ref`` of this plan or an id that was shown."""

    source: str
    label: str
    target: str


Operation = AddNode | UpdateNode | SupersedeNode | ArchiveNode | AddRelation


@dataclass(frozen=True, slots=True)
class CoinedLabel:
    """A new relation label that the architect invents where no label of the schema fits; the store keeps it."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Mention:
    """A named thing that the turn mentions; ``kind`` is, for example, person, location or product.

    A name that ``is_full`` is no short form of a speaker's.
    """

    name: str
    kind: str
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Topic:
    """What the turn is about: a short label, and the text that describes it."""

    label: str
    description: str


@dataclass(frozen=True, slots=True)
class Blueprint:
    """An architect's complete plan for one turn."""

    operations: tuple[Operation, ...] = ()
    mentions: tuple[Mention, ...] = ()
    topics: tuple[Topic, ...] = ()
    coined: tuple[CoinedLabel, ...] = ()


@dataclass(frozen=True, slots=True)
class Wording:
    """The scribe's text for one node."""

    label: str
    description: str


@dataclass(frozen=True, slots=True)
class ContextNode:
    """A node shown to the architect; a plan may refer to no other existing nodes.

    Attributes:
        id: Its id.
        type: Its type.
        description: Its text.
        attributes: Further values that are stored with it.
        first_day: First day of the event, or first day on which the fact is true; None if unknown.
        superseded_at: When the graph learnt that another fact replaces it; None if none does.
        known_at: When the graph learnt it; None if unknown.
    """

    id: NodeId
    type: str
    description: str
    attributes: Attributes = field(default_factory=dict)
    first_day: date | None = None
    superseded_at: datetime | None = None
    known_at: datetime | None = None


def check_blueprint(
    plan: Blueprint,
    *,
    turn_id: TurnId,
    turns: Container[TurnId],
    shown: Sequence[ContextNode],
    labels: Sequence[str],
    later: Sequence[ContextNode] = (),
) -> None:
    """Check a plan against the schema and against the nodes that its architect was shown.

    Args:
        plan: The plan to check.
        turn_id: The turn that is consolidated; every new node must name it as a source.
        turns: The turns that may be sources of new nodes.
        shown: The nodes that the architect saw.
        labels: Known relation labels.
        later: The nodes of later turns that it saw.

    Raises:
        BlueprintError: If a rule is broken; names the operation and the value.
    """
    if len(plan.operations) > MAX_OPERATIONS:
        raise BlueprintError(f"{len(plan.operations)} operations for one turn; at most {MAX_OPERATIONS}")
    known = {*labels, *(coined.name for coined in plan.coined)}
    for coined in plan.coined:
        if coined.name in RELATION_LABELS or not LABEL_PATTERN.fullmatch(coined.name):
            raise BlueprintError(
                f"coined label {coined.name!r} is not new, or not in CAPITALS_WITH_UNDERSCORES (at most 64 characters)"
            )
        _check_length(
            BlueprintError, f"description of coined label {coined.name!r}", coined.description, MAX_DESCRIPTION
        )
    ids, said_later = ({node.id for node in nodes} for nodes in (shown, later))
    refs: set[str] = set()
    for number, operation in enumerate(plan.operations):
        where = f"operation {number} ({type(operation).__name__})"
        if isinstance(operation, AddNode):
            _check_added(where, operation, turn_id, turns, refs | ids)
            refs.add(operation.ref)
    for number, operation in enumerate(plan.operations):
        where = f"operation {number} ({type(operation).__name__})"
        is_late = isinstance(operation, SupersedeNode) and operation.id in refs
        if isinstance(operation, UpdateNode | SupersedeNode | ArchiveNode) and operation.id not in ids and not is_late:
            raise BlueprintError(f"{where}: id {operation.id!r} was not shown")
        if isinstance(operation, SupersedeNode) and operation.successor not in (said_later if is_late else refs):
            expected = "is not a node of a later turn" if is_late else "is not a new node of this plan"
            raise BlueprintError(f"{where}: successor {operation.successor!r} {expected}")
        if isinstance(operation, AddRelation):
            if operation.label not in known:
                raise BlueprintError(f"{where}: relation label {operation.label!r} is not in the schema")
            for end in (operation.source, operation.target):
                if end not in refs and end not in ids:
                    raise BlueprintError(f"{where}: end {end!r} is neither a new ref nor an id that was shown")
            if operation.source == operation.target:
                raise BlueprintError(f"{where}: {operation.source!r} is related to itself; name two nodes")
    _check_names(plan)


def _check_added(where: str, node: AddNode, turn_id: TurnId, turns: Container[TurnId], taken: Container[str]) -> None:
    if node.type not in plannable_types():
        raise BlueprintError(f"{where}: type {node.type!r}; expected one of {', '.join(plannable_types())}")
    if node.ref in taken or not node.ref or ":" in node.ref:
        raise BlueprintError(f"{where}: ref {node.ref!r} is not a new temporary id")
    if turn_id not in node.turn_ids:
        raise BlueprintError(f"{where}: sources {node.turn_ids} lack the present turn {turn_id!r}")
    if unknown := [source for source in node.turn_ids if source not in turns]:
        raise BlueprintError(f"{where}: source {unknown[0]!r} is not a turn of this conversation")
    if node.days is not None and node.days[0] > node.days[1]:
        raise BlueprintError(f"{where}: ends {node.days[1]} before it begins {node.days[0]}")


def _check_names(plan: Blueprint) -> None:
    for what, count, limit in (
        ("mentions", len(plan.mentions), MAX_MENTIONS),
        ("topics", len(plan.topics), MAX_TOPICS),
    ):
        if count > limit:
            raise BlueprintError(f"{count} {what} for one turn; at most {limit}")
    texts = [("mention", mention.name, MAX_NAME_BYTES) for mention in plan.mentions]
    texts += [("topic label", topic.label, MAX_LABEL) for topic in plan.topics]
    texts += [("topic description", topic.description, MAX_DESCRIPTION) for topic in plan.topics]
    for what, value, limit in texts:
        _check_length(BlueprintError, f"{what} {value[:40]!r}", value, limit)


def _check_length(error: type[ConsolidationError], what: str, value: str, limit: int) -> None:
    if not value.strip() or len(value) > limit:
        raise error(f"{what} has {counted(len(value), 'character')}; expected 1 to {limit:,}")


def check_wording(plan: Blueprint, wording: Mapping[str, Wording]) -> None:
    """Check that exactly the operations that need a wording have one, and that its lengths are within the limits.

    Raises:
        WordingError: Names the operation and the value.
    """
    check_worded({name for op in plan.operations if (name := needs_words(op)) is not None}, wording.keys())
    for name, words in wording.items():
        _check_length(WordingError, f"label of {name!r}", words.label, MAX_LABEL)
        _check_length(WordingError, f"description of {name!r}", words.description, MAX_DESCRIPTION)


def check_worded(needed: AbstractSet[str], worded: AbstractSet[str]) -> None:
    """Raise WordingError, which names the first that differs, unless exactly the names that need words have some."""
    if missing := sorted(needed - worded):
        raise WordingError(f"no words for {missing[0]!r}")
    if surplus := sorted(worded - needed):
        raise WordingError(f"words for {shortened(surplus[0])}, which is not in the plan")


def needs_words(operation: Operation) -> str | None:
    """The key of an operation's wording in the scribe's result; None if the operation needs no wording."""
    if isinstance(operation, AddNode):
        return operation.ref
    if isinstance(operation, UpdateNode) and operation.draft is not None:
        return operation.id
    return None
