"""A memory as the long-term store of LangGraph: values by namespace and key, found by meaning.

It needs the core of LangGraph, which the extra ``langgraph`` installs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, TypeGuard

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
)

from locigraph.kg.errors import LocigraphError, UnknownSpaceError, shortened
from locigraph.kg.types import Turn, TurnId
from locigraph.memory import AsyncMemory, Memory
from locigraph.retrieval.conditions import MOST_VALUES
from locigraph.retrieval.protocols import MAX_TOP_K

_KEY, _VALUE, _CREATED, _UPDATED, _IS_INDEXED = "key", "value", "created", "updated", "is_indexed"
_MOST_LETTERS = 200
_MOST_FIELDS = 50
_FIELD = "value."  # before the name of a field by which items are filtered
_OTHER = "other."  # before the name of one that is there but cannot be compared


class MemoryStore(BaseStore):
    """Keeps the values that agents of LangGraph put, and finds them with ``recall``.

    A namespace is a space of the memory, and a value one turn of it: its text is what a search finds, so facts, topics
    and dates are drawn from it as from any other turn. A value that replaces another one erases it. ``forget``,
    ``export`` and keys of a server work as for other spaces.

    Values are JSON objects of at most some 7,000 letters (a letter outside ASCII counts as six) and 50 fields. Fields
    of numbers, booleans and texts of up to 200 letters, which filters compare with the operators of LangGraph, count
    twice. Reading or writing an item reads the turns of its namespace, and replacing one makes the index anew, so this
    is for hundreds of items that seldom change. There is no time to live, but see ``Memory.set_retention``.

    Example:
        >>> from locigraph import Memory
        >>> from locigraph.langgraph import MemoryStore
        >>> with Memory.open("memory.sqlite") as memory:
        ...     store = MemoryStore(memory)  # create_agent(..., store=store), or builder.compile(store=store)
        ...     store.put(("memories", "ana"), "m1", {"text": "Ana plays tennis on Saturdays.", "sure": True})
        ...     store.search(("memories", "ana"), query="What does Ana do at the weekend?")[0].key
        'm1'

    Args:
        memory: A ``Memory``, or an ``AsyncMemory``, which supports only the methods that begin with ``a``; not one with
            ``redact``, which could not give values back as they were.
        fields: Paths of the texts in a value that a search finds, as in ``index`` of ``put``; ``$`` is the whole value.
        prefix: Begins the names of the spaces; the namespace follows, joined by dots.
        speaker: Speaker of the turns.
    """

    __slots__ = ("_fields", "_memory", "_prefix", "_putting", "_speaker")

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        fields: Iterable[str] = ("$",),
        prefix: str = "store:",
        speaker: str = "memory",
    ) -> None:
        self._memory = memory
        self._fields = tuple(fields)
        self._prefix = prefix
        self._speaker = speaker
        self._putting = Lock()  # or two puts of a key would each keep theirs

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several operations, one after the other; raises LocigraphError if one cannot be done."""
        if isinstance(self._memory, AsyncMemory):
            raise LocigraphError("an AsyncMemory can only be used in a coroutine; await aget, aput, asearch or adelete")
        return self._done(ops, self._memory)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same as a coroutine, in a thread."""
        if isinstance(self._memory, AsyncMemory):
            work = list(ops)
            return await self._memory.call(partial(self._done, work), changes=any(isinstance(op, PutOp) for op in work))
        return await asyncio.to_thread(self._done, list(ops), self._memory)

    def _done(self, ops: Iterable[Op], memory: Memory) -> list[Result]:
        found: list[Result] = []
        for op in ops:
            if isinstance(op, GetOp):
                found.append(self._get(memory, op))
            elif isinstance(op, SearchOp):
                found.append(self._search(memory, op))
            elif isinstance(op, ListNamespacesOp):
                found.append(self._namespaces(memory, op))
            elif isinstance(op, PutOp):
                with self._putting:
                    self._put(memory, op)
                found.append(None)
            else:
                raise LocigraphError(f"operation {shortened(op)} is not known; this version of LangGraph is too new")
        return found

    def _get(self, memory: Memory, op: GetOp) -> Item | None:
        held = self._turns_of(memory, self._space(op.namespace), op.key)
        return None if not held else _item(op.namespace, held[-1])

    def _put(self, memory: Memory, op: PutOp) -> None:
        if memory.redacts:
            raise LocigraphError("the memory was opened with redact=True, so it cannot keep values as they are")
        space = self._space(op.namespace)
        # Also what an earlier put was interrupted before forgetting.
        before = self._turns_of(memory, space, op.key)
        if op.value is not None:
            value = _as_json(op.value)
            at = datetime.now(UTC)
            now = at.isoformat()
            made = before[0].metadata[_CREATED] if before else now
            fields: dict[str, Any] = {
                f"{_FIELD}{name}": value for name, value in op.value.items() if _is_compared(value)
            }
            others = [name for name, value in op.value.items() if value is not None and not _is_compared(value)]
            fields |= {f"{_OTHER}{name}": True for name in others[: max(0, _MOST_FIELDS - len(fields))]}
            is_indexed = op.index is not False
            memory.add(
                space=space,
                # Of its own, since values do not belong together, and in the order in which they come.
                session=now,
                speaker=self._speaker,
                text=self._text(op).strip() or op.key.strip() or "-",
                spoken_at=at,
                metadata={
                    **fields, _KEY: op.key, _VALUE: value, _CREATED: made,
                    _UPDATED: now, _IS_INDEXED: is_indexed,
                },
            )  # fmt: skip
        # Last, so that the value is there whenever the process ends.
        if before:
            memory.forget(space=space, turn_ids=[turn.turn_id for turn in before])

    def _text(self, op: PutOp) -> str:
        """What a search finds of a value."""
        assert op.value is not None
        fields = self._fields if op.index is None or op.index is False else op.index
        if fields == ("$",):
            return "\n".join(_leaves(op.value))
        return "\n".join(text for field in fields for text in get_text_at_path(dict(op.value), tokenize_path(field)))

    def _search(self, memory: Memory, op: SearchOp) -> list[SearchItem]:
        while True:
            try:
                return self._searched(memory, op)
            except UnknownSpaceError as error:  # the last value of a namespace was deleted meanwhile
                if error.space in memory.spaces():
                    raise

    def _searched(self, memory: Memory, op: SearchOp) -> list[SearchItem]:
        spaces = [space for space, namespace in self._known(memory) if _begins(namespace, op.namespace_prefix)]
        filters = [_condition(name, wanted) for name, wanted in (op.filter or {}).items()]
        if not op.limit:
            return []
        if not op.query or not op.query.strip():
            condition = {"$and": filters} if filters else {}
            held = [(space, turn) for space in spaces for turn in self._held(memory, space, condition)]
            return [self._found(space, turn, None) for space, turn in held[op.offset : op.offset + op.limit]]
        if not spaces:
            return []
        hits = memory.recall(
            op.query,
            space=spaces,
            top_k=min(op.offset + op.limit, MAX_TOP_K),
            fold=None,
            include_superseded=True,
            filter={"$and": [*filters, {"$type": "episode"}, {_IS_INDEXED: True}]},
        )
        turns: dict[tuple[str, TurnId], Turn] = {}
        for space in dict.fromkeys(hit.space for hit in hits):
            named = [turn for hit in hits if hit.space == space for turn in hit.turn_ids]
            keys = [turn.metadata[_KEY] for turn in memory.turns(space, turn_ids=named) if _is_item(turn)]
            # A value that is being replaced may still be found; the one that holds is the newest of its key.
            named_keys = [*dict.fromkeys(keys)]
            for at in range(0, len(named_keys), MOST_VALUES):
                newest = self._held(memory, space, {_KEY: {"$in": named_keys[at : at + MOST_VALUES]}})
                turns |= {(space, turn.turn_id): turn for turn in newest}
        shown = [(hit, turns.get((hit.space, hit.turn_ids[0]))) for hit in hits]
        found = [self._found(hit.space, turn, hit.score) for hit, turn in shown if turn is not None]
        return found[op.offset :]

    def _namespaces(self, memory: Memory, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        known = [
            namespace
            for space, namespace in self._known(memory)
            if all(_matches(namespace, each) for each in op.match_conditions or ()) and self._held(memory, space, {})
        ]
        cut = sorted({namespace[: op.max_depth] for namespace in known})
        return cut[op.offset : op.offset + op.limit]

    def _known(self, memory: Memory) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The spaces of this store, and their namespaces."""
        for space in memory.spaces():
            if space.startswith(self._prefix):
                yield space, tuple(space.removeprefix(self._prefix).split("."))

    def _space(self, namespace: tuple[str, ...]) -> str:
        return self._prefix + ".".join(namespace)

    def _held(self, memory: Memory, space: str, condition: Mapping[str, Any]) -> list[Turn]:
        """The turns of values that satisfy a condition, oldest first; of a value that is being replaced the new one."""
        newest = {str(turn.metadata[_KEY]): turn for turn in self._turns(memory, space, condition)}
        return [*newest.values()]

    def _turns_of(self, memory: Memory, space: str, key: str) -> list[Turn]:
        """All turns of the value of a key, the last put at the end."""
        same = self._turns(memory, space, {_KEY: key})
        return [turn for turn in same if turn.metadata[_KEY] == key]  # times that are equal are alike to a filter

    def _turns(self, memory: Memory, space: str, condition: Mapping[str, Any]) -> list[Turn]:
        """All turns of values that satisfy a condition, those that were put last at the end."""
        try:
            turns = memory.turns(space, filter=condition or None)
        except UnknownSpaceError:
            return []
        return sorted(filter(_is_item, turns), key=_updated)

    def _found(self, space: str, turn: Turn, score: float | None) -> SearchItem:
        item = _item(tuple(space.removeprefix(self._prefix).split(".")), turn)
        return SearchItem(
            item.namespace, item.key, item.value, created_at=item.created_at, updated_at=item.updated_at, score=score
        )


def _is_item(turn: Turn) -> bool:
    """Whether a turn is a value that was put, and not one that was added to its space in another way."""
    return {_KEY, _VALUE, _CREATED, _UPDATED} <= turn.metadata.keys()


def _updated(turn: Turn) -> str:
    return str(turn.metadata[_UPDATED])


def _item(namespace: tuple[str, ...], turn: Turn) -> Item:
    told = turn.metadata
    return Item(
        value=json.loads(str(told[_VALUE])),
        key=str(told[_KEY]),
        namespace=namespace,
        created_at=datetime.fromisoformat(str(told[_CREATED])),
        updated_at=datetime.fromisoformat(str(told[_UPDATED])),
    )


def _as_json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise LocigraphError(f"a value cannot be written as JSON: {error}; put only what JSON has") from None


def _is_compared(value: object) -> TypeGuard[str | int | float | bool]:
    """Whether items can be filtered by a value; a longer text is not kept a second time for it."""
    return isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= _MOST_LETTERS)


def _condition(name: str, wanted: object) -> dict[str, Any]:
    """The filter of ``recall`` for one of LangGraph's: a value, or operators and values."""
    is_operators = isinstance(wanted, Mapping) and bool(wanted) and all(str(key).startswith("$") for key in wanted)
    tests = dict(wanted) if isinstance(wanted, Mapping) and is_operators else {"$eq": wanted}
    field, absent = f"{_FIELD}{name}", {"$and": [{f"{kind}{name}": {"$exists": False}} for kind in (_FIELD, _OTHER)]}
    parts: list[dict[str, Any]] = []
    for test, operand in tests.items():
        if operand is None and test in ("$eq", "$ne"):
            parts.append(absent if test == "$eq" else {"$not": absent})
        elif _is_compared(operand):
            parts.append({field: {test: operand}})
        else:
            raise LocigraphError(
                f"filter {name} is {shortened(wanted)}; expected a text of at most {_MOST_LETTERS} letters, a number, "
                "a boolean, or operators with such values"
            )
    return {"$and": parts}


def _begins(namespace: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
    return namespace[: len(prefix)] == tuple(prefix)


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path, size = condition.path, len(condition.path)
    if len(namespace) < size:
        return False
    part = namespace[:size] if condition.match_type == "prefix" else namespace[len(namespace) - size :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


def _leaves(value: object) -> Iterator[str]:
    """The texts of a value, and its numbers with their names, in the order in which they stand."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if isinstance(each, int | float) and not isinstance(each, bool):
                yield f"{name}: {each}"
            else:
                yield from _leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str) and value.strip():
        yield value
