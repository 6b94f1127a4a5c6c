"""Recognises turns that an export has under another id, where ids are made of content that has changed since."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from locigraph.kg.times import epoch, optional_epoch
from locigraph.kg.types import Turn, TurnId

#: A kind of likeness, and the fields of a turn in which it consists.
Mark = tuple[str | int | None, ...]
_K = TypeVar("_K", bound=Hashable)
# In this order: the time is new or was read otherwise, the speaker was renamed, the words were edited.
_RETIMED, _RENAMED, _EDITED = "retimed", "renamed", "edited"


def marks_of(turn: Turn) -> list[Mark]:
    """The marks by which a known turn is recognised in a later export."""
    time = optional_epoch(turn.spoken_at)
    marks: list[Mark] = [(_RETIMED, turn.speaker, turn.text, time)]
    return marks if time is None else [*marks, (_RENAMED, turn.text, time), (_EDITED, turn.speaker, time)]


def marks_sought(turn: Turn) -> list[Mark]:
    """The marks of a known turn that an exported one may be; none if the exported one has no time."""
    if turn.spoken_at is None:
        return []
    time, other = epoch(turn.spoken_at), _day_and_month_exchanged(turn.spoken_at)
    earlier = (None, *([] if other is None else [epoch(other)]))
    return [
        *((_RETIMED, turn.speaker, turn.text, read) for read in earlier),
        (_RENAMED, turn.text, time),
        (_EDITED, turn.speaker, time),
    ]


def recognised(turns: Sequence[Turn], known: Mapping[Mark, Sequence[_K]]) -> dict[TurnId, _K]:
    """Which known turn each of some exported turns is; turns that are none of them are left out.

    Args:
        turns: Exported turns with unknown ids.
        known: Keys of known turns whose ids the export lacks, by their marks. Each is recognised at most once.
    """
    found: dict[TurnId, _K] = {}
    taken = set[_K]()
    free = {mark: deque(keys) for mark, keys in known.items()}
    for kind in (_RETIMED, _RENAMED, _EDITED):
        left = [turn for turn in turns if turn.turn_id not in found]
        asked = [(turn, mark) for turn in left for mark in marks_sought(turn) if mark[0] == kind]
        number = Counter(mark for _, mark in asked)
        for turn, mark in asked:
            keys = free.get(mark, deque())
            while keys and keys[0] in taken:  # each is passed once, so many equal messages take linear time
                keys.popleft()
            # Of several messages of a speaker in one minute it cannot be told which was edited to which.
            is_clear = kind != _EDITED or (number[mark] == 1 and sum(key not in taken for key in keys) == 1)
            if keys and is_clear and turn.turn_id not in found:
                found[turn.turn_id] = keys[0]
                taken.add(keys[0])
    return found


def _day_and_month_exchanged(time: datetime) -> datetime | None:
    """The time if day and month had been taken for each other; None if it would be none, or the same."""
    if time.day > 12 or time.day == time.month:
        return None
    return time.replace(month=time.day, day=time.month)
