from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.types import NodeId, Replacement, Said, SpaceId, TurnId
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing
from locigraph.retrieval.superseding import SupersedingRetriever

SPACE = SpaceId("s")
LEARNT = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Node:
    """A node with what has replaced it."""

    replaced: tuple[Replacement, ...] = ()


def by(turn: str, *nodes: str, at: datetime = LEARNT, **more: Any) -> Replacement:
    """What a turn has replaced, by default a node of the same name."""
    said = Said(TurnId(turn), "s1", "Ann", **{"spoken_at": at, **more})
    return Replacement(said, at, tuple(map(NodeId, nodes or (turn,))))


class Listed(Retriever):
    """Finds nodes in a given order, with falling scores."""

    name = "listed"

    def __init__(self, names: Sequence[str], kinds: dict[str, str]) -> None:
        self.hits = tuple(
            Hit(
                NodeId(name),
                kinds.get(name, "episode"),
                name,
                (TurnId(name),),
                1.0 - place / 100,
                confidence=(9 - place) / 10,
            )
            for place, name in enumerate(names)
        )

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        return Result(self.hits[:top_k], Timing())


def asked(
    names: Sequence[str],
    replaced: dict[str, Sequence[Replacement]],
    *,
    top_k: int = 10,
    as_of: datetime | None = None,
    kinds: dict[str, str] | None = None,
    **options: Any,
) -> tuple[Hit, ...]:
    """The hits for nodes that are named by single letters."""
    nodes = {NodeId(name): Node(tuple(replaced.get(name, ()))) for name in names}
    retriever = SupersedingRetriever(Listed(names, kinds or {}), lambda space, ids: nodes, **options)
    return retriever.retrieve("?", SPACE, top_k=top_k, as_of=as_of).hits


def order(names: str, replaced: dict[str, Sequence[Replacement]], **options: Any) -> str:
    return "".join(hit.node_id for hit in asked(names, replaced, **options))


def test_a_replacement_takes_the_place_and_the_score_of_what_it_replaced() -> None:
    hits = asked("abcd", {"a": [by("c")]})
    assert [hit.node_id for hit in hits] == ["c", "a", "b", "d"]
    assert [hit.score for hit in hits] == [1.0, 0.99, 0.98, 0.97]
    assert [hit.confidence for hit in hits] == [0.9, 0.8, 0.7, 0.6]
    assert [(hit.superseded_by, hit.until) for hit in hits[:2]] == [((), None), (("c",), date(2024, 5, 1))]


def test_of_a_chain_the_last_comes_first() -> None:
    assert order("abcd", {"a": [by("c")], "c": [by("d")]}) == "dcab"
    assert order("cab", {"a": [by("c")]}) == "cab"


def test_turns_that_replace_parts_of_each_other_both_stay() -> None:
    assert order("abc", {"a": [by("b")], "b": [by("a")]}) == "bac"


def test_a_replacement_that_was_found_a_little_too_late_is_found() -> None:
    assert order("abcd", {"b": [by("d")]}, top_k=2) == "ad"
    assert order("abcdefgh", {"a": [by("h")]}, top_k=2) == "ab"


def test_only_the_replacement_itself_moves_and_one_of_the_same_type_is_preferred() -> None:
    kinds = dict.fromkeys("acd", "knowledge_node")
    assert order("abcd", {"a": [by("b", "c", "b")]}, kinds=kinds) == "cabd"
    assert order("abd", {"a": [by("b", "c", "b")]}, kinds=kinds) == "bad"


def test_of_several_replacements_the_last_that_is_found_moves() -> None:
    assert order("abc", {"a": [by("b"), by("c")]}) == "cab"
    assert order("ab", {"a": [by("b"), by("c")]}) == "ba"


def test_what_was_replaced_later_is_as_if_it_were_not() -> None:
    later = by("c", at=LEARNT + timedelta(days=2))
    assert order("abc", {"a": [by("b"), later]}, as_of=LEARNT - timedelta(days=1)) == "abc"
    (first, old, _) = asked("abc", {"a": [by("b"), later]}, as_of=LEARNT)
    assert (first.node_id, old.superseded_by) == ("b", ("b",))


def test_a_turn_that_may_not_be_shown_is_not_named() -> None:
    kept: dict[str, Any] = {"admits": lambda said, node_type: said.turn_id != "b"}
    assert {hit.superseded_by for hit in asked("ab", {"a": [by("b")]}, **kept)} == {()}
    assert [hit.superseded_by for hit in asked("ac", {"a": [by("b"), by("c")]}, **kept)] == [(), ("c",)]


def test_on_request_the_old_keeps_its_rank_and_is_marked() -> None:
    old, new = asked("ab", {"a": [by("b")]}, current_first=False)
    assert (old.node_id, old.superseded_by, new.superseded_by) == ("a", ("b",), ())


def test_the_day_of_a_replacement_without_a_time_is_not_known() -> None:
    _, old = asked("ab", {"a": [by("b", at=datetime(1970, 1, 1, tzinfo=UTC), spoken_at=None)]})
    assert (old.superseded_by, old.until) == (("b",), None)


@given(
    st.permutations("abcdef"),
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=2), max_size=5),
)
def test_no_hit_is_lost_whatever_replaces_what(names: list[str], replaced: dict[str, list[str]]) -> None:
    ranked = asked(names, {name: [by(each) for each in others] for name, others in replaced.items()})
    assert sorted(hit.node_id for hit in ranked) == list("abcdef")
    assert [hit.score for hit in ranked] == [1.0 - place / 100 for place in range(6)]
