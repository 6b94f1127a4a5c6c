"""Contexts for a human reader or a language model: the hits of any strategy, cut to a budget."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, Protocol

from locigraph.kg.language.tokens import one_line
from locigraph.kg.schema import EPISODE, dated_types
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.text_caches import cached
from locigraph.kg.times import day_in_words, moment
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval.budgets import TOKENS_PER_HIT, UNLIMITED, Budget, RemainingBudget, count_tokens
from locigraph.retrieval.excerpts import GAP, Excerpts
from locigraph.retrieval.hits import searches
from locigraph.retrieval.protocols import MAX_TOP_K, Hit, Result, Retriever

#: A turn that takes more of the tokens of a context than this share of them is shown by an excerpt, of at least so many
#: tokens. On long talk an eighth holds most of the words of the answers (docs/experiments/history.md, 2026-11-28).
_SHARE_OF_TURN, _LEAST_OF_TURN = 8, 60
_LEAST_OF_EXCERPT = 10  # less of a turn says nothing


@dataclass(frozen=True, slots=True)
class ContextLine:
    """A memory in a context.

    Attributes:
        node_id: ID of the node.
        type: Type of the node.
        text: Its text; of a turn that is long for the context, an excerpt.
        said_on: The day on which it was said; None where that is not known.
        again_on: Further days on which the same was said.
        turn_ids: Its source turns.
        until: The day on which a later fact superseded it; None while it holds, and if that is not known.
        is_replaced: Whether something has replaced it.
    """

    node_id: NodeId
    type: str
    text: str
    said_on: date | None
    turn_ids: tuple[TurnId, ...]
    until: date | None = None
    again_on: tuple[date, ...] = ()
    is_replaced: bool = False

    def __str__(self) -> str:
        """The line as a reader sees it; line breaks in the text become spaces."""
        said = [] if self.said_on is None else [day_in_words(self.said_on)]
        said += [f"also {day_in_words(day)}" for day in self.again_on]
        if self.until is not None:
            said.append(f"until {day_in_words(self.until)}")
        elif self.is_replaced:
            said.append("replaced")
        dated = f"[{', '.join(said)}] " if said else ""
        return one_line(f"{dated}{self.text} ({', '.join(self.turn_ids)})")


@dataclass(frozen=True, slots=True)
class Omission:
    """A note in place of memories that were found but left out."""

    count: int

    def __str__(self) -> str:
        """The brevity code as a reader sees it."""
        return f"[... {self.count} more]"


@dataclass(frozen=True, slots=True)
class Context:
    """Memories in order, possibly with notes on omitted ones; ``left_out`` counts the hits that did not fit."""

    lines: tuple[ContextLine | Omission, ...]
    left_out: int

    def __str__(self) -> str:
        """One line for each memory."""
        return "\n".join(self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The lines as a reader sees them."""
        return tuple(_measured(line).text for line in self.lines)

    @property
    def memories(self) -> tuple[ContextLine, ...]:
        """The lines that are memories."""
        return tuple(line for line in self.lines if isinstance(line, ContextLine))

    @property
    def tokens(self) -> int:
        """Number of tokens of the context, by ``count_tokens``."""
        return sum(_measured(line).tokens for line in self.lines)


class Told(NamedTuple):
    """Where a turn stands among all, and the day on which it was said; None where that is not known."""

    place: tuple[int, int]
    day: date | None


_NEVER = Told((sys.maxsize, 0), None)  # of what no known turn says


class Dates(Protocol):
    """Knows when what hits contain was said, and how long it held."""

    def of_turns(self, ids: Collection[TurnId]) -> Mapping[TurnId, Told]:
        """Place and day of those of these turns that are known."""

    def ends(self, hits: Sequence[Hit]) -> Mapping[NodeId, date | None]:
        """The day on which something took the place of a fact, None while it holds; of other hits, ``until`` tells."""


class SnapshotDates:
    """The dates of a snapshot of a space.

    Args:
        snapshot: The snapshot.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of_turns(self, ids: Collection[TurnId]) -> Mapping[TurnId, Told]:
        """See ``Dates``."""
        place, spoken_at = self._snapshot.place_of, self._snapshot.spoken_at
        return {turn: Told((0, place[turn]), _day(int(spoken_at[place[turn]]))) for turn in ids if turn in place}

    def ends(self, hits: Sequence[Hit]) -> Mapping[NodeId, date | None]:
        """See ``Dates``."""
        row_of, valid_to, dated = self._snapshot.row_of, self._snapshot.valid_to, dated_types()
        facts = [hit.node_id for hit in hits if hit.type not in dated and hit.node_id in row_of]
        return {node: _day(int(valid_to[row_of[node]])) for node in facts}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A line, its cost in tokens and words, and its sort key in the context."""

    line: ContextLine
    cost: tuple[int, int]
    place: tuple[int, tuple[int, int], bool, NodeId]


def _candidates(hits: Sequence[Hit], dates: Dates, order: Sequence[NodeId] | None) -> list[_Candidate]:
    told = dates.of_turns({turn for hit in hits for turn in (*hit.turn_ids, *hit.same)})
    ends = dates.ends(hits)
    given = {} if order is None else {node: at for at, node in enumerate(order)}
    candidates = []
    for hit in hits:
        first = min((told[turn] for turn in hit.turn_ids if turn in told), default=_NEVER, key=attrgetter("place"))
        until = ends.get(hit.node_id, hit.until)
        others = {told[turn].day for turn in hit.same if turn in told}
        again_on = tuple(sorted(day for day in others - {first.day} if day is not None))
        line = ContextLine(
            hit.node_id, hit.type, hit.text, first.day, hit.turn_ids, until, again_on, bool(hit.superseded_by)
        )
        key = given.get(hit.node_id, len(given)), first.place, hit.type != EPISODE, hit.node_id
        candidates.append(_Candidate(line, _measured(line)[1:], key))
    return candidates


def _shortened(candidates: Sequence[_Candidate], excerpts: Excerpts, budget: Budget) -> list[_Candidate]:
    """The candidates, with excerpts of the turns that are long for the budget."""
    most = max(budget.tokens // _SHARE_OF_TURN, _LEAST_OF_TURN)

    def shown(each: _Candidate) -> _Candidate:
        # Beside the words there are the speaker, the date, the ID, and the gaps of the excerpt.
        words = count_tokens(each.line.text.partition(": ")[2])
        room = min(most, budget.tokens - (each.cost[0] - words) - count_tokens(f"{GAP} {GAP}"))
        if each.line.type != EPISODE or each.cost[0] <= most or room < _LEAST_OF_EXCERPT:
            return each
        line = replace(each.line, text=excerpts.of(each.line.text, room))
        return replace(each, line=line, cost=_measured(line)[1:])

    return [shown(each) for each in candidates]


def _packed(candidates: Sequence[_Candidate], budget: Budget, *, brevity: bool) -> tuple[Context, bool]:
    """The context of a budget, and whether it is full.

    It is full if a hit was left out and no average line would fit, or if all kinds are full.
    """
    in_order = sorted(range(len(candidates)), key=lambda at: candidates[at].place)
    left = RemainingBudget(budget)
    taken = [left.take(each.cost, each.line.type) for each in candidates]
    costs = [each.cost for each, fits in zip(candidates, taken, strict=True) if fits]
    is_full = (len(costs) < len(taken) and left.is_used_up(costs)) or len(costs) >= budget.kinds.total
    lines: list[ContextLine | Omission] = []
    for is_shown, group in groupby(in_order, key=taken.__getitem__):
        run = list(group)
        omission = Omission(len(run))
        if is_shown:
            lines += [candidates[at].line for at in run]
        elif brevity and left.take(_measured(omission)[1:]):
            lines.append(omission)
    return Context(tuple(lines), len(taken) - len(costs)), is_full


def retrieve_contexts(
    retriever: Retriever,
    question: str,
    dates: Dates,
    budgets: Sequence[Budget],
    *,
    space: SpaceId,
    as_of: datetime | None = None,
    top_k: int = 1,
) -> tuple[Result, list[Context]]:
    """Search with a strategy and pack its hits into one context per budget; returns the result and the contexts.

    Hits are taken best first. A hit that does not fit is left out and the next one is tried, so that a long memory does
    not end the context. A turn that would take more than an eighth of the tokens is shown by an excerpt: the sentences
    that share most with the question. No budget is ever exceeded. Lines are in the strategy's own order if it has one,
    and otherwise in the order in which the memories were said, where a turn comes before the facts that were extracted
    from it.

    The search is repeated for twice as many turns until every context is full or there are no more hits.

    Args:
        retriever: The strategy.
        question: The question.
        dates: Tells days and order of what is found, as known at ``as_of``.
        budgets: How much each context may hold.
        space: The space to search.
        as_of: Time at which the memory is searched; None for now.
        top_k: Smallest number of turns to search for.
    """
    rules = retriever.context_rules
    within = [budget.within(rules.budget) for budget in budgets]
    most = max((budget.tokens for budget in within if budget.tokens < UNLIMITED), default=0)
    wanted = min(max(top_k, 1 + most // TOKENS_PER_HIT), MAX_TOP_K)
    for result in searches(retriever, question, space, as_of=as_of, top_k=wanted, growth=2, most=MAX_TOP_K):
        order = retriever.arrange(question, result.hits, space, as_of)
        candidates = _candidates(result.hits, dates, order)
        excerpts = Excerpts(question, [hit.text for hit in result.hits if hit.type == EPISODE])
        packed = [_packed(_shortened(candidates, excerpts, budget), budget, brevity=rules.brevity) for budget in within]
        if all(is_full for _, is_full in packed):
            break
    return result, [context for context, _ in packed]


class _Measured(NamedTuple):
    """A line as a reader sees it, and its numbers of tokens and words."""

    text: str
    tokens: int
    words: int


@cached(2**17)  # an evaluation packs the same memories for every strategy
def _measured(line: ContextLine | Omission) -> _Measured:
    text = str(line)
    return _Measured(text, count_tokens(text), len(text.split()))


@lru_cache(maxsize=2**16)
def _day(seconds: int) -> date | None:
    return None if seconds == NO_TIME else moment(seconds).date()
