"""What ``locigraph build`` says before and after it reads a file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from locigraph.assembly.settings import CorpusSettings
from locigraph.kg.errors import LocigraphError, TurnConflictError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.scripts.commands.memory.build import build
from locigraph.scripts.commands.memory.forget import forget
from locigraph.scripts.commands.research.ablate import ablate
from locigraph.scripts.commands.research.evaluate import evaluate
from locigraph.scripts.commands.training.adapt import adapt
from locigraph.scripts.commands.training.train import train
from tests.fakes import make_conversation

TEXTS = ("I sold the blue bike to Tom.", "My sister plays the oboe.", "We moved to Porto in spring.")


def corpus(folder: Path, texts: Sequence[str] = TEXTS, *, space: str = "ana") -> CorpusSettings:
    turns = [{"turn_id": f"t{number}", "speaker": "Ana", "text": text} for number, text in enumerate(texts, start=1)]
    session = {"session_id": "s1", "started_at": "2024-05-01T10:00", "turns": turns}
    path = folder / f"{space}.jsonl"
    path.write_text(json.dumps({"conversation_id": space, "sessions": [session]}) + "\n")
    return CorpusSettings(path=str(path))


def test_a_checkpoint_that_is_not_there_is_named_before_anything_is_built(tmp_path: Path) -> None:
    store = str(tmp_path / "g.sqlite")
    with pytest.raises(LocigraphError, match="nowhere"):
        build(corpus=corpus(tmp_path), store=store, checkpoint=str(tmp_path / "nowhere"))
    with Store(store) as graph:
        assert graph.spaces() == []


def test_the_sample_is_not_taken_for_a_store_of_other_conversations_unless_it_is_named(tmp_path: Path) -> None:
    store = str(tmp_path / "g.sqlite")
    with Store(store) as graph:
        graph.append_turns(make_conversation([TEXTS[0]], space=SpaceId("ana")).turns)
    message = (
        r"no corpus is named, and store '.*g\.sqlite' holds conversations other than the bundled sample's; name the "
        r"file with --corpus\.path"
    )
    for dry_run in (True, False):
        with pytest.raises(LocigraphError, match=message):
            build(store=store, checkpoint=None, dry_run=dry_run)
    for command in (train, adapt, evaluate, ablate):
        with pytest.raises(LocigraphError, match=message):
            command(store=store, output=str(tmp_path / "out"))
    build(corpus=CorpusSettings(path="sample"), store=store, checkpoint=None, dry_run=True)


@pytest.mark.long
def test_the_sample_goes_into_a_store_of_its_own_again_and_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part, other = (CorpusSettings(conversations=[name]) for name in ("harbor", "ward"))
    for read, line in ((part, "new space harbor: 95 turns"), (other, "new space ward"), (part, "known space harbor")):
        build(corpus=read, store=str(place / "g.sqlite"), checkpoint=None)
        assert capsys.readouterr().out.startswith(line)


def test_a_build_says_which_spaces_are_new_and_of_how_many_the_first_five(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(store=str(place / "absent.sqlite"), dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "new space harbor: 95 turns, 2024-02-11 to 2024-09-29"
    assert lines[5] == "and 3 more, of which 3 are new"
    assert lines[6].startswith("dry run: 746 turns to consolidate by rules. They are from 8 conversations")
    assert not (place / "absent.sqlite").exists()
    build(corpus=corpus(place), store=str(place / "g.sqlite"), checkpoint=None)
    assert capsys.readouterr().out.startswith("new space ana: 3 turns, 2024-05-01\n")
    build(corpus=corpus(place), store=str(place / "g.sqlite"), checkpoint=None, dry_run=True)
    assert capsys.readouterr().out.startswith("known space ana: 3 turns, 2024-05-01\ndry run: 0 turns")


def test_a_dry_run_counts_no_forgotten_turn_and_a_build_names_the_space_whose_turns_may_come_back(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, read = str(place / "g.sqlite"), corpus(place, space="ana b")
    build(corpus=read, store=store, checkpoint=None)
    forget(space="ana b", turns="t2", store=store, checkpoint=None)
    capsys.readouterr()
    build(corpus=read, store=store, checkpoint=None, dry_run=True)
    said = capsys.readouterr().out
    assert "dry run: 0 turns to consolidate" in said
    assert said.endswith("; 1 forgotten turn would be skipped\n")
    build(corpus=read, store=store, checkpoint=None)
    cure = (
        "ana b: 1 forgotten turn skipped; to allow this again, run locigraph forget --restore --space 'ana b', "
        "then build again"
    )
    assert cure in capsys.readouterr().out
    forget(space="ana b", yes=True, store=store, checkpoint=None)
    capsys.readouterr()
    build(corpus=read, store=store, checkpoint=None, dry_run=True)
    assert "dry run: 0 turns to consolidate" in capsys.readouterr().out


def test_a_dry_run_refuses_what_the_build_would_refuse(place: Path) -> None:
    store = str(place / "g.sqlite")
    build(corpus=corpus(place), store=store, user="ana", checkpoint=None)
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE turns SET text = 'other words' WHERE turn_id = 't2'")
    for options, message in (
        ({"user": "ana"}, "turn 't2' is stored with a different text"),
        ({"user": "ben"}, "belongs to user 'ana', not 'ben'"),
        ({"consolidation": "recorded"}, "has no recorded extractions"),
    ):
        for dry_run in (True, False):
            with pytest.raises(LocigraphError, match=message):
                build(corpus=corpus(place), store=store, checkpoint=None, dry_run=dry_run, **options)  # type: ignore[arg-type]


def test_a_dry_run_refuses_a_space_of_another_extractor(place: Path) -> None:
    read, store = CorpusSettings(path="sample", conversations=["harbor"]), str(place / "g.sqlite")
    build(corpus=read, store=store, checkpoint=None)
    recorded = replace(read, extractions="sample")
    for dry_run in (True, False):
        with pytest.raises(LocigraphError, match="space 'harbor' was built by 'rules', not 'recorded'"):
            build(corpus=recorded, consolidation="recorded", store=store, checkpoint=None, dry_run=dry_run)


def test_a_build_counts_its_own_spaces_among_all_of_the_store(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(place / "g.sqlite")
    build(corpus=corpus(place), store=store, checkpoint=None)
    assert f"\n1 space in {store}: " in capsys.readouterr().out
    build(corpus=corpus(place, space="ben"), store=store, checkpoint=None)
    assert f"\n1 of 2 spaces in {store}: " in capsys.readouterr().out
    forget(space="ben", yes=True, store=store, checkpoint=None)
    build(corpus=corpus(place, space="ben"), store=store, checkpoint=None)
    assert f"\n0 of 1 space in {store}: no nodes" in capsys.readouterr().out


def slack_channel(folder: Path, name: str, *said: str) -> CorpusSettings:
    (folder / "general").mkdir(exist_ok=True)
    (folder / "users.json").write_text(json.dumps([{"id": "U1", "real_name": "Ana"}, {"id": "U2", "real_name": name}]))
    messages = [
        {"type": "message", "user": f"U{1 + number % 2}", "ts": f"17100000{number}0.000100", "text": text}
        for number, text in enumerate(said)
    ]
    (folder / "general" / "2024-03-09.json").write_text(json.dumps(messages))
    return CorpusSettings(format="slack", path=str(folder / "general"))


def test_edited_and_renamed_messages_of_an_export_stay_as_first_stored_and_what_is_new_is_added(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, sold = str(place / "g.sqlite"), "I sold the blue bike to <@U2>."
    build(corpus=slack_channel(place, "Tom", sold, "I like it.", "Good."), store=store, checkpoint=None)
    forget(space="general", turns="1710000020.000100", store=store, checkpoint=None)
    assert "renamed since" not in capsys.readouterr().out
    with Store(store, access="read") as graph:
        before = graph.turns(SpaceId("general"))
    later = slack_channel(place, "Tom Smith", sold, "I like it a lot.", "Good!", "We moved to Porto in spring.")
    build(corpus=later, store=store, checkpoint=None)
    said = capsys.readouterr().out
    assert "2 turns were edited or renamed since; kept as first stored\n" in said
    assert "general: 1 forgotten turn skipped" in said
    with Store(store, access="read") as graph:
        *kept, new = graph.turns(SpaceId("general"))
        assert kept == before
        assert (new.speaker, new.text) == ("Tom Smith", "We moved to Porto in spring.")
        assert graph.misplaced() == {}


def test_what_differs_only_by_a_replaced_secret_is_no_edit(place: Path) -> None:
    read, store = slack_channel(place, "Tom", "My password is hunter2hunter2."), str(place / "g.sqlite")
    build(corpus=read, store=store, checkpoint=None)
    with pytest.raises(TurnConflictError, match="stored with a different text"):
        build(corpus=read, store=store, checkpoint=None, redact=True)


def test_another_wording_in_a_file_that_people_write_is_an_error(place: Path) -> None:
    store = str(place / "g.sqlite")
    build(corpus=corpus(place), store=store, checkpoint=None)
    with pytest.raises(TurnConflictError, match="turn 't1' is stored with a different text"):
        build(corpus=corpus(place, ("I kept it.", *TEXTS[1:])), store=store, checkpoint=None)
