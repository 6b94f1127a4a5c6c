"""What a memory holds about one person: the facts that hold now, by category, each with its day and its sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from locigraph.kg.errors import LocigraphError, nearest, shortened
from locigraph.kg.language.tokens import normalised
from locigraph.kg.schema import dated_types
from locigraph.kg.store import Store
from locigraph.kg.types import Node, NodeId, SpaceId, TurnId
from locigraph.memory.known_nodes import KnownNode
from locigraph.retrieval.budgets import count_tokens
from locigraph.retrieval.hit_filters import is_kept

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

_FACTS, _EVENTS = "facts", "events"  # categories of those that were not classified


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact or an event about a person.

    Attributes:
        text: What is known.
        category: The category that ``locigraph classify`` has put it under; ``facts`` or ``events`` without one.
        day: The day of an event, or on which a fact was stated last; None if that is not known.
        space: The space in which it was said.
        turn_ids: The turns that it was taken from.
    """

    text: str
    category: str
    day: date | None
    space: str
    turn_ids: tuple[TurnId, ...]

    def __str__(self) -> str:
        return self._line(with_space=False)

    def _line(self, *, with_space: bool) -> str:
        """The statement with its day and turns, these with the space where two could have turns of one ID."""
        when = "" if self.day is None else f"{self.day}, "
        turns = [f"{self.space}:{turn}" if with_space else turn for turn in self.turn_ids]
        return f"- {self.text} ({when}{', '.join(turns)})"


@dataclass(frozen=True, slots=True)
class Profile(Sequence[Statement]):
    """What is known about a person, the categories with the newest statements first; ``str`` gives it as text.

    Attributes:
        speaker: The person.
        statements: What is known, category by category, the newest first.
        left_out: Number of statements that did not fit into the budget.
    """

    speaker: str
    statements: tuple[Statement, ...]
    left_out: int = 0

    def __getitem__(self, place: int) -> Statement:  # type: ignore[override]  # slices are not needed
        return self.statements[place]

    def __len__(self) -> int:
        return len(self.statements)

    def __str__(self) -> str:
        return "\n".join(_lines(self.speaker, self.statements))

    def as_json(self) -> dict[str, object]:
        """The profile as a JSON object."""
        return {
            "speaker": self.speaker,
            "statements": [
                {
                    "text": each.text, "category": each.category, "day": None if each.day is None else str(each.day),
                    "space": each.space, "turn_ids": list(each.turn_ids),
                }
                for each in self.statements
            ],
            "left_out": self.left_out,
        }  # fmt: skip


def profile_of(
    graph: Store,
    known_of: Mapping[SpaceId, Mapping[NodeId, KnownNode]],
    nodes_of: Mapping[SpaceId, Sequence[Node]],
    *,
    speaker: str | None,
    budget_tokens: int,
    now: datetime,
) -> Profile:
    """The profile of a person from the facts and events of some spaces.

    Args:
        graph: The store, which knows the categories.
        known_of: What is known of the nodes of each space.
        nodes_of: The facts and events of each space.
        speaker: The person; None for whom most is known about.
        budget_tokens: Size of the profile's text; what was stated last goes first.
        now: What expires until then is left out.

    Raises:
        LocigraphError: If nobody of that name speaks in the spaces.
    """
    expired = {space: frozenset(turns) for space, turns in graph.expired(now, [*nodes_of]).items()}
    stated = [
        (name, each)
        for space, nodes in nodes_of.items()
        for name, each in _stated(graph, space, nodes, known_of[space], expired.get(space, frozenset()), now)
    ]
    if speaker is None:
        counts = Counter(name for name, _ in stated)
        speaker = min(counts, key=lambda name: (-counts[name], name)) if counts else ""
    else:
        speaking = {normalised("NFC", each) for space in nodes_of for each in graph.speakers(space, now=now)}
        speaker = normalised("NFC", speaker)
        if speaker not in speaking:
            raise LocigraphError(f"no speaker {shortened(speaker)} in these spaces{nearest(speaker, speaking)}")
    newest = sorted((each for name, each in stated if name == speaker), key=_age)
    return _within(speaker, newest, budget_tokens)


def worded(profile: Profile, client: ChatClient) -> Profile:
    """A profile whose statements a language model has joined to fewer sentences, those of each category and space.

    A sentence has the turns of all statements that it rests on, and the newest of their days.

    Raises:
        LanguageModelError: If the model cannot be asked, or a limit is reached.
    """
    from locigraph.consolidation.profile_writer import sentences_of

    groups: dict[tuple[str, str], list[Statement]] = {}
    for each in profile:
        groups.setdefault((each.category, each.space), []).append(each)
    made: list[Statement] = []
    for (category, space), held in groups.items():
        shown = [(each.text, None if each.day is None else str(each.day)) for each in held]
        for sentence in sentences_of(client, profile.speaker, category, shown, SpaceId(space)):
            of = [held[place] for place in sentence.statements]
            days = [each.day for each in of if each.day is not None]
            turns = dict.fromkeys(turn for each in of for turn in each.turn_ids)
            made.append(Statement(sentence.text, category, max(days, default=None), space, tuple(turns)))
    order = {category: place for place, (category, _) in enumerate(groups)}
    return replace(profile, statements=tuple(sorted(made, key=lambda each: order[each.category])))


def _age(each: Statement) -> tuple[int, str]:
    return (-each.day.toordinal() if each.day is not None else 0, each.text)


def _within(speaker: str, newest: Sequence[Statement], budget_tokens: int) -> Profile:
    """As many of the newest statements as the budget allows, by category."""
    kept: list[Statement] = []
    used, headings = count_tokens(speaker), set[str]()
    is_joint = _are_joint(newest)
    for each in newest:
        cost = count_tokens(each._line(with_space=is_joint)) + (
            0 if each.category in headings else count_tokens(each.category)
        )
        if used + cost > budget_tokens:
            continue
        used += cost
        headings.add(each.category)
        kept.append(each)
    order = {category: place for place, category in enumerate(dict.fromkeys(each.category for each in kept))}
    return Profile(speaker, tuple(sorted(kept, key=lambda each: order[each.category])), len(newest) - len(kept))


def _are_joint(statements: Sequence[Statement]) -> bool:
    """Whether statements are of several spaces, whose turns may have the same IDs."""
    return len({each.space for each in statements}) > 1


def _lines(speaker: str, statements: Sequence[Statement]) -> Iterator[str]:
    yield speaker
    is_joint = _are_joint(statements)
    heading = None
    for each in statements:
        if each.category != heading:
            yield each.category
            heading = each.category
        yield each._line(with_space=is_joint)


def _stated(
    graph: Store,
    space: SpaceId,
    nodes: Sequence[Node],
    known: Mapping[NodeId, KnownNode],
    expired: AbstractSet[TurnId],
    now: datetime,
) -> Iterator[tuple[str, Statement]]:
    """The facts of a space that hold, and its events, each with the only speaker whose words it has."""
    categories = _categories(graph, space, expired)
    places = graph.places_of(space, [*{turn for node in nodes for turn in node.provenance}])
    for node in nodes:
        each = known[node.id].without_expired(now)
        has_ended = bool(each.replaced) or each.until is not None
        holds = not has_ended and all(is_kept(said, now) for said in each.said)
        if each.text is None or not holds or len(each.speakers) != 1:
            continue
        is_event = node.type in dated_types()
        # Of the turns that say the same again, the last tells how new it is.
        again = [turn for turn in node.provenance if turn not in expired][-1:]
        turns = dict.fromkeys([*(said.turn_id for said in each.said), *again])
        spoken = (places[turn][1] for turn in turns if turn in places)
        day = node.valid_from if is_event else max((at for at in spoken if at is not None), default=None)
        (name,) = each.speakers
        yield (
            normalised("NFC", name),
            Statement(
                each.text,
                categories.get(node.id, _EVENTS if is_event else _FACTS),
                None if day is None else day.date(),
                space,
                tuple(turns),
            ),
        )


def _categories(graph: Store, space: SpaceId, expired: AbstractSet[TurnId]) -> dict[NodeId, str]:
    """The labels of the categories of facts and events; not of those that name what has expired."""
    held = graph.nodes(space, types=["event_category", "knowledge_category"])
    # Earlier versions filed what was like nothing else under one that has no source turns.
    named = {node.id: node.label for node in held if node.provenance and expired.isdisjoint(node.provenance)}
    if not named:
        return {}
    edges = graph.relations(space)
    return {each.target: named[each.source] for each in edges if each.label == "CONTAINS" and each.source in named}
