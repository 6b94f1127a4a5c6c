"""The public API, with the real store, index and graph network and a text encoder that needs no model."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import locigraph
from locigraph import Memory
from locigraph.assembly import defaults, opening
from locigraph.assembly.graphs import GraphWriter
from locigraph.assembly.language_models import clients_of
from locigraph.assembly.settings import EncoderSettings, IndexSettings, LLMSettings, ModelSettings
from locigraph.assembly.strategies import recalled
from locigraph.consolidation.errors import LanguageModelError, LimitReachedError
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.space_state import SpaceState
from locigraph.kg import text_caches
from locigraph.kg.corpora import load_corpus
from locigraph.kg.errors import LocigraphError, StoreError, TurnConflictError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import Node, SpaceId, Turn, TurnId
from locigraph.memory import Recalled
from locigraph.memory.parts import Parts
from locigraph.retrieval.errors import IndexUnavailableError, TextEncoderError
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus_collection import Collection
from locigraph.scripts.commands.memory.explain import explain
from locigraph.scripts.commands.memory.forget import forget
from locigraph.scripts.commands.memory.show import show
from locigraph.scripts.commands.memory.spaces import spaces
from locigraph.training.checkpoint import load_checkpoint
from locigraph.training.errors import StaleEmbeddingsError
from locigraph.training.live_embeddings import LiveEmbeddings
from locigraph.training.pseudo_questions import questions_about
from tests.consolidation.stub_server import Stub, extracted, stub_server
from tests.fakes import MONDAY, make_turns, side_by_side
from tests.fakes_graph import small_checkpoint
from tests.faults.residue import files_with
from tests.faults.workbench import ADAPTED, AdaptedEncoder, FakeCachedEncoder

SALE = {
    "space": "ana", "session": "s1", "speaker": "Ana", "text": "I sold the blue bike to Tom.",
    "spoken_at": "2024-05-01T10:00",
}  # fmt: skip


def opened(place: Path, name: str = "memory.sqlite", **options: Any) -> Memory:
    return Memory.open(place / name, checkpoint=str(place / "checkpoint"), **options)


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
        (hit,) = memory.recall("Who bought that shiny blue bike?", space="ana")
    assert (hit.turn_ids, hit.text) == ((turn_id,), "Ana: I sold the blue bike to Tom.")
    assert json.loads(json.dumps(hit.as_json()))["signals"] == {"graph": hit.score}


def test_answers_and_explanations_are_json(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        found = memory.recall("Who bought the bike?", space="ana", budget_tokens=50)
        (explained,) = memory.explain("Who bought the bike?", space="ana")
    said = json.loads(json.dumps(found.as_json()))
    assert said == found.as_json()
    assert (said["hits"][0]["text"], said["strategy"]) == ("Ana: I sold the blue bike to Tom.", "v2")
    assert said["context"] == str(found.context)
    said = json.loads(json.dumps(explained.as_json()))
    assert said == explained.as_json()
    assert (said["score"], said["influences"][0]["relation"]) == (explained.score, explained.influences[0].relation)


def test_a_forgetting_whose_old_pages_a_reader_keeps_is_completed_when_it_is_called_again(place: Path) -> None:
    with opened(place) as memory, closing(sqlite3.connect(place / "memory.sqlite", isolation_level=None)) as reader:
        memory.add_many([SALE | {"turn_id": "t1"}, SALE | {"text": "To whom?", "speaker": "Bo"}])
        memory.recall("bike", space="ana")
        with memory._graph._engine.connect() as connection:  # pooled: the next one waits as long
            connection.exec_driver_sql("PRAGMA busy_timeout=10")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM turns").fetchall()
        for _ in range(3):
            with pytest.raises(StoreError, match=r"erased, but old pages remain .*; then run forget again"):
                memory.forget(space="ana", turn_ids=["t1"])
        assert not memory._graph.has_forgotten()
        reader.execute("COMMIT")
        assert memory.forget(space="ana", turn_ids=["t1"]) == 0
        assert (place / "memory.sqlite-wal").stat().st_size == 0
        assert [hit.text for hit in memory.recall("bike", space="ana")] == ["Bo: To whom?"]


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


@pytest.mark.parametrize("whole_space", [False, True])
def test_a_forgetting_that_was_cut_before_the_graph_embeddings_were_made_anew_is_completed_by_the_same_call(
    place: Path, monkeypatch: pytest.MonkeyPatch, whole_space: bool
) -> None:
    what: dict[str, Any] = {"whole_space": True} if whole_space else {"turn_ids": ["t1"]}
    with opened(place) as memory:
        memory.add_many([SALE | {"turn_id": "t1"}, SALE | {"turn_id": "t2", "text": "It is gone."}])
        memory.add(**SALE | {"space": "bo"})

    def cut(embeddings: LiveEmbeddings, *, progress: str | None = None) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LiveEmbeddings, "update", cut)
        with pytest.raises(KeyboardInterrupt), opened(place) as memory:
            assert memory.forget(space="ana", **what) > 0
    with opened(place) as memory:
        assert memory.forget(space="ana", **what) == 0
        with pytest.raises(UnknownSpaceError):
            memory.forget(space="nobody", **what)
    with opened(place, access="read") as reader:
        assert reader.recall("bike", space="bo").strategy == "v2"


def test_what_a_server_has_completed_to_forget_is_forgotten_already(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"store": str(place / "memory.sqlite"), "checkpoint": str(place / "checkpoint")}
    with opened(place) as server:
        server.add_many([SALE | {"turn_id": "t1"}, SALE | {"turn_id": "t2", "text": "It is gone."}])
        with pytest.raises(LocigraphError, match=r"not yet from the index .* call forget again to complete it"):
            forget(space="ana", turns="t1", **options)
        assert [hit.turn_ids for hit in server.recall("bike", space="ana")] == [("t2",)]
        server.add(**SALE | {"turn_id": "t3", "text": "I have a car now."})  # due, and left to the server
        forget(space="ana", turns="t1", **options)
        assert "already forgotten" in capsys.readouterr().out
        with pytest.raises(StoreError, match="no turn 't9'"):
            server.forget(space="ana", turn_ids=["t1", "t2", "t9"])
        assert server.forget(space="ana", turn_ids=["t1", "t2"]) > 0  # one of them was forgotten before
        server.forget(space="ana", whole_space=True)
        assert server.forget(space="ana", turn_ids="t2") == 0


def test_one_text_names_one_turn_and_not_those_that_its_letters_name(place: Path) -> None:
    with opened(place) as memory:
        kept = memory.add_many([SALE | {"turn_id": name} for name in ("t", "1", "2")])
        said = memory.add(**SALE, turn_id="t12")
        memory.forget(space="ana", turn_ids=said)
        assert {hit.turn_ids[0] for hit in memory.recall("bike", space="ana", fold=None)} == {*kept}
        assert memory.forget(space="ana", turn_ids=["1", "2"]) > 0
        assert memory.restore(space="ana", turn_ids=said) == 1
        with pytest.raises(StoreError, match="turn '1' was forgotten"):
            memory.add(**SALE, turn_id="1")
        assert memory.add(**SALE, turn_id="t12") == "t12"


def test_restoring_needs_no_index_and_says_where_there_is_nothing_to_restore(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(place / "memory.sqlite")
    with opened(place) as memory:
        memory.add(**SALE, turn_id="t1")
        memory.forget(space="ana", turn_ids=["t1"])
        forget(space="ana", turns="t1", restore=True, store=store)  # while another has the index
        assert capsys.readouterr().out.startswith("1 forgotten turn of ana can be added again")
        memory.add(**SALE, turn_id="t1")
    for turns, said in ((None, "no turn"), (["t1"], r"none of the turns \['t1'\]")):
        with pytest.raises(LocigraphError, match=f"space 'ana': {said} was forgotten, so there is nothing"):
            forget(space="ana", turns=turns, restore=True, store=store)


def test_spaces_are_listed_shown_and_explained_beside_an_open_memory(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    with opened(place) as memory:
        memory.add(**SALE)
        spaces(store=store)
        show(space="ana", store=store)
        explain("Who bought the bike?", space="ana", store=store, checkpoint=checkpoint)
        said = capsys.readouterr().out
        for words in ("ana  1 turn  ", "Ana sold the blue bike to Tom.  [2024-05-01", "own meaning"):
            assert words in said
        with pytest.raises(
            IndexUnavailableError, match=r"memory.index.db' is already open, in another process or in this one"
        ):
            opened(place)


def cached(place: Path) -> set[bytes]:
    """Digests of the texts whose vectors the text cache holds."""
    with closing(sqlite3.connect(place / "cache.sqlite")) as cache:
        return {digest for (digest,) in cache.execute("SELECT digest FROM vectors")}


@pytest.mark.parametrize("whole_space", [False, True])
def test_what_was_encoded_and_never_became_a_node_leaves_the_text_cache_too(place: Path, whole_space: bool) -> None:
    with opened(place) as memory:
        if not whole_space:  # the second turn says the same, and makes no fact of its own
            memory.add(**SALE | {"text": "I sold the blue racing bike to my old friend Tom."})
        before = cached(place)
        again = memory.add(**SALE | {"text": "I gladly sold the blue racing bike to my old friend Tom."})
        memory._encoder.encode(questions_about("Ana gladly sold the blue racing bike to Ana's old friend Tom."))
        assert cached(place) > before
        memory.forget(space="ana", turn_ids=None if whole_space else [again], whole_space=whole_space)
        assert cached(place) <= before


@pytest.mark.parametrize("forgotten", ["t0", "t2", None])
def test_no_vector_is_left_of_a_turn_in_a_context_that_a_late_turn_has_changed(
    forgotten: str | None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: AdaptedEncoder(place / "cache.sqlite"))
    monkeypatch.setattr(FakeCachedEncoder, "texts", [])
    small_checkpoint(text_encoder=ADAPTED).save(place / "checkpoint")
    said = {"t0": "My secret is Porto.", "t2": "It was lovely there.", "t1": "Which city?"}  # the last one comes late
    with opened(place, encoder=EncoderSettings(adapter="a")) as memory:
        for turns in (["t0", "t2"], ["t0", "t1", "t2"]):
            memory.add_many([SALE | {"turn_id": turn, "text": said[turn]} for turn in turns])
            memory.recall("city", space="ana")
        held = cached(place)
        memory.forget(space="ana", turn_ids=None if forgotten is None else [forgotten], whole_space=forgotten is None)
    gone = [
        text for turn in ([forgotten] if forgotten else said) for text in FakeCachedEncoder.texts if said[turn] in text
    ]
    digests = {hashlib.sha256(text.encode()).digest() for text in gone}
    assert sum("in reply to" in text for text in gone) >= 2
    assert digests <= held
    assert digests.isdisjoint(cached(place))


@pytest.mark.parametrize("whole_space", [False, True])
def test_no_vector_is_left_of_a_clause_of_a_forgotten_utterance(place: Path, whole_space: bool) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        before = cached(place)
        clause = hashlib.sha256(b"is it still 1234?").digest()
        said = memory.add(**SALE | {"text": "What was my PIN, and is it still 1234?", "space": "bo"})
        assert clause in cached(place) - before
        memory.forget(space="bo", turn_ids=None if whole_space else [said], whole_space=whole_space)
        assert cached(place) <= before


@pytest.mark.parametrize("turn_ids", ["t0", None])
def test_nothing_that_was_made_of_forgotten_words_is_kept_in_memory(turn_ids: str | None, place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE, turn_id="t0")
        memory.add(**SALE | {"text": "I keep a canoe in Porto."}, turn_id="t1")
        memory.recall("What did I sell last week?", space="ana")
        memory.forget(space="ana", turn_ids=turn_ids, whole_space=turn_ids is None)
        kept = [cache.cache_info().currsize for cache in text_caches._CACHES]
        assert kept == [0] * len(kept)
        assert len(kept) > 5


def test_a_whole_space_is_forgotten_only_when_that_is_said(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        with pytest.raises(LocigraphError, match="name the turns"):
            memory.forget(space="ana")
        memory.forget(space="ana", whole_space=True)
        assert memory.spaces() == []
        with pytest.raises(UnknownSpaceError):
            memory.recall("bike", space="ana")


@pytest.mark.parametrize("turn_ids", [["t1"], None])
def test_a_reader_is_answered_by_v2_after_any_forgetting(place: Path, turn_ids: list[str] | None) -> None:
    with opened(place) as memory:
        memory.add_many([SALE, SALE | {"space": "bo", "turn_id": "t1"}, SALE | {"space": "bo", "text": "It is gone."}])
        memory.forget(space="bo", turn_ids=turn_ids, whole_space=turn_ids is None)
    with opened(place, access="read") as memory:
        assert memory.recall("bike", space="ana").strategy == "v2"


def test_what_was_opened_to_be_read_is_not_written(place: Path) -> None:
    with opened(place) as memory:
        said = memory.add(**SALE)
    with opened(place, access="read") as memory:
        for write in (
            lambda: memory.add(**SALE),
            lambda: memory.forget(space="ana", turn_ids=[said]),
            lambda: memory.restore(space="ana"),
        ):
            with pytest.raises(LocigraphError, match="was opened for reading only; open it with access='write'"):
                write()


@pytest.mark.parametrize(
    "use",
    [
        lambda memory: memory.__enter__(),
        lambda memory: memory.add(**SALE),
        lambda memory: memory.add_many([SALE]),
        lambda memory: memory.forget(space="ana", turn_ids="t1"),
        lambda memory: memory.restore(space="ana"),
        lambda memory: memory.flush(),
        lambda memory: memory.spaces(),
        lambda memory: memory.scopes(),
        lambda memory: memory.times("ana"),
        lambda memory: memory.recall("bike", space="ana"),
        lambda memory: memory.state(),
        lambda memory: memory.warm_up(),
        lambda memory: memory.notes("ana"),
        lambda memory: memory.explain("bike", space="ana"),
    ],
)
def test_a_closed_memory_refuses_whatever_is_asked_of_it_and_closes_once(
    place: Path, use: Callable[[Memory], object]
) -> None:
    memory = opened(place)
    memory.add(**SALE, turn_id="t1")
    memory.close()
    with opened(place) as other:  # a second close must take nothing from it
        memory.close()
        with pytest.raises(LocigraphError, match=r"memory '.*memory.sqlite' is closed; open it again with Memory.open"):
            use(memory)
        assert [turn.turn_id for turn in other._graph.turns(SpaceId("ana"))] == ["t1"]
    (refused,) = memory.add_each([SALE])
    assert "is closed" in str(refused)


def test_a_path_in_the_place_of_parts_is_told_how_a_memory_is_made() -> None:
    with pytest.raises(TypeError, match=r"Memory\('m.sqlite'\): open a memory with Memory.open\(path\)"):
        Memory("m.sqlite")  # type: ignore[arg-type]


def test_an_argument_that_add_does_not_know_or_lacks_is_named_with_its_turn(place: Path) -> None:
    with opened(place) as memory:
        with pytest.raises(LocigraphError, match="turn 1: got an unexpected keyword argument 'speeker'"):
            memory.add_many([SALE, SALE | {"speeker": "Ana"}])
        with pytest.raises(LocigraphError, match="turn 0: missing 1 required keyword-only argument: 'session'"):
            memory.add_many([{name: value for name, value in SALE.items() if name != "session"}])
        one_turn: Any = SALE
        for add in (memory.add_many, memory.add_each):
            with pytest.raises(LocigraphError, match=r"turns is \{.*; expected a list of turns"):
                add(one_turn)
            with pytest.raises(LocigraphError, match=r"turn 1 is \[.*; give each turn as the arguments of Memory.add"):
                add([SALE, [SALE]])  # type: ignore[list-item]
        assert memory.spaces() == []


@pytest.mark.parametrize("name", ["space", "session", "speaker", "turn_id"])
def test_an_invalid_name_is_refused_under_the_name_of_its_argument(place: Path, name: str) -> None:
    with opened(place) as memory:
        for value in ("", " ", "a\nb", "a" * 241):
            with pytest.raises(LocigraphError, match=rf"turn 0: {name} is '.*; expected 1 to 240 bytes"):
                memory.add(**SALE | {name: value})
        assert memory.spaces() == []


def test_a_time_out_of_range_is_refused_as_text_and_as_datetime(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        for time in ("0001-01-01", datetime(1, 1, 1), datetime(3000, 1, 1, tzinfo=UTC)):
            with pytest.raises(LocigraphError, match=r"time is '.*'; expected a time from 1000 to 2999"):
                memory.recall("bike", space="ana", as_of=time)
            with pytest.raises(LocigraphError, match=r"turn 0: time is '.*'; expected a time from 1000 to 2999"):
                memory.add(**SALE | {"spoken_at": time})  # type: ignore[arg-type]  # SALE holds text alone


def test_the_same_turn_twice_is_one_and_other_words_under_its_id_are_refused(place: Path) -> None:
    with opened(place) as memory:
        assert memory.add(**SALE, turn_id="t1") == memory.add(**SALE, turn_id="t1")
        with pytest.raises(TurnConflictError, match=r"a different text \('I sold .*', not 'I kept it.'\)"):
            memory.add(**SALE | {"text": "I kept it.", "turn_id": "t1"})
        assert len(memory.recall("bike", space="ana")) == 1


def test_v1_answers_with_a_note_where_no_checkpoint_can_be_used(place: Path) -> None:
    with Memory.open(place / "memory.sqlite") as memory:  # the shipped one is of another text encoder
        memory.add(**SALE)
        found = memory.recall("Who bought the bike?", space="ana")
        assert (found.strategy, found[0].turn_ids) == ("v1", tuple(found[0].turn_ids))
        assert "v1 answered, since v2 cannot be used" in found.notes[0]
        with pytest.raises(LocigraphError, match="v2 cannot be used"):
            memory.recall("Who bought the bike?", space="ana", strategy="v2")
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        assert memory.recall("bike", space="ana").notes == (
            "v1 answered, since v2 cannot be used: no checkpoint is named",
        )


def test_without_a_checkpoint_no_graph_embeddings_are_due_and_closing_again_has_nothing_to_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[Parts] = []
    drain = Parts.drain

    def counted(parts: Parts) -> None:
        drained.append(parts)
        drain(parts)

    monkeypatch.setattr(Parts, "drain", counted)
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory.add(**SALE)
        assert memory.state().due_spaces == 0
    assert len(drained) == 1
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        assert memory.recall("bike", space="ana")
    assert len(drained) == 1
    with opened(place) as memory:  # what is listed is still done for whoever has a checkpoint
        assert memory.state().due_spaces == 1
    with opened(place) as memory:
        assert (memory.state().due_spaces, len(drained)) == (0, 2)


def test_a_failed_addition_says_that_the_turn_is_stored_so_that_it_is_not_added_twice(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise TextEncoderError("the model cannot be loaded")

    with opened(place) as memory:
        adding: list[Callable[[], object]] = [lambda: memory.add(**SALE), lambda: memory.add_each([SALE])[0]]
        for add in adding:
            with monkeypatch.context() as patched:
                patched.setattr(GraphWriter, "consolidate", fail)
                try:
                    found = add()
                except TextEncoderError as error:
                    found = error
            assert isinstance(found, TextEncoderError)
            assert re.fullmatch(
                "turn '[0-9a-f]{16}' is stored and will be consolidated later, so do not add it again: "
                "the model cannot be loaded",
                str(found),
            )
        memory.add(**SALE | {"text": "Tom paid with a cheque."})
        assert len(memory._graph.turns(SpaceId("ana"))) == 3
        assert memory.notes("ana") == []  # the next addition consolidated them


def test_an_open_memory_keeps_its_index_when_the_process_changes_its_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    with Memory.open("memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        memory.add(**SALE | {"turn_id": "t1"})
        memory.flush()
        monkeypatch.chdir(tmp_path / "b")
        memory.add(**SALE | {"turn_id": "t2", "text": "My zebrafish is called Wanda."})
        assert memory.recall("zebrafish", space="ana")[0].turn_ids == ("t2",)
    assert list((tmp_path / "b").iterdir()) == []
    monkeypatch.chdir(tmp_path / "a")
    with Memory.open("memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        memory.forget(space="ana", turn_ids=["t2"])
    assert files_with(tmp_path, "zebrafish", []) == []


def test_an_addition_that_was_not_stored_says_nothing_else(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE | {"turn_id": "t1"})
        with pytest.raises(TurnConflictError, match="is stored with a different text") as error:
            memory.add(**SALE | {"turn_id": "t1", "text": "I kept it."})
        assert "do not add it again" not in str(error.value)


def test_a_checkpoint_that_was_named_once_is_the_stores_own(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        version = memory.state().checkpoint
    with Memory.open(place / "memory.sqlite") as memory:
        assert (memory.state().checkpoint, memory.state().due_spaces) == (version, 0)
        assert memory.recall("bike", space="ana").strategy == "v2"


class Adapted(FakeCachedEncoder):
    """A text encoder with an adapter that changes nothing but the name."""

    def without_adapter(self) -> FakeCachedEncoder:
        return FakeCachedEncoder("fake", cache=self._cache)


@pytest.mark.parametrize("strategy", ["v1-adapted", "dense-adapted", "sum-adapted", "magma-adapted"])
def test_strategies_with_the_adapter_find_what_was_just_added(
    strategy: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: Adapted("fake+1", cache=place / "cache.sqlite"))
    with Memory.open(place / "memory.sqlite", encoder=EncoderSettings(adapter="a"), checkpoint=None) as memory:
        turn = memory.add(**SALE)
        assert {hit.turn_ids for hit in memory.recall("Who bought the bike?", space="ana", strategy=strategy)} == {
            (turn,)
        }


def test_a_reader_explains_and_searches_with_the_adapter_beside_a_writer_that_has_just_added(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: Adapted("fake+1", cache=place / "cache.sqlite"))
    small_checkpoint(text_encoder="fake+1").save(place / "adapted")
    how: dict[str, Any] = {"encoder": EncoderSettings(adapter="a"), "checkpoint": str(place / "adapted")}
    question = "Who bought the bike?"
    with Memory.open(place / "memory.sqlite", **how) as writer:
        writer.add(**SALE, turn_id="t1")
        writer.recall(question, space="ana")
        writer.add(**SALE | {"text": "I love Lisbon in spring.", "turn_id": "t2", "spoken_at": "2024-06-09"})
        with Memory.open(place / "memory.sqlite", **how, access="read") as reader:
            lacking = writer._graph.unembedded(SpaceId("ana"), "fake+1")
            explained = reader.explain(question, space="ana")
            found = {
                name: {turn for hit in reader.recall(question, space="ana", strategy=name) for turn in hit.turn_ids}
                for name in recalled()
                if name.endswith("-adapted")
            }
        assert len(lacking) == len(writer._graph.unembedded(SpaceId("ana"), "fake+1")) > 0  # nothing was written
        assert explained == writer.explain(question, space="ana")
    assert {turn.turn_id for turn in explained} == {"t1", "t2"}
    assert found
    assert all("t1" in turns for turns in found.values())


def test_a_language_model_consolidates_what_is_added_and_questions_are_answered_meanwhile(place: Path) -> None:
    may_answer, was_asked = Event(), Event()

    def answer(request: dict[str, Any]) -> Any:
        was_asked.set()
        may_answer.wait(10)
        return extracted(request)

    with stub_server(Stub(answer)) as stub:
        llm = LLMSettings(base_url=stub.url, model="m", cassette=str(place / "llm.sqlite"))
        with opened(place, consolidation="llm", llm=llm, max_tokens=4_000) as memory:
            sale = SALE | {"text": "I sold the old blue bike of my sister to Tom in the harbour yesterday."}
            may_answer.set()
            memory.add(**SALE)
            may_answer.clear()
            was_asked.clear()
            adding = Thread(target=memory.add, kwargs=sale)
            adding.start()
            assert was_asked.wait(30)
            for strategy in ("v2", "v1", "bm25"):
                found = memory.recall("bike", space="ana", strategy=strategy)
                assert ["of 2 turns, 1 is not consolidated yet" in note for note in found.notes] == [True], strategy
            assert memory.spaces() == ["ana"]
            may_answer.set()
            adding.join()
            found = memory.recall("bike", space="ana", strategy="v1", fold=None)
            assert {hit.type for hit in found} == {"episode", "knowledge_node"}, found
            more = [SALE | {"text": f"I sold boat number {number} to Tom in the old harbour."} for number in range(30)]
            with pytest.raises(LimitReachedError):
                memory.add_many(more)
    with opened(place) as memory, pytest.raises(LocigraphError, match="built by 'llm', not 'rules'"):
        memory.add(**SALE)


def test_an_extractor_that_cannot_take_turns_one_by_one_or_names_no_model_is_refused_at_once(place: Path) -> None:
    with pytest.raises(LocigraphError, match=r"consolidation is 'recorded'; .* by rules or llm"):
        opened(place, consolidation="recorded")
    with pytest.raises(LocigraphError, match=r"llm\.model is ''"):
        opened(place, consolidation="llm")


def test_a_hit_says_when_it_was_spoken_and_when_the_same_was_said_before(place: Path) -> None:
    with Memory.open(place / "m.sqlite", checkpoint=None) as memory:
        for month in (1, 3):
            memory.add(space="s", session=f"s{month}", speaker="Ana", text="I sail.", spoken_at=f"2024-{month:02}-10")
        memory.add(space="s", session="s4", speaker="Ana", text="I row.")
        found = memory.recall("Do you sail?", space="s", budget_tokens=300)
    turns = {hit.text: hit.as_json() for hit in found if hit.type == "episode"}
    assert turns["Ana: I sail."]["spoken_at"] == "2024-03-10T00:00:00+00:00"
    assert turns["Ana: I sail."]["again"] == ["2024-01-10T00:00:00+00:00"]
    assert turns["Ana: I row."]["spoken_at"] is None
    assert "[10 March 2024, also 10 January 2024] Ana: I sail." in str(found.context)


@pytest.mark.parametrize("asked", [{"space": "ana"}, {"space": ["ana"]}])
def test_a_fact_whose_place_another_took_says_until_when_it_held(place: Path, asked: dict[str, Any]) -> None:
    with opened(place) as memory:
        memory.add(**SALE | {"text": "I live in Boston near the old harbour."})
        memory.add(**SALE | {"text": "I live in Denver now, far from any harbour.", "spoken_at": "2024-06-22T10:00"})
        question = {"question": "Where does Ana live?", "strategy": "v1", "fold": None, **asked}
        now = {(hit.type, hit.text): hit.as_json()["until"] for hit in memory.recall(**question)}
        assert {text: until for (kind, text), until in now.items() if kind == "knowledge_node"} == {
            "Ana lives in Boston near the old harbour.": "2024-06-22",
            "Ana lives in Denver now, far from any harbour.": None,
        }
        assert {text: until for (kind, text), until in now.items() if kind == "episode"} == {
            "Ana: I live in Boston near the old harbour.": "2024-06-22",
            "Ana: I live in Denver now, far from any harbour.": None,
        }
        packed = str(memory.recall(**question, budget_tokens=500).context)
        assert "[1 May 2024, until 22 June 2024] Ana lives in Boston" in packed
        assert packed.count("until 22 June 2024") == 2
        earlier = memory.recall(**question, as_of="2024-06-01")
        assert {hit.until for hit in earlier} == {None}


def test_of_conversations_without_times_only_that_something_was_replaced_is_known(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        for turn, text in (("b", "I live in Boston near the harbour."), ("d", "I live in Denver now, far from it.")):
            memory.add(space="ana", session="s", speaker="Ana", turn_id=turn, text=text)
        found = memory.recall("Where does Ana live?", space="ana", fold=None, budget_tokens=500)
        assert {(hit.until, bool(hit.superseded_by)) for hit in found if "Boston" in hit.text} == {(None, True)}
        assert "\n[replaced] Ana lives in Boston near the harbour. (b)\n" in f"\n{found.context}\n"
        memory.add(space="ana", session="s", speaker="Ana", text="I live in Oslo now.", spoken_at="2024-06-01")
        found = memory.recall("Where does Ana live?", space="ana", fold=None)
        assert {hit.until for hit in found if "Boston" in hit.text} <= {None, date(2024, 6, 1)}


@pytest.mark.parametrize("strategy", ["v1", "v2"])
@pytest.mark.parametrize("asked", [{"space": "ana"}, {"user": "u"}], ids=["one space", "several spaces"])
def test_what_holds_comes_before_what_it_has_replaced_and_the_old_says_by_what(
    place: Path, asked: dict[str, Any], strategy: str
) -> None:
    said = {
        "old": "My favourite café is Lune, my very favourite café of all.",
        "other": "The weather is fine.",
        "new": "My favourite café is Orbit now.",
    }
    question = {"question": "What is my very favourite café of all?", "strategy": strategy, **asked}
    with opened(place) as memory:
        for month, (turn, text) in enumerate(said.items(), start=1):
            when = {"spoken_at": f"2024-0{month}-01", "turn_id": turn, "user": "u"}
            memory.add(space="ana", session="s", speaker="Ana", text=text, **when)
            memory.add(space="ben", session="s", speaker="Ben", text="I row.", **when)
        turns = [hit for hit in memory.recall(**question, fold=None) if hit.type == "episode" and hit.space == "ana"]
        ranked = {str(hit.turn_ids[0]): (hit.superseded_by, hit.until) for hit in turns}
        assert ranked["old"] == (("new",), date(2024, 3, 1))
        assert ranked["new"] == ((), None)
        assert [*ranked].index("new") < [*ranked].index("old")
        assert [hit.score for hit in turns] == sorted((hit.score for hit in turns), reverse=True)
        brought_back = memory.recall(**question, fold=None, include_superseded=True)
        assert next(hit for hit in brought_back if hit.type == "episode").turn_ids == ("old",)
        before = memory.recall(**question, as_of="2024-02-15")
        assert {hit.superseded_by for hit in before} == {()}
        memory.forget(space="ana", turn_ids=["new"])
        assert {hit.until for hit in memory.recall(**question)} == {None}


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("Who has the spare key?", "June has the spare key.", "Marta has the spare key now."),
        ("Who has the spare key?", "June has the spare key.", "I gave the spare key to Marta."),
        (
            "When is the dentist appointment?",
            "The dentist appointment is on the 9th.",
            "It's the 14th now, not the 9th.",
        ),
        ("How much is the rent?", "The rent is 900 euros a month.", "The rent went up to 950."),
        ("Where does Ana work?", "I work at Acme.", "I started a new job at Globex!"),
        ("When is the wedding?", "The wedding is on Saturday 3 May.", "The wedding has been moved to 17 May."),
    ],
)
def test_a_plain_change_is_noticed_and_nothing_else_is(place: Path, question: str, old: str, new: str) -> None:
    with opened(place) as memory:
        for month, text in enumerate((old, "The bakery opens at 7.", new, "The boat costs 70.")):
            memory.add(**SALE | {"text": text, "spoken_at": f"2024-0{month + 5}-02"})
        found = {hit.text: hit for hit in memory.recall(question, space="ana") if hit.type == "episode"}
        (replaced,) = (hit for hit in found.values() if hit.superseded_by)
        assert replaced.text == f"Ana: {old}"
        assert found[f"Ana: {new}"].turn_ids == replaced.superseded_by
        assert [*found].index(f"Ana: {new}") < [*found].index(replaced.text)


def test_a_turn_that_says_more_than_what_was_replaced_keeps_its_place(place: Path) -> None:
    long = (
        "We hiked the Ridgeback trail in Slovenia, slept in huts above Tolmin and swam in the Soca every morning "
        "before the crowds came. My favourite tea is oolong."
    )
    question = "Where did we sleep on the Ridgeback trail in Slovenia?"
    with opened(place) as memory:
        memory.add(**SALE | {"text": long, "turn_id": "trail"})
        memory.add(**SALE | {"text": "My favourite tea is sencha now.", "turn_id": "tea"})
        turns = [hit for hit in memory.recall(question, space="ana") if hit.type == "episode"]
        as_ranked = memory.recall(question, space="ana", include_superseded=True)
        assert [hit.turn_ids for hit in turns] == [hit.turn_ids for hit in as_ranked if hit.type == "episode"]
        assert {(hit.superseded_by, hit.until) for hit in turns} == {((), None)}


def test_turns_of_other_spaces_replace_nothing_and_expired_ones_are_not_named(place: Path) -> None:
    said = {"session": "s", "speaker": "Ana"}
    with opened(place) as memory:
        memory.add(space="one", turn_id="t1", text="My favourite tea is oolong.", user="u", **said)
        memory.add(space="one", turn_id="t3", text="My favourite tea is sencha now.", user="u", **said)
        memory.add(space="two", turn_id="t3", text="Tell me a joke about penguins.", user="u", **said)
        asked = memory.recall("Which tea does Ana drink?", user="u", fold=None)
        turns = [hit for hit in asked if hit.type == "episode"]
        assert [(hit.space, hit.turn_ids, hit.superseded_by) for hit in turns] == [
            ("one", ("t3",), ()), ("one", ("t1",), ("t3",)), ("two", ("t3",), ()),
        ]  # fmt: skip
        assert {hit.until for hit in turns} == {None}  # no turn has a time
        past = datetime.now(UTC) - timedelta(seconds=1)  # too short ago to be erased at once
        memory.add(space="one", turn_id="t4", text="My favourite tea is mint now.", expires_at=past, **said)
        named = {turn for hit in memory.recall("Which tea?", space="one") for turn in hit.superseded_by}
        assert named == {"t3"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The rent is 900 euros a month.", "The rent is 300 for the garage."),  # nothing says that it changed
        ("June has the spare key.", "Ben said Marta has the spare key now."),  # what somebody else says
        ("June has the spare key.", "If Marta has the spare key now, fine."),
        ("The train leaves at 9:40.", "The ferry leaves at 11:15 now."),
        ("I met Tom on the 9th.", "It's the 14th now, not the 8th."),
    ],
)
def test_what_is_no_plain_change_replaces_nothing(place: Path, first: str, second: str) -> None:
    with opened(place) as memory:
        for month, text in enumerate((first, second)):
            memory.add(**SALE | {"text": text, "spoken_at": f"2024-0{month + 5}-02"})
        assert {hit.superseded_by for hit in memory.recall("What about it?", space="ana")} == {()}


def test_secrets_are_replaced_before_anything_is_stored(place: Path) -> None:
    with opened(place, redact=True) as memory:
        memory.add(**SALE | {"text": "My password is hunter2, write it down."})
        assert [hit.text for hit in memory.recall("password", space="ana")] == [
            "Ana: My password is [redacted], write it down."
        ]
    assert b"hunter2" not in (place / "memory.sqlite").read_bytes()


def test_a_context_holds_what_fits_into_its_budget(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold bike {number} to Tom."} for number in range(20)])
        found = memory.recall("Which bike?", space="ana", budget_tokens=60)
    assert found.context is not None
    assert found.context.tokens <= 60
    assert len(found) == len(found.context.lines)


def test_a_context_has_limits_by_kind_of_memory(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold bike {number} to Tom."} for number in range(6)])

        def kinds(**limits: int) -> Counter[str]:
            found = memory.recall("bike", space="ana", strategy="v1", fold=None, budget_tokens=999, budget_kinds=limits)
            assert found.context is not None
            return Counter("turn" if hit.type == "episode" else "fact" for hit in found)

        assert kinds() == {"turn": 6, "fact": 6}
        assert kinds(facts=1, episodes=2) == {"turn": 2, "fact": 1}
        assert kinds(facts=0) == {"turn": 6}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"budget_kinds": {"turns": 3}},
            "budget_kinds names 'turns', which is not a kind of memory; known: 'episodes', 'facts', 'reflections'",
        ),
        ({"budget_kinds": {"fact": 3}}, "budget_kinds names 'fact', which is not a kind of memory; nearest is 'facts'"),
        ({"budget_kinds": {"facts": -1}}, "budget_kinds: facts is -1; expected a whole number, 0 or more"),
        ({"budget_kinds": {"facts": 2.5}}, "budget_kinds: facts is 2.5; expected a whole number"),
        ({"budget_kinds": {"facts": True}}, "budget_kinds: facts is True; expected a whole number"),
        (
            {"budget_kinds": {"facts": 3}, "budget_tokens": None},
            "budget_kinds limits a context, but no context was asked for",
        ),
        (
            {"budget_kinds": ["facts"]},
            r"budget_kinds is \['facts'\]; expected a mapping from kinds of memory to numbers",
        ),
        ({"budget_tokens": "60"}, "budget_tokens is '60'; expected a whole number"),
        ({"budget_tokens": 2.5}, "budget_tokens is 2.5; expected a whole number"),
        ({"top_k": 10**12}, "top_k is 1000000000000; expected at most 10000"),
    ],
)
def test_limits_that_make_no_sense_are_refused(place: Path, options: dict[str, object], told: str) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        with pytest.raises(LocigraphError, match=told):
            memory.recall("bike", space="ana", **{"budget_tokens": 60, **options})  # type: ignore[arg-type]


def test_a_strategy_s_own_limits_hold_in_its_contexts(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many(
            [SALE | {"text": f"I sold bike {number} to Tom. " + "So it was. " * 20} for number in range(40)]
        )

        def words(strategy: str) -> int:
            found = memory.recall("bike", space="ana", strategy=strategy, fold=None, budget_tokens=1_000_000)
            return len(str(found.context).split())

        assert words("v1") > 2_000
        assert 900 < words("gaama") <= 1_000


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["v2", "v1", "bm25", "dense", "sum"])
def test_copies_have_one_place_and_a_view_of_a_speaker_none_of_anothers_words(place: Path, strategy: str) -> None:
    copies = [SALE | {"text": "Who bought the bike, Bo or Tom?", "speaker": "Eve"} for _ in range(12)]
    with opened(place) as memory:
        sold, *_ = memory.add_many([SALE, *copies, SALE | {"text": "Bo is glad.", "speaker": "Bo"}])

        def asked(top_k: int = 3, **options: object) -> Recalled:
            return memory.recall("Who bought the bike?", space="ana", top_k=top_k, strategy=strategy, **options)  # type: ignore[arg-type]

        def copied(found: Recalled) -> int:
            return sum(hit.text.startswith("Eve: ") for hit in found)

        assert copied(asked(top_k=10, fold=None)) >= 6  # there are at most four other nodes
        assert copied(asked()) == 1
        assert 11 in [len(hit.same) for hit in asked()]
        assert sold in [turn for hit in asked() for turn in hit.turn_ids]
        assert copied(asked(speaker=["Ana", "Bo"])) == 0
        assert all(hit.turn_ids == (sold,) for hit in asked(speaker="Ana"))
        with pytest.raises(LocigraphError, match=r"no speaker 'Anna' in space 'ana'; nearest is 'Ana'"):
            asked(speaker="Anna")
        with pytest.raises(LocigraphError, match="name at least one speaker"):
            asked(speaker=[])
        with pytest.raises(LocigraphError, match=r"fold is 0; expected a word similarity above 0"):
            asked(fold=0)


def test_a_speaker_is_found_however_unicode_composes_the_name_and_turns_stay_as_they_were_given(place: Path) -> None:
    composed, decomposed = "Jos\u00e9", "Jose\u0301"
    with opened(place) as memory:
        memory.add(**SALE | {"speaker": decomposed, "turn_id": "t1"})
        memory.add(**SALE | {"speaker": composed, "turn_id": "t2", "text": "Tom has the bike now."})
        memory.add(**SALE | {"turn_id": "t3", "text": "The bike is old."})
        for name in (composed, decomposed):
            hits = memory.recall("bike", space="ana", speaker=name)
            assert {turn for hit in hits for turn in hit.turn_ids} == {"t1", "t2"}
        assert memory._graph.speakers(SpaceId("ana")) == ["Ana", decomposed, composed]


@pytest.mark.parametrize("turn_ids", ["t12", ["t12"]])
def test_one_text_explains_one_turn(place: Path, turn_ids: str | list[str]) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"turn_id": name} for name in ("t", "1", "2", "t12")])
        assert [each.turn_id for each in memory.explain("bike", space="ana", turn_ids=turn_ids)] == ["t12"]


def test_an_empty_list_of_turns_to_explain_is_refused(place: Path) -> None:
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    with opened(place) as memory:
        memory.add(**SALE)
        with pytest.raises(LocigraphError, match="turn_ids is empty; name the turns to explain"):
            memory.explain("bike", space="ana", turn_ids=[])
    with pytest.raises(LocigraphError, match="turn_ids is empty; name the turns to explain"):
        explain("bike", space="ana", store=store, checkpoint=checkpoint, turns="")


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


def unlogged(place: Path) -> dict[Path, bytes]:
    """What the files hold, without the logs of the store, whose reader test_engine tests."""
    return {path: path.read_bytes() for path in place.rglob("*[!ml]") if path.is_file()}


def test_a_reader_works_on_a_disk_that_lets_nobody_write_and_leaves_every_byte(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
    before = unlogged(place)
    access = os.access
    # The superuser may write whatever a file's mode says.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    with opened(place, access="read") as memory:
        assert memory.recall("bike", space="ana").strategy == "v2"
        assert len(memory.recall("bike", space="ana", strategy="v1")) >= 1
    with pytest.raises(TextEncoderError, match=r"cache\.sqlite: the cache of vectors cannot be written"):
        FakeCachedEncoder("fake", cache=place / "cache.sqlite").forget(["bike"])
    assert unlogged(place) == before


def test_a_reader_of_what_v2_does_not_know_yet_gets_v1_with_a_note_and_never_a_shorter_list(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory.add(**SALE)
    with opened(place, access="read") as memory:
        found = memory.recall("bike", space="ana")
        assert (found.strategy, len(found)) == ("v1", len({hit.node_id for hit in found}))
        assert "no graph embeddings of checkpoint" in found.notes[0]
        with pytest.raises(LocigraphError, match="run locigraph verify, which writes what is due"):
            memory.recall("bike", space="ana", strategy="v2")


def test_a_reader_counts_the_rows_of_a_space_once_for_a_question(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        memory.recall("bike", space="ana")
    counted, count = list[str | None](), Collection.count

    def counting(self: Collection, space: str | None = None) -> int:
        counted.append(space)
        return count(self, space)

    monkeypatch.setattr(Collection, "count", counting)
    with opened(place, access="read") as memory:
        assert memory.recall("bike", space="ana").strategy == "v2"
    assert counted == ["ana"]


def test_what_was_added_before_a_crash_is_found_after_it(place: Path) -> None:
    memory = opened(place)
    memory.add(**SALE)
    memory.__exit__(KeyboardInterrupt)  # no flush
    with opened(place) as again:
        assert len(again.recall("bike", space="ana")) == 1


def test_what_was_added_before_a_crash_is_found_by_a_reader_although_the_index_lacks_it(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        before = memory.recall("bike", space="ana", strategy="v1")
    memory = opened(place)
    memory.add(**SALE | {"text": "The bike was too small."})
    memory.__exit__(KeyboardInterrupt)  # no flush
    with opened(place, access="read") as reader:
        found = reader.recall("bike", space="ana")
        assert found.strategy == "v1"
        assert "searched without the index" in found.notes[1]
        assert "run locigraph verify" in found.notes[1]
        assert len(found) == len(before) + 1
    with opened(place) as again:
        assert [hit.node_id for hit in again.recall("bike", space="ana", strategy="v1")] == [
            hit.node_id for hit in found
        ]


def test_what_was_added_before_an_error_of_the_caller_is_found_by_a_reader(place: Path) -> None:
    memory = opened(place)
    memory.add(**SALE)
    memory.__exit__(ZeroDivisionError)
    with opened(place, access="read") as memory:
        assert memory.recall("bike", space="ana").strategy == "v2"


def test_what_a_list_names_is_forgotten_although_some_of_it_was_before(place: Path) -> None:
    with opened(place) as memory:
        first, second = memory.add_many([SALE, SALE | {"text": "I kept the boat."}])
        assert memory.forget(space="ana", turn_ids=first) > 0
        assert memory.forget(space="ana", turn_ids=[first, second]) > 0
        assert memory.forget(space="ana", turn_ids=[first, second]) == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"top_k": 2.5}, "top_k is 2.5; expected a whole number"), ({"top_k": True}, "top_k is True"),
        ({"question": None}, "the question is None; expected text"), ({"space": 5}, "the name 5 is not text"),
        ({"strategy": ["v1"]}, "strategy is ['v1']; expected a name"),
        ({"reranker": 5}, "reranker is 5; expected a name"),
        ({"fold": ".9"}, "fold is '.9'; expected a word similarity above 0"),
        ({"queries": "rules"}, "queries is 'rules'; expected a function such as generate_queries"),
        ({"user": "ben"}, "space 'ana' does not belong to user 'ben'; nearest is \"user 'ann'\""),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_told_in_the_callers_words(place: Path, asked: dict[str, Any], told: str) -> None:
    with opened(place) as memory:
        memory.add(**SALE, user="ann")
        with pytest.raises(LocigraphError, match=re.escape(told)):
            memory.recall(**{"question": "bike", "space": "ana"} | asked)
        several: Any = ["ana", "ben"]
        for ask in (memory.times, memory.notes, lambda space: memory.restore(space=space)):
            with pytest.raises(LocigraphError, match=r"space is \['ana', 'ben'\]; expected the name of one space"):
                ask(several)
        with pytest.raises(LocigraphError, match=r"space is \['ana', 'ben'\]"):
            memory.explain("bike", space=several)
        with pytest.raises(LocigraphError, match="top_k is '3'; expected a whole number"):
            memory.explain("bike", space="ana", top_k="3")  # type: ignore[arg-type]
    with pytest.raises(LocigraphError, match="access is 'rw'; expected one of create, write, read"):
        opened(place, access="rw")


def test_several_threads_may_add_and_ask(place: Path) -> None:
    def work(number: int) -> None:
        for turn in range(3):
            memory.add(**SALE | {"space": f"user{number}", "turn_id": f"t{turn}", "text": f"Bike {turn} is sold."})
            assert len(memory.recall("bike", space=f"user{number}")) >= turn + 1

    with opened(place) as memory:
        side_by_side(work, 4)
        assert memory.spaces() == [f"user{number}" for number in range(4)]


SESSIONS = {
    "s1": ["I live in Boston.", "My favourite colour is green.", "I sold the blue bike to Tom."],
    "s2": ["I moved to Denver last week.", "My favourite colour is green."],
    "s3": ["Tom repaired the bike on Monday.", "I work as a carpenter now.", "I live in Austin."],
}
UNDATED = [("s1", 0), ("s2", 0), ("s3", 1)]
CORPUS: list[dict[str, Any]] = [
    {
        "space": "ana", "session": session, "speaker": "Ana", "text": text, "turn_id": f"{session}:{place}",
        "spoken_at": None if (session, place) in UNDATED else f"2024-05-0{session[1]}T10:0{place}",
    }
    for session, texts in SESSIONS.items()
    for place, text in enumerate(texts)
]  # fmt: skip


def graph_of(path: Path) -> tuple[object, ...]:
    with Store(path) as store:
        space = SpaceId("ana")
        return store.turns(space), store.nodes(space, include_archived=True), store.relations(space), store.misplaced()


def by_session(turns: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {session: [turn for turn in turns if turn["session"] == session] for session in SESSIONS}


@pytest.mark.long
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_split_into_appends_gives_the_same_nodes_and_edges(place: Path, data: st.DataObject) -> None:
    name = f"{uuid.uuid4()}.sqlite"
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
    assert_same(place / name, place / "whole.sqlite")


SOME_DATED: list[dict[str, Any]] = [
    {"space": "ana", "speaker": "Ana", "session": session, "turn_id": f"t{i}", "text": text, "spoken_at": time}
    for i, (session, time, text) in enumerate(
        [
            ("notes", None, "I live in Paris with my sister."),
            ("s1", "2023-01-01", "I live in Berlin with my sister."),
            ("diary", None, "I live in Rome with my sister."),
            ("s1", "2022-01-01", "My favourite colour is green."),
            ("s2", "2022-06-01", "I live in Oslo with my sister."),
            ("notes", "2024-01-01", "The weather here is fine."),
        ]
    )
]


@pytest.mark.long
@pytest.mark.parametrize("gone", [[], ["t1"], ["t1", "t3"], ["t5"]])
def test_undated_sessions_one_turn_at_a_time_and_some_forgotten_give_the_graph_of_the_rest_at_once(
    place: Path, gone: list[str]
) -> None:
    with opened(place) as memory:
        for turn in SOME_DATED:
            memory.add(**turn)
        if gone:
            memory.forget(space="ana", turn_ids=gone)
            memory.restore(space="ana")
        assert memory.notes("ana") == []
    with opened(place, "whole.sqlite") as memory:
        memory.add_many([turn for turn in SOME_DATED if turn["turn_id"] not in gone])
    assert_same(place / "memory.sqlite", place / "whole.sqlite")


def assert_same(path: Path, batch: Path) -> None:
    """A graph holds what one that was built at once holds."""
    made, whole = graph_of(path), graph_of(batch)
    assert made[0] == whole[0]
    assert sorted(map(repr, made[1])) == sorted(map(repr, whole[1]))  # type: ignore[call-overload]
    assert sorted(map(repr, made[2])) == sorted(map(repr, whole[2]))  # type: ignore[call-overload]
    assert made[3] == {}


@pytest.mark.long(seconds=45)
def test_each_of_600_turns_is_found_by_the_next_question_and_the_graph_is_that_of_a_batch(place: Path) -> None:
    said = [turn for conversation in load_corpus("jsonl", "threads").conversations for turn in conversation.turns][:600]
    turns: list[dict[str, Any]] = [
        {
            "space": "ana", "session": f"{turn.space} {turn.session_id}", "speaker": turn.speaker, "text": turn.text,
            "turn_id": f"{turn.space} {turn.turn_id}", "spoken_at": MONDAY + timedelta(minutes=place),
        }
        for place, turn in enumerate(said)
    ]  # fmt: skip
    with opened(place) as memory:
        for turn in turns:
            added = memory.add(**turn)
            found = memory.recall(turn["text"], space="ana", top_k=600, strategy="v2", fold=None)
            assert (added,) in [hit.turn_ids for hit in found]
        assert len(found) == len(turns)
    with opened(place, "whole.sqlite") as memory:
        memory.add_many(turns)
    assert_same(place / "memory.sqlite", place / "whole.sqlite")


def test_a_turn_reads_nothing_again_that_the_one_before_it_knew(place: Path) -> None:
    read: list[SpaceId] = []

    class Watched(Store):
        def nodes(self, space: SpaceId, **options: Any) -> list[Node]:
            if "ids" not in options:
                read.append(space)
            return super().nodes(space, **options)

    parts = Parts(
        Watched(place / "watched.sqlite"),
        index=IndexSettings(), encoder=EncoderSettings(), checkpoint=None, extractor=RuleExtractor,
        clients=clients_of(ModelSettings()),
        waits_for_models=False, is_readonly=False,
    )  # fmt: skip
    with Memory(parts) as memory:
        memory.add(**SALE)
        assert read
        read.clear()
        for number in range(3):
            memory.add(**SALE | {"text": f"I sold {number} more."})
        assert read == []
        memory.forget(space="ana", turn_ids=[memory.add(**SALE | {"text": "Nobody knows."})])
        memory.add(**SALE | {"text": "Hello again."})
        assert read


def test_every_public_name_can_be_imported_and_the_version_is_that_of_the_package() -> None:
    assert {name: getattr(locigraph, name).__name__ for name in locigraph.__all__ if name != "__version__"} == {
        name: name for name in locigraph._HOMES
    }
    assert (locigraph.Memory, locigraph.StoreError) == (Memory, StoreError)
    assert locigraph.__version__ == version("locigraph")


def test_every_error_of_the_documentation_is_a_public_name() -> None:
    page = Path(__file__).parents[2] / "docs" / "api.md"
    documented = re.findall(r"^### (\w+Error)$", page.read_text(), re.MULTILINE)
    assert "UnknownScopeError" in documented
    assert {*documented} == {name for name in locigraph.__all__ if name.endswith("Error")}


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, locigraph; print([n for n in ('torch', 'pymilvus', 'sqlalchemy') if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("strategy", [name for name, row in recalled().items() if not row.needs_adapter])
def test_of_turns_that_are_all_pending_nothing_is_found_and_that_is_said(place: Path, strategy: str) -> None:
    with Store(place / "memory.sqlite") as store:
        store.append_turns([replace(turn, space=SpaceId("ana")) for turn in make_turns(["I sold my bike."])])
    with opened(place) as memory:
        hits = memory.recall("Who bought the bike?", space="ana", strategy=strategy)
        assert len(hits) == 0
        (note,) = hits.notes
        assert "of 1 turn, 1 is not consolidated yet" in note


def test_turns_of_several_callers_are_remembered_each_as_if_alone(place: Path) -> None:
    with opened(place) as memory:
        named = [SALE | {"turn_id": f"t{number}"} for number in range(4)]
        assert memory.add_each(named[:2]) == ["t0", "t1"]
        memory.forget(space="ana", turn_ids=["t1"])
        other, forgotten, early, *new = memory.add_each(
            [
                named[0] | {"text": "I kept it."}, named[1], SALE | {"spoken_at": "soon"}, named[2],
                SALE, named[0], named[3],
            ]
        )  # fmt: skip
        assert isinstance(other, TurnConflictError)
        assert "'t1' was forgotten" in str(forgotten)
        assert "'soon' is not ISO 8601" in str(early)
        assert [new[0], *new[2:]] == ["t2", "t0", "t3"]
        assert {turn for hit in memory.recall("bike", space="ana", fold=None) for turn in hit.turn_ids} == {
            "t0", "t2", "t3", new[1],
        }  # fmt: skip


@pytest.mark.parametrize("error", [LanguageModelError("no answer"), IndexUnavailableError("no index")])
def test_of_an_outage_every_caller_is_told_and_nobody_tries_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: LocigraphError
) -> None:
    tries: list[object] = []

    def fail(writer: GraphWriter, turns: object, **_: object) -> None:
        tries.append(turns)
        raise error

    monkeypatch.setattr(GraphWriter, "append", fail)
    with opened(place) as memory:
        assert memory.add_each([SALE, SALE]) == [error, error]
    assert len(tries) == 1


def test_after_an_outage_each_caller_hears_of_its_own_turn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract, left = Consolidator._extract, 2

    def cut(self: Consolidator, turn: Turn, state: SpaceState) -> None:
        nonlocal left
        if left == 0:
            outage = LanguageModelError("no answer")
            outage.public = "busy"
            raise outage
        left -= 1
        extract(self, turn, state)

    with opened(place) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(Consolidator, "_extract", cut)
            first, second, third = memory.add_each([SALE | {"turn_id": f"t{number}"} for number in range(3)])
        assert (first, second) == ("t0", "t1")
        assert isinstance(third, LanguageModelError)
        assert "turn 't2' is stored and will be consolidated later, so do not add it again: no answer" in str(third)
        assert third.public == "turn 't2' is stored and will be consolidated later, so do not add it again: busy"
        memory.add(**SALE | {"turn_id": "t3"})
        hits = memory.recall("bike", space="ana", fold=None)
        assert {turn for hit in hits for turn in hit.turn_ids} == {"t0", "t1", "t2", "t3"}


@pytest.mark.parametrize("path", [None, 5, b"memory.sqlite"])
def test_a_path_that_is_none_opens_nothing(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LocigraphError, match="expected that of a file, or the URL"):
        Memory.open(path)
    assert not [*tmp_path.iterdir()]


def test_arguments_of_a_wrong_type_are_refused_in_words(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        with pytest.raises(LocigraphError, match="the name 1 is not text"):
            memory.recall("bike", space="ana", speaker=cast("str", 1))
        (refused,) = memory.recall_each(cast("Any", [5]))
        assert "a question is 5" in str(refused)
        for ask in (memory.recall_each, memory.recall_at_once):
            for given in (None, 5, {"question": "bike"}):
                with pytest.raises(LocigraphError, match="expected a list of the arguments of"):
                    ask(cast("Any", given))
        with pytest.raises(LocigraphError, match="speaker is 5; expected text"):
            memory.profile(space="ana", speaker=cast("str", 5))
        with pytest.raises(LocigraphError, match="expected at most 2147483647"):
            memory.overview("ana", most_topics=10**30)


def test_forgetting_in_one_space_leaves_every_other_one_searchable(place: Path) -> None:
    with opened(place) as memory:
        for space in ("ana", "ben"):
            memory.add(**SALE | {"space": space, "turn_id": "t0"})
            memory.add(**SALE | {"space": space, "turn_id": "t1", "text": "The bike is gone."})
            memory.recall("bike", space=space)
        live = memory._parts.live()
        assert live is not None
        live._last.hot.drop([SpaceId("ben")])
        memory.forget(space="ana", turn_ids=["t0"])
        for _ in range(2):
            assert memory.recall("bike", space="ben", fold=None).strategy == "v2"
        assert {turn for hit in memory.recall("bike", space="ben", fold=None) for turn in hit.turn_ids} == {"t0", "t1"}


def test_a_turn_without_a_space_is_refused_alone(place: Path) -> None:
    nowhere = {name: value for name, value in SALE.items() if name != "space"}
    with opened(place) as memory:
        kept, refused = memory.add_each([SALE | {"turn_id": "t0"}, nowhere])
        (alone,) = memory.add_each([nowhere])
    assert kept == "t0"
    assert all("space" in str(each) and isinstance(each, LocigraphError) for each in (refused, alone))


def test_a_caller_whose_turn_is_stored_before_an_error_hears_that_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was tried with others before: its ID was made for it all the same."""

    def fail(self: Consolidator, turn: Turn, state: SpaceState) -> None:
        raise StoreError("the disk is full")

    with opened(place) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(Consolidator, "_extract", fail)
            for each in memory.add_each([SALE | {"space": "ben"}, SALE | {"space": "eve"}]):
                assert "is stored and will be consolidated later, so do not add it again: the disk is full" in str(each)
        for space in ("ben", "eve"):
            memory.add(**SALE | {"space": space, "text": "The bike is gone."})
            assert len(memory.recall("bike", space=space)) == 2


def test_v1_is_asked_again_where_a_turn_is_added_between_two_looks_at_the_index(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        drain, tries = Parts.drain, 0

        def late(self: Parts) -> None:
            nonlocal tries
            tries += 1
            drain(self)
            if tries <= 2:  # as another thread may that waits for language models
                (turn,) = make_turns([f"{tries}"])
                late_one = replace(turn, space=SpaceId("ana"), turn_id=TurnId(f"late {tries}"))
                memory._parts.writer().add([late_one])

        monkeypatch.setattr(Parts, "drain", late)
        assert memory.recall("bike", space="ana", strategy="v1")[0].text == "Ana: I sold the blue bike to Tom."
        assert tries == 3


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"text": None}, "text is None"),
        ({"speaker": 5}, "speaker is 5"),
        ({"space": "a\ud800"}, "space is 'a\\ud800'"),
        ({"turn_id": "\x00"}, "turn_id is"),
        ({"text": ""}, "text is '', and there is no image_caption"),
        ({"text": " \n", "image_caption": " "}, "text is ' \\n', and there is no image_caption"),
    ],
)
def test_what_is_no_text_is_refused_and_nothing_is_written(place: Path, wrong: dict[str, Any], told: str) -> None:
    with opened(place) as memory:
        with pytest.raises(LocigraphError, match=re.escape(told)):
            memory.add(**SALE | wrong)
        kept, refused = memory.add_each([SALE, SALE | wrong])
        assert isinstance(kept, str)
        assert told in str(refused)
        memory.add(**SALE | {"text": "", "image_caption": "a red boat"})  # what an image shows is enough
        with pytest.raises(LocigraphError, match="lone surrogate"):
            memory.recall("who \udc00", space="ana")
        with pytest.raises(UnknownSpaceError):
            memory.times("ana\udc00")
        with pytest.raises(LocigraphError, match="turn_ids is empty"):
            memory.forget(space="ana", turn_ids=[])


def test_the_index_of_a_deleted_store_stands_in_the_way_of_no_question(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        memory.recall("Who bought the bike?", space="ana")
    for file in place.glob("memory.sqlite*"):
        file.unlink()
    with opened(place) as memory:
        memory.add(**SALE | {"text": "I bought a violin."})
        assert memory.recall("violin", space="ana")[0].text == "Ana: I bought a violin."


def test_with_a_named_checkpoint_v1_answers_once_a_refresh_beside_it_has_put_another_in_use(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        memory.recall("Who bought the bike?", space="ana")
        parts = memory._parts
        other = small_checkpoint(seed=7, text_encoder=memory._encoder.model_id, text_dim=parts.checkpoint().text_dim)
        LiveEmbeddings(parts.graph, parts.index(), other, memory._encoder).refresh()
        in_use = parts.index().alias_target(GRAPH_ALIAS)
        memory.add(**SALE | {"text": "I sold the canoe to Tim."})
        for _ in range(2):
            found = memory.recall("Who bought the canoe?", space="ana")
            assert found.strategy == "v1"
            assert "another process has put graph embeddings" in found.notes[0]
            assert found[0].text == "Ana: I sold the canoe to Tim."
            with pytest.raises(StaleEmbeddingsError, match="open the memory again"):
                memory.recall("Who bought the canoe?", space="ana", strategy="v2")
        assert parts.index().alias_target(GRAPH_ALIAS) == in_use


def test_a_memory_goes_on_with_the_checkpoint_that_a_refresh_beside_it_has_put_in_use(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE)
        memory.recall("Who bought the bike?", space="ana")
    with Memory.open(place / "memory.sqlite") as memory:
        first = memory.recall("Who bought the bike?", space="ana")
        parts = memory._parts
        other = small_checkpoint(seed=7, text_encoder=memory._encoder.model_id, text_dim=parts.checkpoint().text_dim)
        other.save(place / "other")
        LiveEmbeddings(parts.graph, parts.index(), load_checkpoint(place / "other"), memory._encoder).refresh()
        defaults.remember_checkpoint(parts.graph, place / "other", memory._encoder.model_name)
        memory.add(**SALE | {"text": "I sold the canoe to Tim."})
        found = memory.recall("Who bought the canoe?", space="ana")
        assert (first.strategy, found.strategy, found.notes) == ("v2", "v2", ())
        assert parts.checkpoint().version == load_checkpoint(place / "other").version
