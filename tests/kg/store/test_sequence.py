from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from locigraph.kg.errors import StoreError
from locigraph.kg.schema import MERGED_BY
from locigraph.kg.store import Store, sequence, tables
from locigraph.kg.store.sequence import merged
from locigraph.kg.types import (
    GraphChange,
    NewNode,
    NewRelation,
    NodeStatus,
    NodeUpdate,
    SpaceId,
    Turn,
    TurnId,
    TurnState,
)
from tests.databases import Place
from tests.fakes import MONDAY, SPACE, change_of, make_turn, make_turns

TURNS = make_turns(["a", "b", "c"], ["d", "e"], ["f", "g", "h"])
BEFORE_1970 = datetime(1960, 1, 1, tzinfo=UTC)
# All at one time, as where an export has days alone.
SAME_DAY = [replace(turn, spoken_at=MONDAY) for turn in TURNS]
# In each session only the second turn has a time.
HALF_DATED = [replace(turn, spoken_at=turn.spoken_at if turn.position in (1, 4, 6) else None) for turn in TURNS]


def ids(*names: str) -> list[TurnId]:
    return [TurnId(name) for name in names]


def test_new_turns_stand_before_the_one_they_were_given_before_or_at_the_end() -> None:
    assert merged(ids("c", "d"), ids("a", "b", "c", "d", "e")) == ids("a", "b", "c", "d", "e")
    assert merged(ids("a", "b"), ids("c")) == ids("a", "b", "c")
    assert merged([], ids("a", "b")) == ids("a", "b")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_split_into_appends_that_keeps_each_sessions_order_gives_the_same_positions(
    store_at: Place, data: st.DataObject
) -> None:
    space = SpaceId(uuid.uuid4().hex)
    turns = [replace(turn, space=space) for turn in data.draw(st.sampled_from([TURNS, SAME_DAY, HALF_DATED]))]
    left = {session: [t for t in turns if t.session_id == session] for session in {t.session_id for t in turns}}
    with Store(store_at()) as store:
        while any(left.values()):
            session = data.draw(st.sampled_from(sorted(s for s in left if left[s])))
            count = data.draw(st.integers(1, len(left[session])))
            portion, left[session] = left[session][:count], left[session][count:]
            store.append_turns([replace(turn, position=i) for i, turn in enumerate(portion)])
            if data.draw(st.booleans()):
                store.append_turns(portion)
        assert store.turns(space) == turns


@pytest.mark.long
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_turns_that_are_placed_alone_are_where_a_look_at_all_turns_would_place_them(
    store_at: Place, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    dated: list[datetime | None] = [*(MONDAY + timedelta(hours=hour) for hour in range(5)), BEFORE_1970]
    times = st.sampled_from(data.draw(st.sampled_from([dated, [None, *dated]])))
    portions = data.draw(st.lists(st.lists(st.tuples(st.integers(1, 3), times), min_size=1, max_size=3), max_size=8))
    quick, slow = SpaceId(uuid.uuid4().hex), SpaceId(uuid.uuid4().hex)
    appended: list[Turn] = []
    has_gaps = False
    with Store(store_at()) as store:
        for number, portion in enumerate(portions):
            again = [replace(turn, position=0) for turn in appended if data.draw(st.integers(0, 9)) == 0]
            new = [
                replace(make_turn(place, f"turn {number}-{place}", session=session, spoken_at=time), spoken_at=time)
                for place, (session, time) in enumerate(portion)
            ]
            new = [replace(turn, turn_id=TurnId(turn.text)) for turn in new]
            appended += new
            done = {turn.turn_id for turn in appended if data.draw(st.booleans())}
            if has_gaps := has_gaps or data.draw(st.integers(0, 9)) == 0:
                leave_gaps(store, quick, slow)
            for space in (quick, slow):
                with monkeypatch.context() as patch:
                    if space == slow:
                        patch.setattr(sequence, "_new_of_one_session", lambda *_: [])
                    store.append_turns([replace(turn, space=space) for turn in [*again, *new]])
                for turn in store.turns(space, state=TurnState.PENDING):
                    if turn.turn_id in done:
                        store.commit(change_of(turn))
            if not has_gaps:
                assert placed(store, quick) == placed(store, slow)
            assert in_order(store, quick) == in_order(store, slow)


def test_a_turn_after_all_others_is_placed_without_reading_them(
    store_at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(store_at()) as store:
        store.append_turns(TURNS[:4])
        monkeypatch.setattr(sequence, "read", lambda *_: pytest.fail("all turns are read"))
        store.append_turns(TURNS[4:5])  # of the last session
        store.append_turns([replace(turn, position=i) for i, turn in enumerate(TURNS[5:])])  # of a later one
        assert store.turns(SPACE) == list(TURNS)


def test_of_sessions_that_go_on_side_by_side_each_turn_is_placed_without_reading_the_others(
    store_at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [make_turn(n, f"turn {n}", session=1 + n % 2, spoken_at=MONDAY + timedelta(hours=n)) for n in range(6)]
    with Store(store_at()) as store:
        store.append_turns(turns[:2])
        monkeypatch.setattr(sequence, "read", lambda *_: pytest.fail("all turns are read"))
        for turn in turns[2:]:
            store.append_turns([turn])
        assert [turn.text for turn in store.turns(SPACE)] == [turn.text for turn in turns]


def test_a_turn_before_others_is_placed_without_reading_them(store_at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(store_at()) as store:
        store.append_turns([*TURNS[:3], *TURNS[5:]])
        monkeypatch.setattr(sequence, "read", lambda *_: pytest.fail("all turns are read"))
        store.append_turns([replace(turn, position=i) for i, turn in enumerate(TURNS[3:5])])
        assert store.turns(SPACE) == list(TURNS)


def leave_gaps(store: Store, *spaces: SpaceId) -> None:
    """As in a store of an earlier version, which left the places of forgotten turns empty."""
    with store._write() as connection:
        turns = tables.turns.c
        connection.execute(update(tables.turns).where(turns.space.in_(spaces)).values(position=turns.position * 3))


def in_order(store: Store, space: SpaceId) -> list[tuple[TurnId, TurnState]]:
    states = {turn.turn_id: state for state in TurnState for turn in store.turns(space, state=state)}
    return [(turn.turn_id, states[turn.turn_id]) for turn in store.turns(space)]


def placed(store: Store, space: SpaceId) -> list[tuple[TurnId, int, TurnState]]:
    return [(t.turn_id, t.position, state) for state in TurnState for t in store.turns(space, state=state)]


def test_sessions_of_one_time_are_in_the_order_of_their_numbers(store_at: Place) -> None:
    turns = [replace(make_turn(0, f"turn {i}"), turn_id=TurnId(f"t{i}"), session_id=f"s{i}") for i in (10, 9, 2)]
    with Store(store_at()) as store:
        for turn in turns:
            store.append_turns([turn])
        assert [turn.session_id for turn in store.turns(SPACE)] == ["s2", "s9", "s10"]


def test_sessions_of_one_time_and_number_follow_each_other(store_at: Place) -> None:
    names = ["1", "01", "001"]
    turns = [replace(make_turn(i, f"turn {i}", spoken_at=MONDAY), session_id=names[i % 3]) for i in range(9)]
    with Store(store_at()) as store:
        store.append_turns(turns)
        assert [turn.session_id for turn in store.turns(SPACE)] == [*["001"] * 3, *["01"] * 3, *["1"] * 3]


def test_undated_turns_are_in_the_order_in_which_they_came(store_at: Place) -> None:
    turns = [make_turn(i, f"turn {i}", session=1 + i % 2, dated=False) for i in range(6)]
    with Store(store_at()) as store:
        for turn in turns:
            store.append_turns([replace(turn, position=0)])
        assert [turn.text for turn in store.turns(SPACE)] == [f"turn {i}" for i in range(6)]


@pytest.mark.parametrize("years", [-50, 0])
def test_undated_turns_before_1970_stay_with_their_session(store_at: Place, years: int) -> None:
    def turn(number: int, session: int, year: int | None) -> Turn:
        time = None if year is None else MONDAY.replace(year=year + years, day=3)
        return replace(make_turn(number, f"turn {number}", session=session), spoken_at=time, position=0)

    with Store(store_at()) as store:
        for each in (turn(0, 1, 2000), turn(1, 1, None), turn(2, 1, 2001), turn(3, 2, 2005), turn(4, 3, None)):
            store.append_turns([each])
        store.append_turns([turn(5, 4, 2010)])
        assert [each.text for each in store.turns(SPACE)] == [f"turn {i}" for i in range(6)]
        assert store.misplaced() == {}


def consolidated(store: Store, turns: list[Turn]) -> None:
    store.append_turns(turns)
    for turn in turns:
        store.commit(change_of(turn))


def test_a_turn_before_consolidated_ones_makes_the_space_pending(store_at: Place) -> None:
    with Store(store_at()) as store:
        consolidated(store, list(TURNS[3:]))
        store.append_turns([replace(turn, position=0) for turn in TURNS[:1]])
        assert store.nodes(SPACE) == []
        assert store.turn_counts(SPACE) == {TurnState.PENDING: 6}
        assert not store.has_forgotten()


def test_what_second_passes_made_is_named_where_a_space_is_made_anew(
    store_at: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(store_at()) as store:
        consolidated(store, list(TURNS[3:]))
        insight = NewNode("r", "reflection", "insight", "Ann likes dogs.", (TURNS[3].turn_id,))
        store.commit(GraphChange(SPACE, TURNS[5].recorded_at, None, (insight,)))
        store.append_turns(TURNS[1:2])
        assert store.nodes(SPACE) == []
    assert [record.message for record in caplog.records] == [
        f"space {SPACE!r}: its graph is rebuilt, since turn 't1' comes before consolidated turns; "
        "afterwards run locigraph reflect again"
    ]


@pytest.mark.parametrize("made_by", ["link", "resolve"])
def test_links_to_entities_are_named_where_a_space_is_made_anew_and_those_that_a_merging_moved_are_not(
    made_by: str, store_at: Place, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_ = TURNS[3:]
    tom, spelt = (NewNode(name, "entity", name, name, (first.turn_id,)) for name in ("Tom", "tom"))
    with Store(store_at()) as store:
        store.append_turns(TURNS[3:])
        mention = NewRelation("episode", "MENTIONS", "tom")
        ids = store.commit(change_of(first, nodes=[tom, spelt], relations=[mention]))
        later = store.commit(change_of(second))
        if made_by == "link":
            made = GraphChange(SPACE, MONDAY, relations=(NewRelation(later["episode"], "MENTIONS", ids["Tom"]),))
        else:
            merged_away = NodeUpdate(ids["tom"], status=NodeStatus.ARCHIVED, attributes={MERGED_BY: "spelling"})
            moved = NewRelation(ids["episode"], "MENTIONS", ids["Tom"])
            alias = NewRelation(ids["tom"], "SIMILAR_TO", ids["Tom"])
            made = GraphChange(SPACE, MONDAY, updates=(merged_away,), relations=(moved, alias))
        store.commit(made)
        store.append_turns(TURNS[1:2])
    assert caplog.records[0].message.endswith(
        f"comes before consolidated turns; afterwards run locigraph {made_by} again"
    )


def test_a_turn_at_the_end_leaves_the_rest_as_it_is(store_at: Place) -> None:
    with Store(store_at()) as store:
        consolidated(store, list(TURNS[:3]))
        store.append_turns(TURNS)
        assert len(store.nodes(SPACE)) == 3
        assert [turn.turn_id for turn in store.turns(SPACE, state=TurnState.PENDING)] == [t.turn_id for t in TURNS[3:]]


def test_where_no_rewind_is_allowed_nothing_is_written(store_at: Place) -> None:
    with Store(store_at()) as store:
        consolidated(store, list(TURNS[3:]))
        with pytest.raises(StoreError, match=r"turn 't0' comes before turns that are already consolidated"):
            store.append_turns(TURNS[:1], may_rewind=False)
        assert [turn.turn_id for turn in store.turns(SPACE)] == [turn.turn_id for turn in TURNS[3:]]


def undated_and_dated(*told: tuple[str, int | None]) -> list[Turn]:
    """Turns of the named sessions, each spoken some days after ``MONDAY``; None stands for no time."""
    return [
        replace(make_turn(i, f"turn {i}", spoken_at=None if day is None else MONDAY + timedelta(days=day), dated=False),
                session_id=session)
        for i, (session, day) in enumerate(told)
    ]  # fmt: skip


@pytest.mark.parametrize("is_read", [True, False])
def test_consolidated_turns_that_change_places_make_the_space_pending(store_at: Place, is_read: bool) -> None:
    paris, berlin, weather = undated_and_dated(("notes", None), ("s1", 0), ("notes", 365))
    with Store(store_at()) as store:
        for turn in (paris, berlin):
            store.append_turns([turn])
            if is_read or turn is paris:
                store.commit(change_of(turn))
        assert [turn.turn_id for turn in store.turns(SPACE)] == ["t0", "t1"]
        store.append_turns([weather])
        assert [turn.turn_id for turn in store.turns(SPACE, state=TurnState.PENDING)] == ["t1", "t0", "t2"]
        assert store.nodes(SPACE) == []


def test_a_turn_that_is_tried_again_in_its_place_leaves_the_rest_as_it_is(store_at: Place) -> None:
    with Store(store_at()) as store:
        store.append_turns(TURNS[:2])
        store.commit(replace(change_of(TURNS[0]), failure="an outage"))
        store.commit(change_of(TURNS[1]))
        store.retry_turn(SPACE, TURNS[0].turn_id)
        store.append_turns(TURNS)
        assert len(store.nodes(SPACE)) == 2


def test_a_turn_before_a_failed_one_that_is_to_be_tried_again_makes_the_space_pending(store_at: Place) -> None:
    first, between, failed = TURNS[:3]
    with Store(store_at()) as store:
        store.append_turns([first, failed])
        store.commit(change_of(first))
        store.commit(replace(change_of(failed), failure="a bad reply"))
        store.retry_turn(SPACE, failed.turn_id)
        store.append_turns([first, between, failed])
        assert store.nodes(SPACE) == []


def test_forgetting_a_turn_after_which_an_undated_session_began_makes_the_space_pending(store_at: Place) -> None:
    late, _, *early = turns = undated_and_dated(("late", 9), ("notes", None), ("early", 0), ("early", 1))
    with Store(store_at()) as store:
        store.append_turns(turns)
        for turn in store.turns(SPACE):
            store.commit(change_of(turn))
        store.forget(SPACE, [early[0].turn_id])
        assert len(store.nodes(SPACE)) == 3
        store.forget(SPACE, [late.turn_id])
        assert [turn.turn_id for turn in store.turns(SPACE, state=TurnState.PENDING)] == ["t1", "t3"]
        assert store.nodes(SPACE) == []
