"""Export and import of a store: nothing is lost, and nothing broken comes in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from locigraph import Memory
from locigraph.consolidation.pipeline import Consolidator
from locigraph.kg.errors import LocigraphError, StoreError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.scripts.commands.memory.export_memory import export_memory
from locigraph.scripts.commands.memory.import_memory import import_memory
from tests.databases import Place
from tests.fakes import SPACE, FakeContext, FakeEncoder, FakeExtractor, make_turn, make_turns
from tests.faults.workbench import FakeCachedEncoder
from tests.kg.dumps import QUEUE, dump

DERIVED = (*QUEUE, "embeddings", "word_statistics", "alembic_version")
ANA: dict[str, Any] = {"space": "ana", "session": "s1", "speaker": "Ana"}


@pytest.fixture
def filled(place: Path) -> Path:
    """A memory with owners, metadata, superseded facts, and something forgotten."""
    path = place / "first.sqlite"
    with Memory.open(path, checkpoint=None) as memory:
        memory.add(**ANA, text="I live in Boston near the old harbour.", user="ana", metadata={"a": True}, turn_id="t1")
        memory.add(**ANA, text="I live in Denver now, far from any harbour.", turn_id="t2", expires_at="2900-01-01")
        memory.add(**ANA, text="My zebrafish is called 🐟 Wanda.", turn_id="t3")
        memory.add(**ANA | {"space": "bo"}, text="I sold the boat for 2.5 thousand.", spoken_at="2024-05-01T10:00")
        memory.forget(space="ana", turn_ids=["t3"])
        memory.add(**ANA, text="I row.", turn_id="t4")
    return path


def without_identity(place: Path) -> dict[str, Any]:
    found = dump(place, without=DERIVED)
    found["settings"] = [row for row in found["settings"] if row[0] not in ("identity", "imported")]
    return found


@pytest.mark.parametrize("name", ["all.jsonl", "all.jsonl.gz"])
def test_what_is_exported_comes_back_exactly_and_answers_as_before(name: str, filled: Path, tmp_path: Path) -> None:
    export_memory(output=str(tmp_path / name), store=str(filled))
    import_memory(str(tmp_path / name), store=str(tmp_path / "second.sqlite"))
    assert without_identity(tmp_path / "second.sqlite") == without_identity(filled)
    with Store(filled) as one, Store(tmp_path / "second.sqlite") as other:
        assert [line for _, line in one.exported()] == [line for _, line in other.exported()]
        assert one.identity() != other.identity()
        assert other.faults() == []
        assert {*other.changed_spaces()} == {"ana", "bo"}

    def answers(path: Path) -> list[tuple[str, Any]]:
        with Memory.open(path, checkpoint=None) as memory:
            hits = memory.recall("Where does Ana live?", space="ana", filter={"$turn": {"$ne": "t4"}})
            with pytest.raises(StoreError, match="was forgotten"):
                memory.add(**ANA, text="My zebrafish is called 🐟 Wanda.", turn_id="t3")
            return [(hit.text, hit.until) for hit in hits]

    assert answers(tmp_path / "second.sqlite") == answers(filled) != []
    assert "zebrafish" not in (tmp_path / "second.sqlite").read_bytes().decode("latin-1")


def _lines(path: Path) -> list[str]:
    with Store(path) as store:
        return [line for _, line in store.exported()]


def _changed(table: str, column: str, value: object) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        at = next(at for at, line in enumerate(lines) if f'"table": "{table}"' in line)
        entry = json.loads(lines[at])
        entry["row"][column] = value
        return [*lines[:at], json.dumps(entry), *lines[at + 1 :]]

    return change


def _doubled(lines: list[str]) -> list[str]:
    at = next(at for at, line in enumerate(lines) if '"table": "turns"' in line)
    return [*lines[:at], lines[at], *lines[at:]]


BROKEN: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "cut off": (lambda lines: lines[:-1], "the file ends early"),
    "cut within a line": (lambda lines: [*lines[:5], lines[5][:9]], "line 6 is .*expected JSON"),
    "a row is gone": (
        lambda lines: [*lines[:9], *lines[10:]],
        "rows, and .* were read|contradicts|rows that are missing",
    ),
    "no export": (lambda lines: ["{}"], "line 1 is not that of a file"),
    "of a later version": (lambda lines: ['{"format": "locigraph", "version": 9}'], "version 9; expected 1"),
    "an endless key": (
        lambda lines: [lines[0].replace('"last_key": ', '"last_key": 9' + "9" * 18), *lines[1:]],
        "last_key is 99999",
    ),
    "a row twice": (
        lambda lines: [*_doubled(lines[:-1]), json.dumps({"rows": len(lines) - 1})],
        "rows of table 'turns' appear twice or belong to rows that are missing .*export again",
    ),
    "more after the end": (lambda lines: [*lines, lines[1]], "comes after the end"),
    "an unknown table": (lambda lines: [lines[0], '{"table": "users", "row": {}}'], "table 'users' is not known"),
    "an unknown column": (_changed("turns", "colour", "red"), "table 'turns' has no column 'colour'"),
    "another type": (_changed("turns", "position", "first"), "turns.position is 'first'; expected another type"),
    "a time out of range": (
        _changed("relations", "created_at", 2**60),
        "relations.created_at is .*a time from 1000 to",
    ),
    "a turn that cannot be added": (_changed("turns", "spoken_at", -(10**11)), "turns.spoken_at is -100000000000"),
    "a session without a name": (_changed("turns", "session_id", ""), "session_id is ''; expected"),
    "a null": (_changed("turns", "text", None), "turns.text is null"),
    "a list": (lambda lines: [lines[0], "[]"], "expected an object"),
    "a dangling reference": (_changed("provenance", "node_key", 99_999), "contradicts itself|rows that are missing"),
}


@pytest.mark.long
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused_by_its_place_and_changes_nothing(how: str, filled: Path, tmp_path: Path) -> None:
    change, named = BROKEN[how]
    file = tmp_path / "broken.jsonl"
    file.write_text("\n".join(change(_lines(filled))))
    with pytest.raises(LocigraphError, match=named):
        import_memory(str(file), store=str(tmp_path / "second.sqlite"))
    with Store(tmp_path / "second.sqlite") as store:
        assert store.spaces() == []
        assert store.setting("tombstone_key") is None


def test_only_an_empty_store_is_imported_into_and_no_file_is_overwritten(filled: Path, tmp_path: Path) -> None:
    export_memory(output=str(tmp_path / "all.jsonl"), store=str(filled))
    with pytest.raises(LocigraphError, match="the store is not empty"):
        import_memory(str(tmp_path / "all.jsonl"), store=str(filled))
    with pytest.raises(LocigraphError, match="the file exists; name a new one"):
        export_memory(output=str(tmp_path / "all.jsonl"), store=str(filled))
    with pytest.raises(LocigraphError, match=r"nowhere\.jsonl: cannot be read"):
        import_memory(str(tmp_path / "nowhere.jsonl"), store=str(tmp_path / "third.sqlite"))
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600
    assert not [*tmp_path.glob("*.part")]


def test_an_export_of_an_earlier_version_lacks_columns_that_came_later(filled: Path, tmp_path: Path) -> None:
    lines = []
    for line in _lines(filled):
        entry = json.loads(line)
        if entry.get("table") == "turns":
            for column in ("metadata", "expires_at"):
                del entry["row"][column]
        lines.append(json.dumps(entry))
    with Store(tmp_path / "second.sqlite") as store:
        store.import_lines(lines)
        assert all(turn.expires_at is None for turn in store.turns(SpaceId("ana")))


def test_a_memory_is_made_without_the_adapter_of_another_machine(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(filled) as store:
        held = json.loads(store.setting("encoder") or "{}")
        store.remember({"encoder": json.dumps(held | {"adapter": "/elsewhere/adapter"})})
    file, second = str(tmp_path / "all.jsonl"), str(tmp_path / "second.sqlite")
    export_memory(output=file, store=str(filled))
    import_memory(file, store=second)
    assert "this machine lacks adapter '/elsewhere/adapter'" in capsys.readouterr().out
    with Memory.open(second, checkpoint=None) as memory:
        assert memory.recall("Where does Ana live?", space="ana")


def test_another_memory_of_as_many_turns_is_not_the_imported_one(filled: Path, tmp_path: Path) -> None:
    file, second = str(tmp_path / "all.jsonl"), str(tmp_path / "second.sqlite")
    export_memory(output=file, store=str(filled))
    import_memory(file, store=second)
    with Store(second) as store:
        held = len(store.turns(SpaceId("ana")))
        store.forget_spaces([SpaceId("ana")])
        store.append_turns([make_turn(n, f"turn {n}", space=SpaceId("cy")) for n in range(held)])
    with pytest.raises(LocigraphError, match="some of its turns were forgotten since"):
        import_memory(file, store=second)


def test_an_import_that_ends_while_vectors_are_made_goes_on_when_it_is_run_again(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, second = str(tmp_path / "all.jsonl"), tmp_path / "second.sqlite"
    export_memory(output=file, store=str(filled))
    _import_rows_alone(file, second, monkeypatch)
    import_memory(file, store=str(second))
    assert f"{second} holds {file} already" in capsys.readouterr().out
    assert without_identity(second) == without_identity(filled)
    with Store(second) as store:
        model = FakeCachedEncoder("fake", cache=tmp_path / "cache.sqlite").model_id
        assert not any(store.unembedded(space, model) for space in store.spaces())
    with Store(second) as store:
        space = store.spaces()[0]
        store.forget(space, [store.turns(space)[0].turn_id])
    with pytest.raises(LocigraphError, match="some of its turns were forgotten since"):
        import_memory(file, store=str(second))
    changed = tmp_path / "other.jsonl"
    changed.write_text(Path(file).read_text().replace("Boston", "London"))
    with pytest.raises(LocigraphError, match="the store is not empty"):
        import_memory(str(changed), store=str(second))


def test_vectors_that_an_import_did_not_make_are_made_also_when_something_was_forgotten(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, second = str(tmp_path / "all.jsonl"), tmp_path / "memory.sqlite"
    export_memory(output=file, store=str(filled))
    _import_rows_alone(file, second, monkeypatch)
    with Memory.open(second, checkpoint=None) as memory:
        space = memory.spaces()[0]
        gone, kept = memory.turns(space)[:2]
        assert memory.forget(space=space, turn_ids=[gone.turn_id])
        assert kept.turn_id in {turn for hit in memory.recall(kept.text, space=space) for turn in hit.turn_ids}


def _import_rows_alone(file: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import a file, and be interrupted when the vectors are to be made."""
    with monkeypatch.context() as patched:
        patched.setattr("locigraph.assembly.graphs.embed_all", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_memory(file, store=str(store))


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_after_an_import_no_key_is_given_again(store_at: Place, tmp_path: Path) -> None:
    def keys(store: Store) -> set[int]:
        return {*store.snapshot(SPACE).keys.tolist()}

    turns = make_turns(["one", "two", "three"])
    with Store(store_at()) as store, Store(store_at("other")) as other:
        store.append_turns(turns)
        Consolidator(store, FakeExtractor(), FakeEncoder(), FakeContext()).run(SPACE)
        given = keys(store)
        store.forget(SPACE, [turns[1].turn_id, turns[2].turn_id])
        other.import_lines(line for _, line in store.exported())
        left = keys(other)
        assert max(left) < max(given)
        other.append_turns([make_turn(3, "four")])
        Consolidator(other, FakeExtractor(), FakeEncoder(), FakeContext()).run(SPACE)
        assert min(keys(other) - left) > max(given)
