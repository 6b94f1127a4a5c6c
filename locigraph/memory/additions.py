"""Input of ``Memory.add``: checks the turns, and creates the extractor that builds the graph from them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from locigraph.assembly import options
from locigraph.consolidation.errors import LanguageModelError
from locigraph.kg.errors import LocigraphError, StoreError, shortened
from locigraph.kg.metadata import metadata_of
from locigraph.kg.store import Store
from locigraph.kg.types import NAME_RULE, UNSTORABLE, Scope, SpaceId, Turn, TurnId, TurnState, is_name
from locigraph.retrieval.errors import RetrievalError

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient
    from locigraph.consolidation.protocols import Extractor


def extractor_maker(name: str, clients: Callable[[str], ChatClient]) -> Callable[[], Extractor]:
    """A function that creates the named extractor, to be called at the first addition; wrong settings raise at once."""
    from locigraph.consolidation.extractors import EXTRACTORS

    able = [row.name for row in EXTRACTORS.values() if not row.is_replay]
    if name not in able:
        raise LocigraphError(
            f"consolidation is {name!r}; added turns can be consolidated by {' or '.join(able)} (a corpus with "
            "recorded extractions needs locigraph build)"
        )
    EXTRACTORS[name].build((), clients)  # raises if no model is named or a package is not installed
    return lambda: EXTRACTORS[name].build((), clients)


def turns_of(given: Iterable[Mapping[str, Any]]) -> list[tuple[Turn, Scope]]:
    """Turns from mappings of the arguments of ``Memory.add``, each with the user and agent of its space.

    Raises:
        LocigraphError: If they are not mappings, an argument is unknown or missing, or its value is invalid.
    """
    made = []
    for place, each in enumerate(mappings_of(given)):
        try:
            made.append(_turn(place, **each))
        except LocigraphError as error:
            raise LocigraphError(f"turn {place}: {error}") from error
        except TypeError as error:
            said = str(error).removeprefix("_turn() ")
            raise LocigraphError(f"turn {place}: {said}; give each turn as the arguments of Memory.add") from error
    return made


def mappings_of(given: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The given turns as a list; raises LocigraphError if one of them is not a mapping, or they are not several."""
    options.check_list("turns", given, "turns")
    turns = list(given)
    for place, turn in enumerate(turns):
        if not isinstance(turn, Mapping):
            raise LocigraphError(f"turn {place} is {shortened(turn)}; give each turn as the arguments of Memory.add")
    return turns


def _turn(
    place: int,
    *,
    space: str,
    session: str,
    speaker: str,
    text: str,
    spoken_at: str | datetime | None = None,
    turn_id: str | None = None,
    image_caption: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    expires_at: str | datetime | None = None,
) -> tuple[Turn, Scope]:
    texts: dict[str, object] = {"space": space, "session": session, "speaker": speaker, "text": text}
    optional = {"turn_id": turn_id, "image_caption": image_caption, "user": user, "agent": agent}
    texts |= {name: value for name, value in optional.items() if value is not None}
    for name, value in texts.items():
        if not isinstance(value, str) or UNSTORABLE.search(value):
            raise LocigraphError(f"{name} is {shortened(value)}; expected text without NUL and lone surrogates")
        if name in ("space", "session", "speaker", "turn_id") and not is_name(value):
            raise LocigraphError(f"{name} is {shortened(value)}; expected {NAME_RULE}")
    if not text.strip() and not (image_caption or "").strip():
        raise LocigraphError(
            f"text is {shortened(text)}, and there is no image_caption; a turn needs at least one of them"
        )
    time = options.time_of(spoken_at)
    name = new_turn_id() if turn_id is None else TurnId(turn_id)
    ends = options.time_of(expires_at)
    turn = Turn(
        SpaceId(space), name, space, session, place, speaker, text, time, image_caption, metadata_of(metadata), ends
    )  # fmt: skip
    return turn, Scope(user, agent)


def new_turn_id() -> TurnId:
    """A random ID for a new turn."""
    return TurnId(uuid.uuid4().hex[:16])


def after_outage(
    graph: Store, named: Sequence[tuple[SpaceId, TurnId]], error: LocigraphError
) -> list[TurnId | LocigraphError]:
    """The outcome of each turn of an addition that an outage ended: its ID if it is consolidated, else an error.

    The turns are not tried one by one, since each would meet the same outage.
    """
    by_space = dict[SpaceId, list[TurnId]]()
    for space, turn in named:
        by_space.setdefault(space, []).append(turn)
    states = {space: graph.states_of(space, turns) for space, turns in by_space.items()}

    def left(space: SpaceId, turn: TurnId) -> TurnId | LocigraphError:
        state = states[space].get(turn)
        if state is None:
            return error
        if state is not TurnState.PENDING:
            return turn
        stored = f"turn {turn!r} is stored and will be consolidated later, so do not add it again"
        pending = type(error)(f"{stored}: {error}")
        pending.public = error.public and f"{stored}: {error.public}"
        return pending

    return [left(space, turn) for space, turn in named]


def stored_all_the_same(graph: Store, turn: Mapping[str, Any], error: LocigraphError, *, is_new: bool) -> TurnId:
    """The ID of a turn whose addition ended with an error, if it is consolidated all the same.

    Args:
        graph: The store.
        turn: The arguments of ``Memory.add``.
        error: The error.
        is_new: Whether the ID was made for this addition; any other may be that of an earlier turn.

    Raises:
        LocigraphError: The error; with the addition that the turn is stored, if it is.
    """
    space, name = turn.get("space"), turn["turn_id"]
    if (
        not isinstance(space, str)
        or not isinstance(name, str)
        or not (is_new or isinstance(error, LanguageModelError | RetrievalError))
    ):
        raise error
    try:
        (left,) = after_outage(graph, [(SpaceId(space), TurnId(name))], error)
    except LocigraphError:  # the store cannot be asked
        raise error from None
    if isinstance(left, LocigraphError):
        raise left from (None if left is error else error)
    return left


def fault_of_added(graph: Store, space: SpaceId, turn: TurnId) -> StoreError | None:
    """The error for an added turn that was skipped because it had been forgotten; None if it had not."""
    if not graph.forgotten(space, [turn]):
        return None
    return StoreError(
        f"space {space!r}: turn {turn!r} was forgotten; give the turn another id, or allow this one again first, "
        "with Memory.restore or, on the machine that has the store, with locigraph forget --restore"
    )
