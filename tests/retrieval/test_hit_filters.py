from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.types import NodeId, Replacement, Said, SpaceId, TurnId
from locigraph.retrieval.hit_filters import FilteredRetriever, _alike, _pairs, folded
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing

SPACE = SpaceId("s")


def said(number: int, text: str) -> Hit:
    return Hit(NodeId(f"n{number}"), "episode", text, (TurnId(f"t{number}"),), 1.0 - number / 100)


class Listed(Retriever):
    """A strategy that finds the same for every question, as many as it is asked for."""

    name = "listed"

    def __init__(self, hits: Sequence[Hit]) -> None:
        self._hits = tuple(hits)
        self.asked_for: list[int] = []

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        self.asked_for.append(top_k)
        return Result(self._hits[:top_k], Timing(1.0, 2.0))


@dataclass(frozen=True)
class Words:
    """Whose words a node contains, when they were spoken, and until when they hold."""

    speakers: frozenset[str]
    spoken_at: datetime | None = None
    until: date | None = None
    said: tuple[Said, ...] = ()
    replaced: tuple[Replacement, ...] = ()


def origins_of(space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, Words]:
    """Even nodes are Ann's words, odd ones Ben's, and n9 those of both."""
    return {
        node: Words(frozenset(("Ann", "Ben") if node == "n9" else ("Ann", "Ben")[int(node[1:]) % 2 :][:1]))
        for node in ids
    }


def found(retriever: FilteredRetriever, top_k: int) -> list[str]:
    return [hit.node_id for hit in retriever.retrieve("?", SPACE, top_k=top_k).hits[:top_k]]


def test_texts_that_say_the_same_have_one_place_that_names_the_turns_of_all() -> None:
    hits = [said(0, "Ann: I sail."), said(2, "Ann: I row."), said(4, "ann: i SAIL"), said(6, "Ann, I sail!")]
    first, second = folded(hits, ["Ann"] * 4)
    assert (first.node_id, first.turn_ids, first.same) == ("n0", ("t0",), ("t4", "t6"))
    assert second == hits[1]


def test_likeness_is_the_share_of_common_pairs_of_words() -> None:
    # | a b c d | has five pairs of neighbours with both ends, | a b x d | has five, and three are common: 3 / 7.
    hits = [said(0, "a b c d"), said(2, "a b x d")]
    assert len(folded(hits, ["Ann"] * 2, likeness=3 / 7)) == 1
    assert len(folded(hits, ["Ann"] * 2, likeness=0.43)) == 2
    assert len(folded([said(0, "Tom beat Ann"), said(2, "Ann beat Tom")], ["Ann"] * 2, likeness=0.3)) == 2


def test_what_a_word_turns_round_in_a_sentence_keeps_its_place() -> None:
    assert len(folded([said(0, "Ann: I like fish."), said(2, "Ann: I do not like fish.")], ["Ann"] * 2)) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It shows -5 degrees", "It shows 5 degrees"), ("$5 a head", "€5 a head"), ("We use C++", "We use C#"),
        ("Fine :)", "Fine :("), ("x = 1", "x != 1"), ("It was 3:1", "It was 3-1"), ("yes", "❌ yes"),
        ("He is coming.", "He is coming?"), ("👍", "😢"),
    ],
)  # fmt: skip
def test_what_a_sign_turns_round_keeps_its_place(one: str, other: str) -> None:
    hits = [said(0, f"Ann: {one}"), said(2, f"Ann: {other}"), said(4, f"Ann: {one}")]
    assert [hit.same for hit in folded(hits, ["Ann"] * 3)] == [("t4",), ()]


def test_what_another_speaker_repeats_takes_no_place_of_the_first() -> None:
    assert (
        len(folded([said(0, "The key is under the mat."), said(1, "The key is under the mat.")], ["Eve", "Ann"])) == 2
    )


LONG = "Weekly note on the greenhouse: the north bench is watered, the south bench is pruned, all vents were oiled and "
NOTE = (
    LONG + "tested, the peppers look healthy, nobody reported pests, and {} heating is set to {} degrees for {} nights."
)


@pytest.mark.parametrize(
    "other",
    [
        ("the", "19", "May"), ("the", "nineteen", "the"), ("no", "14", "the"), ("Bo", "14", "the"),
        ("the", "14", "friday"), ("keine", "14", "the"),
    ],
)  # fmt: skip
def test_long_texts_that_differ_in_a_number_a_name_a_date_or_a_negation_are_no_duplicates(
    other: tuple[str, ...],
) -> None:
    one = NOTE.format("the", "14", "the")
    assert len(folded([said(0, one), said(2, NOTE.format(*other))], ["Ann"] * 2)) == 2
    assert len(folded([said(0, one), said(2, one.replace("oiled", "greased"))], ["Ann"] * 2)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("5", "-5"), ("5%", "5"), ("<40", ">40"), ("1.5", "1-5"), ("👍", "👎"), ("$50", "€50"), ("½", "¼")],
)  # fmt: skip
def test_long_texts_that_differ_in_a_sign_are_no_duplicates(one: str, other: str) -> None:
    hits = [said(0, f"{LONG} it is {one} again"), said(2, f"{LONG} it is {other} again")]
    assert len(folded(hits, ["Ann"] * 2)) == 2
    marked = [said(0, f"{LONG} it is {one} again"), said(2, f"{LONG} it is **{one}** again")]
    assert len(folded(marked, ["Ann"] * 2, likeness=0.5)) == 1


def test_numbers_and_names_in_another_order_are_no_duplicates() -> None:
    one, other = (f"{LONG * 3} and {winner} beat {loser}" for winner, loser in (("Tom", "Ann"), ("Ann", "Tom")))
    assert len(folded([said(0, one), said(2, other)], ["Ann"] * 2)) == 2


def test_of_near_duplicates_the_newest_leads_with_the_score_of_the_best_and_the_times_of_the_others() -> None:
    days = [datetime(2024, month, 1, tzinfo=UTC) for month in (3, 5, 1)]
    hits = [replace(said(2 * at, "I live in Rome."), spoken_at=day) for at, day in enumerate(days)]
    (hit,) = folded([*hits, said(6, "I live in Rome.")], ["Ann"] * 4)
    assert (hit.node_id, hit.score, hit.spoken_at) == ("n2", hits[0].score, days[1])
    assert (hit.same, hit.again) == (("t0", "t4", "t6"), (days[2], days[0]))


def test_a_fact_that_repeats_its_turn_takes_no_second_place_whatever_days_were_added() -> None:
    turn = said(0, "Ana: I left for Rome last Saturday.")
    fact = replace(turn, node_id=NodeId("n2"), text=f"{turn.text} (11 May 2024)")
    other = replace(fact, node_id=NodeId("n4"), turn_ids=(TurnId("t4"),), text=f"{turn.text} (18 May 2024)")
    assert [hit.node_id for hit in folded([fact, turn, other], ["Ann"] * 3)] == ["n2", "n4"]


def test_what_holds_is_never_hidden_behind_what_has_ended() -> None:
    def rome(space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, Words]:
        return {node: Words(frozenset(["Ann"]), until=date(2024, 2, 10) if node == "n0" else None) for node in ids}

    hits = [said(0, "Ann live in Rome."), said(2, "Ann live in Rome."), said(4, "Ann live in Rome.")]
    result = FilteredRetriever(Listed(hits), rome).retrieve("?", SPACE)
    assert [(hit.node_id, hit.same) for hit in result.hits] == [("n0", ()), ("n2", ("t4",))]


@given(st.lists(st.text("abc ", max_size=12), max_size=12), st.floats(0.05, 1.0), st.data())
def test_only_texts_that_cannot_be_alike_are_not_compared(
    texts: list[str], likeness: float, data: st.DataObject
) -> None:
    hits = [said(number, text) for number, text in enumerate(texts)]
    voices_of = data.draw(st.lists(st.sampled_from(["Ann", "Ben"]), min_size=len(hits), max_size=len(hits)))
    kept: list[int] = []
    for number, text in enumerate(texts):
        twins = (other for other in kept if voices_of[other] == voices_of[number])
        if not any(_alike(frozenset(_pairs(texts[other])), frozenset(_pairs(text)), likeness) for other in twins):
            kept.append(number)
    assert [hit.node_id for hit in folded(hits, voices_of, likeness=likeness)] == [f"n{number}" for number in kept]


def test_ten_thousand_hits_are_folded_in_a_moment() -> None:
    texts = [f"I bought the number {i} and the {7 * i} of my {3 * i} boats in {11 * i}" for i in range(5_000)]
    hits = [said(number, text) for number, text in enumerate([*texts, *texts])]
    started = time.process_time()
    kept = folded(hits, [None] * len(hits))
    assert time.process_time() - started < 5  # the square of their number took twenty
    assert [hit.same for hit in kept] == [(f"t{number}",) for number in range(5_000, 10_000)]


@given(st.lists(st.sampled_from(["a b", "A, b!", "c", "", "c c", "b a"])), st.floats(0.1, 1.0))
def test_no_turn_is_lost_by_folding_and_the_order_stays(texts: list[str], likeness: float) -> None:
    hits = [said(number, text) for number, text in enumerate(texts)]
    kept = folded(hits, [None] * len(hits), likeness=likeness)
    assert sorted(turn for hit in kept for turn in (*hit.turn_ids, *hit.same)) == sorted(h.turn_ids[0] for h in hits)
    assert [hit.node_id for hit in kept] == [h.node_id for h in hits if h.node_id in {hit.node_id for hit in kept}]
    assert folded(kept, [None] * len(kept), likeness=likeness) == kept


def test_a_list_that_folding_has_shortened_is_filled_again() -> None:
    listed = Listed([*(said(2 * number, "The same.") for number in range(30)), said(60, "Other."), said(62, "More.")])
    result = FilteredRetriever(listed, origins_of).retrieve("?", SPACE, top_k=3)
    assert [hit.node_id for hit in result.hits] == ["n0", "n60", "n62"]
    assert listed.asked_for == [3, 12, 48]
    assert result.timing == Timing(3.0, 6.0)


def test_a_view_of_speakers_finds_what_is_in_their_words_alone() -> None:
    hits = [said(number, f"Text {number}.") for number in range(10)]
    assert found(FilteredRetriever(Listed(hits), origins_of, speakers=["Ann"]), 3) == ["n0", "n2", "n4"]
    assert "n9" not in found(FilteredRetriever(Listed(hits), origins_of, speakers=["Ben"]), 10)
    assert found(FilteredRetriever(Listed(hits), origins_of, speakers=["Ann", "Ben"]), 10) == [
        hit.node_id for hit in hits
    ]


def test_a_strategy_that_finds_no_fewer_than_its_pool_is_asked_until_it_finds_more() -> None:
    class Pooled(Listed):
        def retrieve(
            self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
        ) -> Result:
            return super().retrieve(query, space, as_of=as_of, top_k=max(50, top_k))

    hits = [said(2 * number + (number < 60), f"Text {number}.") for number in range(65)]  # first sixty of Ben
    pooled = Pooled(hits)
    assert found(FilteredRetriever(pooled, origins_of, speakers=["Ann"]), 10) == [hit.node_id for hit in hits[60:]]
    assert pooled.asked_for == [50, 50, 160, 640]


def test_a_node_whose_words_are_nobodys_is_in_no_view_of_speakers() -> None:
    assert found(FilteredRetriever(Listed([said(0, "x")]), lambda space, ids: {}, speakers=["Ann"]), 3) == []


@pytest.mark.parametrize("count", [0, 1, 5])
def test_without_fold_and_speakers_the_list_is_as_it_was(count: int) -> None:
    hits = [replace(said(number, "The same."), turn_ids=(TurnId("t"),)) for number in range(count)]
    assert FilteredRetriever(Listed(hits), origins_of, fold=None).retrieve("?", SPACE).hits == tuple(hits)


def test_a_name_is_the_same_speaker_however_unicode_composes_its_letters() -> None:
    composed, decomposed = "Jos\u00e9", "Jose\u0301"

    def of_both(space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, Words]:
        return {node: Words(frozenset([(composed, decomposed)[int(node[1:]) % 2]])) for node in ids}

    hits = [said(0, "I sail."), said(1, "I row."), said(2, "I swim."), said(3, "I swim.")]
    for name in (composed, decomposed):
        assert found(FilteredRetriever(Listed(hits), of_both, speakers=[name]), 4) == ["n0", "n1", "n2"]
