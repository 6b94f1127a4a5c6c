"""Parses and checks options: names, questions, limits and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING

from locigraph.kg.errors import LocigraphError, nearest, shortened
from locigraph.kg.name_list import Names, names_in
from locigraph.kg.registry import RowT, Table, UnknownNameError
from locigraph.kg.times import TIME_RANGE, in_utc, is_in_range
from locigraph.kg.types import UNSTORABLE, Scope, SpaceId

if TYPE_CHECKING:
    from locigraph.retrieval.budgets import KindLimits


def names(given: Names, table: Table[RowT]) -> list[str]:
    """Names of rows of a table, as a list or separated by commas; returns them without duplicates.

    Raises:
        UnknownNameError: If the table lacks one; the message lists those that it holds.
    """
    return list(dict.fromkeys(table[name].name for name in names_in(given)))


def listed(given: str | Sequence[str]) -> list[str]:
    """The given names as a list; a string is one name, not a sequence of letters.

    Raises:
        LocigraphError: If it is neither a name nor several.
    """
    names: list[str] = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for name in names:
        if not isinstance(name, str):
            raise LocigraphError(f"the name {shortened(name)} is not text; names of spaces, turns and speakers are")
    return names


def one_space(space: str) -> SpaceId:
    """The name of a space; raises LocigraphError if it is no text, such as a list of several."""
    if not isinstance(space, str):
        raise LocigraphError(f"space is {shortened(space)}; expected the name of one space")
    return SpaceId(space)


def check_question(question: str) -> None:
    """Raise LocigraphError if a question is empty, or holds characters that no stored text has."""
    if not isinstance(question, str):
        raise LocigraphError(f"the question is {shortened(question)}; expected text")
    if not question.strip():
        raise LocigraphError("the question is empty; say what to look for")
    if UNSTORABLE.search(question):
        raise LocigraphError(f"the question {question[:40]!r} contains NUL or a lone surrogate; remove it")


def check_recall(
    question: str,
    *,
    top_k: int,
    budget_tokens: int | None,
    budget_kinds: Mapping[str, int] | None,
    as_of: object,
    strategy: str | None,
    fold: object,
    min_confidence: object = None,
    queries: object = None,
) -> None:
    """Raise LocigraphError, before anything is opened, if an argument of ``Memory.recall`` is invalid."""
    from locigraph.assembly.strategies import STRATEGIES, recalled
    from locigraph.retrieval.protocols import MAX_TOP_K

    check_question(question)
    if strategy is not None and not isinstance(strategy, str):
        raise LocigraphError(f"strategy is {shortened(strategy)}; expected a name, or None")
    if strategy is not None and strategy not in recalled():
        if strategy not in STRATEGIES:
            raise UnknownNameError("strategy", strategy, recalled())
        is_v2 = STRATEGIES[strategy].searches_graph_embeddings
        ending = "in recall, use v2 with --checkpoint" if is_v2 else "it is trained there, inside folds"
        raise LocigraphError(f"strategy {strategy!r} is only for locigraph evaluate; {ending}")
    check_positive("top_k", top_k)
    if top_k > MAX_TOP_K:
        raise LocigraphError(f"top_k is {top_k}; expected at most {MAX_TOP_K}")
    if budget_tokens is not None:
        check_positive("budget_tokens", budget_tokens)
    if budget_kinds is not None and budget_tokens is None:
        raise LocigraphError("budget_kinds limits a context, but no context was asked for; set budget_tokens too")
    kind_limits(budget_kinds)
    if fold is not None and not (isinstance(fold, int | float) and 0 < fold <= 1):
        raise LocigraphError(
            f"fold is {shortened(fold)}; expected a word similarity above 0 and up to 1, or null to fold nothing"
        )
    if min_confidence is not None:
        if isinstance(min_confidence, bool) or not isinstance(min_confidence, int | float):
            raise LocigraphError(f"min_confidence is {shortened(min_confidence)}; expected a number from 0 to 1")
        if not 0 <= min_confidence <= 1:
            raise LocigraphError(f"min_confidence is {min_confidence}; expected a number from 0 to 1")
        if strategy not in (None, "v2"):
            raise LocigraphError(f"min_confidence needs v2, but strategy is {strategy!r}; leave one of them out")
    if queries is not None and not callable(queries):
        raise LocigraphError(f"queries is {shortened(queries)}; expected a function such as generate_queries, or None")
    time_of(as_of)


def check_positive(name: str, value: object) -> None:
    """Raise LocigraphError, which names the argument, unless its value is a whole number of at least 1."""
    if type(value) is not int:
        raise LocigraphError(f"{name} is {shortened(value)}; expected a whole number")
    if value < 1:
        raise LocigraphError(f"{name} is {value}; expected at least 1")


def kind_limits(given: Mapping[str, int] | None) -> KindLimits:
    """Limits of a context by kind of memory; a kind that is not named has none.

    Raises:
        LocigraphError: If they are no mapping, a name is not a kind of memory, or a limit is not a whole number of at
            least 0.
    """
    from locigraph.retrieval.budgets import KindLimits

    if given is not None and not isinstance(given, Mapping):
        raise LocigraphError(f"budget_kinds is {shortened(given)}; expected a mapping from kinds of memory to numbers")
    kinds = [field.name for field in fields(KindLimits)]
    for kind, limit in (given or {}).items():
        if kind not in kinds:
            hint = nearest(str(kind), kinds)
            raise LocigraphError(f"budget_kinds names {shortened(kind)}, which is not a kind of memory{hint}")
        if type(limit) is not int or limit < 0:
            raise LocigraphError(f"budget_kinds: {kind} is {shortened(limit)}; expected a whole number, 0 or more")
    return KindLimits(**(given or {}))


def check_named(space: str | Sequence[str] | None, scope: Scope) -> None:
    """Raise LocigraphError unless a space, or a user or agent, is named."""
    if not (space or scope):
        raise LocigraphError("no space is named; name a space (locigraph spaces lists them), or a user or agent")


def time_of(given: object) -> datetime | None:
    """A time in UTC from a datetime or a text in ISO 8601; None stays None.

    Raises:
        LocigraphError: If a text is not such a time, or the time is out of range.
    """
    if given is None:
        return None
    text = str(given)
    try:
        time = given if isinstance(given, datetime) else datetime.fromisoformat(text)
    except ValueError as error:
        raise LocigraphError(
            f"time {shortened(text)} is not ISO 8601; expected a time such as 2024-06-30T00:00:00"
        ) from error
    if not is_in_range(time):
        raise LocigraphError(f"time is {shortened(text)}; expected {TIME_RANGE}")
    return in_utc(time)
