"""Conditions on hits, in the form that users of vector databases know: ``{"project": {"$ne": "boats"}}``.

A condition names a key of the metadata of turns, or one of ``$speaker``, ``$session``, ``$turn``, ``$spoken_at`` and
``$type`` (of the node). Times in ISO 8601 are compared as times, whatever their zones. A value stands for ``$eq``;
several conditions of an object must all hold. A hit whose words come from several turns is kept only if all of these
satisfy the filter, so that what is excluded never comes back in the words of a summary.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from locigraph.kg.errors import LocigraphError, nearest, shortened
from locigraph.kg.language.tokens import normalised
from locigraph.kg.metadata import scalar_of
from locigraph.kg.schema import NODE_TYPES
from locigraph.kg.times import in_utc, read_time
from locigraph.kg.types import Said, Scalar

_MOST_CONDITIONS, _DEEPEST = 100, 10
_MOST_LETTERS = 200_000  # of all texts of a filter together
#: Largest number of values after ``$in``.
MOST_VALUES = 1_000
#: Whether the words of a turn, in a node of a type, satisfy a filter.
Condition = Callable[[Said, str], bool]

_OWN: dict[str, Callable[[Said, str], Scalar | None]] = {
    "$speaker": lambda said, _: normalised("NFC", said.speaker),
    "$session": lambda said, _: said.session,
    "$turn": lambda said, _: said.turn_id,
    "$spoken_at": lambda said, _: None if said.spoken_at is None else in_utc(said.spoken_at).isoformat(),
    "$type": lambda _, kind: kind,
}
_ORDERED = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_OPERATORS = ("$eq", "$ne", "$in", "$nin", *_ORDERED, "$exists")
_JOINED = ("$and", "$or", "$not")
# A time with a clock; a day alone stays a text, which orders days rightly.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?")


def parsed(given: object) -> Condition:
    """The condition that a filter states.

    Raises:
        LocigraphError: If it is none: says where, and what is expected.
    """
    return _Parser().conditions(given, "filter", 0)


def spoken_by(speakers: Iterable[str]) -> Condition:
    """The condition that a turn was spoken by one of these; names that Unicode composes otherwise are the same."""
    names = {normalised("NFC", each) for each in speakers}
    return lambda said, kind: normalised("NFC", said.speaker) in names


class _Parser:
    def __init__(self) -> None:
        self._left = _MOST_CONDITIONS
        self._letters_left = _MOST_LETTERS

    def conditions(self, given: object, where: str, depth: int) -> Condition:
        if not isinstance(given, Mapping) or not given:
            raise LocigraphError(f"{where} is {shortened(given)}; expected an object of conditions")
        if depth > _DEEPEST:
            raise LocigraphError(f"{where} is nested more than {_DEEPEST} deep")
        return all_of([self._condition(str(key), value, f"{where}.{key}", depth) for key, value in given.items()])

    def _condition(self, key: str, value: object, where: str, depth: int) -> Condition:
        self._left -= 1
        if self._left < 0:
            raise LocigraphError(f"filter has more than {_MOST_CONDITIONS} conditions")
        if key == "$not":
            inner = self.conditions(value, where, depth + 1)
            return lambda said, kind: not inner(said, kind)
        if key in _JOINED:
            if not isinstance(value, Sequence) or isinstance(value, str) or not value:
                raise LocigraphError(f"{where} is {shortened(value)}; expected a list of objects of conditions")
            parts = [self.conditions(each, f"{where}[{at}]", depth + 1) for at, each in enumerate(value)]
            return all_of(parts) if key == "$and" else lambda said, kind: any(part(said, kind) for part in parts)
        if key.startswith("$") and key not in _OWN:
            known = [*_OWN, *_JOINED]
            raise LocigraphError(f"{where}: {key!r} is not known{nearest(key, known)}; known: {', '.join(known)}")
        tests = self._tests(key, value, where)
        read: Callable[[Said, str], Scalar | None] = _OWN.get(key) or (lambda said, _: _held(said, key))

        def holds(said: Said, kind: str) -> bool:
            found = read(said, kind)
            return all(test(found) for test in tests)

        return holds

    def _tests(self, key: str, value: object, where: str) -> list[Callable[[Scalar | None], bool]]:
        given = value if isinstance(value, Mapping) else {"$eq": value}
        if not given:
            raise LocigraphError(f"{where} is {{}}; expected a value, or an object of {', '.join(_OPERATORS)}")
        return [self._test(key, str(name), operand, f"{where}.{name}") for name, operand in given.items()]

    def _test(self, key: str, name: str, operand: object, where: str) -> Callable[[Scalar | None], bool]:
        if name not in _OPERATORS:
            raise LocigraphError(
                f"{where}: {name!r} is not known{nearest(name, _OPERATORS)}; known: {', '.join(_OPERATORS)}"
            )
        if name == "$exists":
            if not isinstance(operand, bool):
                raise LocigraphError(f"{where} is {shortened(operand)}; expected true or false")
            return lambda found: (found is not None) == operand
        if name in ("$in", "$nin"):
            if not isinstance(operand, Sequence) or isinstance(operand, str) or not 1 <= len(operand) <= MOST_VALUES:
                raise LocigraphError(f"{where} is {shortened(operand)}; expected a list of 1 to {MOST_VALUES:,} values")
            values = {_typed(self._value(key, each, where)) for each in operand}
            is_in = name == "$in"
            return lambda found: (_typed(found) in values) == is_in
        wanted = self._value(key, operand, where)
        if name in _ORDERED:
            compare: Callable[[Any, Any], bool] = _ORDERED[name]
            return lambda found: _kind(found) == _kind(wanted) and compare(found, wanted)
        is_equal = name == "$eq"
        return lambda found: (_typed(found) == _typed(wanted)) == is_equal

    def _value(self, key: str, value: object, where: str) -> Scalar:
        made = scalar_of(value, where)
        self._letters_left -= len(made) if isinstance(made, str) else 0
        if self._letters_left < 0:
            raise LocigraphError(f"the texts of filter have more than {_MOST_LETTERS:,} letters; name fewer values")
        if key == "$speaker" and isinstance(made, str):
            return normalised("NFC", made)
        if key == "$type":
            return NODE_TYPES[str(made)].name
        if key != "$spoken_at":
            return made if key in _OWN else _in_utc(made)
        try:
            time = read_time(str(made))
        except ValueError as error:
            raise LocigraphError(f"{where} is {shortened(value)}; expected a time in ISO 8601 ({error})") from None
        return str(scalar_of(time, where))


def _in_utc(value: Scalar) -> Scalar:
    """A time as ``Memory.add`` stores one, so that it compares with others; any other value as it is."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return value
    try:
        return in_utc(datetime.fromisoformat(value)).isoformat()
    except (ValueError, OverflowError):
        return value


def _held(said: Said, key: str) -> Scalar | None:
    value = said.metadata.get(key)
    return None if value is None else _in_utc(value)


def all_of(parts: Sequence[Condition]) -> Condition:
    """The condition that all of these hold."""
    return parts[0] if len(parts) == 1 else lambda said, kind: all(part(said, kind) for part in parts)


def _kind(value: Any) -> type | None:
    """What values must have in common to be compared; true and false are no numbers."""
    return bool if isinstance(value, bool) else float if isinstance(value, int | float) else type(value)


def _typed(value: Any) -> tuple[type | None, Any]:
    return _kind(value), value
