"""The public API, with the real store, index and graph network and a text encoder that needs no model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph import Memory
from locigraph.kg.errors import LocigraphError, StoreError, TurnConflictError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import Node, SpaceId
from locigraph.scripts import opening
from locigraph.scripts.settings import EncoderSettings
from tests.fakes_graph import small_checkpoint
from tests.faults.workbench import FakeCachedEncoder
from tests.kg.dumps import QUEUE, dump

SALE = {
    "space": "ana", "session": "s1", "speaker": "Ana", "text": "I sold the blue bike to Tom.",
    "spoken_at": "2024-05-01T10:00",
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint that fits the text encoder."""

    def encoder(settings: EncoderSettings) -> FakeCachedEncoder:
        return FakeCachedEncoder("fake", cache=tmp_path / "cache.sqlite")

    monkeypatch.setattr(opening, "text_encoder", encoder)
    small_checkpoint(text_encoder="fake").save(tmp_path / "checkpoint")
    return tmp_path


def opened(place: Path, name: str = "memory.sqlite", **options: str) -> Memory:
    return Memory.open(place / name, checkpoint=str(place / "checkpoint"), **options)  # type: ignore[arg-type]


def test_what_is_added_is_found_by_v2_at_the_very_next_recall(place: Path) -> None:
    with opened(place) as memory:
        for number in range(4):
            said = memory.add(**SALE | {"text": f"I bought number {number} of the red boats.", "turn_id": f"t{number}"})
            hits = memory.recall("Which boats?", space="ana", top_k=9)
            assert hits.strategy == "v2"
            assert (said,) in [hit.turn_ids for hit in hits]
            assert len(hits) == number + 1
        assert memory.spaces() == ["ana"]


def test_hits_have_text_turns_score_and_signals_and_are_json(place: Path) -> None:
    with opened(place) as memory:
        turn_id = memory.add(**SALE)
        (hit,) = memory.recall("Who bought the bike?", space="ana")
    assert (hit.turn_ids, hit.text) == ((turn_id,), "Ana: I sold the blue bike to Tom.")
    assert json.loads(json.dumps(hit.as_json()))["signals"] == {"graph": hit.score}


def test_what_is_forgotten_is_gone_and_stays_so(place: Path) -> None:
    with opened(place) as memory:
        sold = memory.add(**SALE, turn_id="t1")
        memory.add(**SALE | {"text": "To whom?", "speaker": "Bo"})
        assert memory.forget(space="ana", turn_ids=[sold]) > 0
        assert [hit.text for hit in memory.recall("bike", space="ana")] == ["Bo: To whom?"]
        assert memory.add_many([SALE | {"turn_id": "t1"}]) == [sold]
        with pytest.raises(StoreError, match="turn 't1' was forgotten"):
            memory.add(**SALE, turn_id="t1")
        assert len(memory.recall("bike", space="ana")) == 1
        assert memory.restore(space="ana", turn_ids=[sold]) == 1
        memory.add(**SALE, turn_id="t1")
        assert len(memory.recall("bike", space="ana")) == 2


def test_a_whole_space_is_forgotten_only_when_that_is_said(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        with pytest.raises(LocigraphError, match="name the turns"):
            memory.forget(space="ana")
        memory.forget(space="ana", whole_space=True)
        assert memory.spaces() == []
        with pytest.raises(UnknownSpaceError):
            memory.recall("bike", space="ana")


def test_the_same_turn_twice_is_one_and_other_words_under_its_id_are_refused(place: Path) -> None:
    with opened(place) as memory:
        assert memory.add(**SALE, turn_id="t1") == memory.add(**SALE, turn_id="t1")
        with pytest.raises(TurnConflictError, match=r"another text \('I sold .*' against 'I kept it.'\)"):
            memory.add(**SALE | {"text": "I kept it.", "turn_id": "t1"})
        assert len(memory.recall("bike", space="ana")) == 1


def test_v1_answers_with_a_note_where_no_checkpoint_can_be_used(place: Path) -> None:
    with Memory.open(place / "memory.sqlite") as memory:  # the shipped one is of another text encoder
        memory.add(**SALE)
        found = memory.recall("Who bought the bike?", space="ana")
        assert (found.strategy, found[0].turn_ids) == ("v1", tuple(found[0].turn_ids))
        assert "v1 answers, since v2 cannot" in found.notes[0]
        with pytest.raises(LocigraphError, match="v2 cannot be used"):
            memory.recall("Who bought the bike?", space="ana", strategy="v2")
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        assert memory.recall("bike", space="ana").notes == ("v1 answers, since v2 cannot: no checkpoint is named",)


def test_a_context_holds_what_fits_into_its_budget(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold bike {number} to Tom."} for number in range(20)])
        found = memory.recall("Which bike?", space="ana", budget_tokens=60)
    assert found.context is not None
    assert found.context.tokens <= 60
    assert len(found) == len(found.context.lines)


def test_scores_are_taken_apart(place: Path) -> None:
    with opened(place) as memory:
        turn_id = memory.add(**SALE)
        (found,) = memory.explain("Who bought the bike?", space="ana")
    assert found.turn_id == turn_id


def test_a_reader_sees_what_a_writer_has_left_and_changes_nothing(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
    with opened(place, access="read") as memory:
        assert memory.recall("bike", space="ana").strategy == "v2"


def test_a_reader_of_what_v2_does_not_know_yet_gets_v1_with_a_note_and_never_a_shorter_list(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory.add(**SALE)
    with opened(place, access="read") as memory:
        found = memory.recall("bike", space="ana")
        assert (found.strategy, len(found)) == ("v1", len({hit.node_id for hit in found}))
        assert "no graph embeddings of checkpoint" in found.notes[0]
        with pytest.raises(LocigraphError, match="run locigraph build again"):
            memory.recall("bike", space="ana", strategy="v2")


def test_what_was_added_before_a_crash_is_found_after_it(place: Path) -> None:
    memory = opened(place)
    memory.add(**SALE)
    memory._close()  # no flush
    with opened(place) as again:
        assert len(again.recall("bike", space="ana")) == 1


def test_several_threads_may_add_and_ask(place: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int, memory: Memory) -> None:
        try:
            for turn in range(3):
                memory.add(**SALE | {"space": f"user{number}", "turn_id": f"t{turn}", "text": f"Bike {turn} is sold."})
                assert len(memory.recall("bike", space=f"user{number}")) >= turn + 1
        except BaseException as error:
            errors.append(error)

    with opened(place) as memory:
        threads = [Thread(target=work, args=(number, memory)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert memory.spaces() == [f"user{number}" for number in range(4)]


SESSIONS = {
    "s1": ["I live in Boston.", "My favourite colour is green.", "I sold the blue bike to Tom."],
    "s2": ["I moved to Denver last week.", "My favourite colour is green."],
    "s3": ["Tom repaired the bike on Monday.", "I work as a carpenter now.", "I live in Austin."],
}
CORPUS = [
    {
        "space": "ana", "session": session, "speaker": "Ana", "text": text, "turn_id": f"{session}:{place}",
        "spoken_at": f"2024-05-0{session[1]}T10:0{place}",
    }
    for session, texts in SESSIONS.items()
    for place, text in enumerate(texts)
]  # fmt: skip


def graph_of(path: Path) -> tuple[object, ...]:
    with Store(path) as store:
        space = SpaceId("ana")
        return store.turns(space), store.nodes(space, include_archived=True), store.relations(space), store.misplaced()


def by_session(turns: list[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    return {session: [turn for turn in turns if turn["session"] == session] for session in SESSIONS}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_split_into_appends_gives_the_same_nodes_and_edges(place: Path, data: st.DataObject) -> None:
    name = f"{data.draw(st.uuids())}.sqlite"
    if not (place / "whole.sqlite").exists():
        with opened(place, "whole.sqlite") as memory:
            memory.add_many(CORPUS)
    left = by_session(CORPUS)
    with opened(place, name) as memory:
        while any(left.values()):
            session = data.draw(st.sampled_from([session for session in left if left[session]]))
            count = data.draw(st.integers(1, len(left[session])))
            portion, left[session] = left[session][:count], left[session][count:]
            memory.add_many(portion)
    whole, split = graph_of(place / "whole.sqlite"), graph_of(place / name)
    assert split[0] == whole[0]
    assert sorted(map(repr, split[1])) == sorted(map(repr, whole[1]))  # type: ignore[call-overload]
    assert sorted(map(repr, split[2])) == sorted(map(repr, whole[2]))  # type: ignore[call-overload]
    assert split[3] == {}


STEPS = st.lists(
    st.sampled_from(["add", "add earlier", "add beside it", "forget", "forget all", "other space"]),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, name=st.uuids())
def test_what_a_memory_keeps_between_turns_never_changes_the_graph(place: Path, steps: list[str], name: object) -> None:
    """One memory that stays open, another process' writes beside it, against memories opened for each turn alone."""

    def take(step: str, number: int, memory: Memory, path: Path) -> None:
        turn = CORPUS[number % len(CORPUS)] | {"turn_id": f"t{number}", "session": "s", "spoken_at": None}
        if step == "add earlier":
            turn |= {"session": f"s{number}", "spoken_at": f"2020-01-01T10:{number:02}"}
        if step == "add beside it":
            with Memory(Store(path), checkpoint=None) as other:
                other.add(**turn)
        elif step == "forget all" and "ana" in memory.spaces():
            memory.forget(space="ana", whole_space=True)
        elif step == "forget" and "ana" in memory.spaces():
            if held := memory._graph.turns(SpaceId("ana")):
                memory.forget(space="ana", turn_ids=[held[number % len(held)].turn_id])
        else:
            memory.add(**turn | ({"space": "bo"} if step == "other space" else {}))

    kept, anew = place / f"{name}-kept.sqlite", place / f"{name}-anew.sqlite"
    with Memory(Store(kept), checkpoint=None) as memory:
        for number, step in enumerate(steps):
            take(step, number, memory, kept)
            with Memory(Store(anew), checkpoint=None) as fresh:
                take(step, number, fresh, anew)
    without = (*QUEUE, "tombstones", "settings")  # keyed by a random number
    assert dump(kept, without=without) == dump(anew, without=without)


def test_a_turn_reads_nothing_again_that_the_one_before_it_knew(place: Path) -> None:
    read: list[SpaceId] = []

    class Watched(Store):
        def nodes(self, space: SpaceId, **options: Any) -> list[Node]:
            if "ids" not in options:
                read.append(space)
            return super().nodes(space, **options)

    with Memory(Watched(place / "watched.sqlite"), checkpoint=None) as memory:
        memory.add(**SALE)
        assert read
        read.clear()
        for number in range(3):
            memory.add(**SALE | {"text": f"I sold {number} more."})
        assert read == []
        memory.forget(space="ana", turn_ids=[memory.add(**SALE | {"text": "Nobody knows."})])
        memory.add(**SALE | {"text": "Hello again."})
        assert read


@pytest.mark.parametrize("asks", [lambda: Memory, lambda: __import__("locigraph").Memory])
def test_the_public_name_is_the_class(asks: Callable[[], type]) -> None:
    assert asks() is Memory


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, locigraph; print([n for n in ('torch', 'pymilvus', 'sqlalchemy') if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
