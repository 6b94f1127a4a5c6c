from __future__ import annotations

import json
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from locigraph.kg.files import (
    check_seal,
    is_of_disk,
    opened_sqlite,
    parsed_json,
    replace_file,
    replaced_folder,
    sealed,
    whole_folder,
)


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def write(folder: Path, name: str) -> None:
    with replaced_folder(folder) as part:
        (part / name).write_text(name)


def test_a_folder_is_made_and_replaced_with_nothing_left_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "folder", "first")
    assert content(tmp_path / "deep" / "folder") == {"first": "first"}
    write(tmp_path / "deep" / "folder", "second")
    assert content(tmp_path / "deep" / "folder") == {"second": "second"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["folder"]


def test_threads_that_replace_the_same_file_do_not_take_each_other_s_part(tmp_path: Path) -> None:
    texts = [letter * 100_000 for letter in "abcdefgh"]
    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(replace_file, [tmp_path / "file"] * 80, texts * 10))
    assert (tmp_path / "file").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_while_writing_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "folder", "first")
    with pytest.raises(FileNotFoundError), replaced_folder(tmp_path / "folder") as part:
        (part / "absent" / "second").write_text("half")
    assert content(whole_folder(tmp_path / "folder")) == {"first": "first"}


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_cut_at_any_rename_leaves_the_old_or_the_new_folder(
    renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "folder", "first")
    done = 0

    def cut(source: Path, target: Path) -> None:
        nonlocal done
        if done == renames:
            raise KeyboardInterrupt
        done += 1
        os.rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", cut)
        if renames == 2:
            write(tmp_path / "folder", "second")
        else:
            with pytest.raises(KeyboardInterrupt):
                write(tmp_path / "folder", "second")
    expected = {"second": "second"} if renames == 2 else {"first": "first"}
    assert content(whole_folder(tmp_path / "folder")) == expected
    write(tmp_path / "folder", "third")
    assert content(tmp_path / "folder") == {"third": "third"}


def test_a_folder_that_never_was_stays_absent(tmp_path: Path) -> None:
    assert not whole_folder(tmp_path / "absent").exists()


@pytest.mark.parametrize("statement", ["CREATE TABLE bookmarks (url TEXT)", "CREATE TABLE kept (id INTEGER)"])
def test_a_cache_takes_no_database_of_another_application(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    before = path.read_bytes()

    def opened() -> AbstractContextManager[sqlite3.Connection]:
        return opened_sqlite(path, lambda error: RuntimeError(str(error)), table="kept", columns="(name TEXT)")

    with pytest.raises(RuntimeError, match="another application and was left unchanged"), opened():
        pass
    assert path.read_bytes() == before
    path.unlink()
    for _ in range(2):
        with opened() as connection:
            assert connection.execute("SELECT COUNT(*) FROM kept").fetchone() == (0,)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA application_id = 0")  # as an earlier version made it
    with opened() as connection:
        assert connection.execute("SELECT COUNT(*) FROM kept").fetchone() == (0,)


def test_json_that_no_parser_can_follow_is_no_json() -> None:
    assert parsed_json('{"a": [1]}') == {"a": [1]}
    for text in ("[" * 100_000, "{", "", "1" * 5_000):
        with pytest.raises(ValueError, match=r"nested|Exp|limit"):
            parsed_json(text)


def test_a_database_that_finds_no_room_says_so_in_words_that_are_known(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "kept.sqlite")) as connection:
        connection.execute("PRAGMA max_page_count = 3")
        connection.execute("CREATE TABLE kept (text TEXT)")
        with pytest.raises(sqlite3.OperationalError) as full:
            connection.execute("INSERT INTO kept VALUES (?)", ("a" * 50_000,))
    assert is_of_disk(full.value)
    assert not is_of_disk(sqlite3.DatabaseError("file is not a database"))


def test_a_sealed_manifest_tells_of_any_change_and_an_unsealed_one_is_taken_as_it_is() -> None:
    manifest = {"details": {"train": ["a", "b"], "loss": 0.1, 3: [1, None]}, "version": "1"}
    held = json.loads(sealed(manifest))
    check_seal(held)
    check_seal(manifest)
    held["details"]["train"][1] = "c"
    with pytest.raises(ValueError, match="sha256 does not match"):
        check_seal(held)


def test_a_small_database_whose_schema_holds_bytes_that_are_no_text_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    how = {"table": "vectors", "columns": "(key TEXT)"}
    with opened_sqlite(path, lambda error: error, **how):
        pass
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE vectors", b"CR\xc5ATE TABLE vectors"))
    with (
        pytest.raises(ValueError, match="malformed database schema"),
        opened_sqlite(path, lambda error: ValueError(str(error)), **how),
    ):
        pass
