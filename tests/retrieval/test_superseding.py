from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.types import NodeId, Said, SpaceId, TurnId
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing
from locigraph.retrieval.superseding import SupersedingRetriever

SPACE = SpaceId("s")
LEARNT = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Node:
    """A node, by the turns that it was said in and those that have replaced it."""

    said: tuple[Said, ...]
    replaced_by: tuple[Said, ...] = ()
    replaced_at: datetime | None = field(default=None)


def turn(name: str) -> Said:
    return Said(TurnId(name), "s1", "Ann")


class Listed(Retriever):
    """Finds nodes in the order of their names' digits, with falling scores."""

    name = "listed"

    def __init__(self, names: Sequence[str], kinds: dict[str, str]) -> None:
        self.hits = tuple(
            Hit(NodeId(name), kinds.get(name, "episode"), name, (TurnId(name),), 1.0 - place / 100)
            for place, name in enumerate(names)
        )

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        return Result(self.hits[:top_k], Timing())


def asked(
    names: str,
    replaced: dict[str, str],
    *,
    top_k: int = 10,
    as_of: datetime | None = None,
    current_first: bool = True,
    kinds: dict[str, str] | None = None,
    said: dict[str, str] | None = None,
) -> tuple[Hit, ...]:
    """The hits for nodes that are named by single letters, where ``replaced`` gives for some what has replaced them."""
    nodes = {
        NodeId(name): Node(
            (turn((said or {}).get(name, name)),),
            tuple(map(turn, replaced.get(name, ""))),
            LEARNT if name in replaced else None,
        )
        for name in names
    }
    retriever = SupersedingRetriever(Listed(names, kinds or {}), lambda space, ids: nodes, current_first=current_first)
    return retriever.retrieve("?", SPACE, top_k=top_k, as_of=as_of).hits


def order(*arguments: object, **options: object) -> str:
    return "".join(hit.node_id for hit in asked(*arguments, **options))  # type: ignore[arg-type]


def test_a_replacement_takes_the_place_and_the_score_of_what_it_replaced() -> None:
    hits = asked("abcd", {"a": "c"})
    assert [hit.node_id for hit in hits] == ["c", "a", "b", "d"]
    assert [hit.score for hit in hits] == [1.0, 0.99, 0.98, 0.97]
    assert [(hit.superseded_by, hit.until) for hit in hits[:2]] == [((), None), (("c",), date(2024, 5, 1))]


def test_of_a_chain_the_last_comes_first() -> None:
    assert order("abcd", {"a": "c", "c": "d"}) == "dcab"
    assert order("cab", {"a": "c"}) == "cab"


def test_turns_that_replace_parts_of_each_other_keep_an_order() -> None:
    assert order("abc", {"a": "b", "b": "a"}) == "abc"


def test_a_replacement_that_was_found_a_little_too_late_is_found() -> None:
    assert order("abcd", {"b": "d"}, top_k=2) == "ad"
    assert order("abcdefgh", {"a": "h"}, top_k=2) == "ab"


def test_a_replacement_of_the_same_type_is_preferred() -> None:
    kinds = {"a": "knowledge_node", "c": "knowledge_node"}
    assert order("abc", {"a": "b"}, kinds=kinds, said={"c": "b"}) == "cba"


def test_what_was_replaced_later_is_as_if_it_were_not() -> None:
    assert order("ab", {"a": "b"}, as_of=datetime(2024, 4, 30, tzinfo=UTC)) == "ab"
    assert order("ab", {"a": "b"}, as_of=LEARNT) == "ba"


def test_on_request_the_old_keeps_its_rank_and_is_marked() -> None:
    old, new = asked("ab", {"a": "b"}, current_first=False)
    assert (old.node_id, old.superseded_by, new.superseded_by) == ("a", ("b",), ())


@given(
    st.permutations("abcdef"),
    st.dictionaries(st.sampled_from("abcdef"), st.text("abcdef", min_size=1, max_size=2), max_size=5),
)
def test_no_hit_is_lost_whatever_replaces_what(names: list[str], replaced: dict[str, str]) -> None:
    ranked = asked("".join(names), replaced)
    assert sorted(hit.node_id for hit in ranked) == list("abcdef")
    assert [hit.score for hit in ranked] == [1.0 - place / 100 for place in range(6)]
