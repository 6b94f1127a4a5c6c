from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from locigraph.kg.counts import Spent
from locigraph.kg.errors import StoreVersionError
from locigraph.kg.schema import COINED_FAMILY, RELATION_LABELS
from locigraph.kg.store import Store, migrations, tables
from locigraph.kg.store.labels import UNDESCRIBED
from locigraph.kg.types import NewRelation
from tests.fakes import OTHER_SPACE, SPACE, change_of, fact, make_turn
from tests.kg.dumps import dump, shared_labels

_OF_REPLIES = ("invalid", "repaired", "given_up")  # columns of revision 0008


def migrated(path: Path) -> sa.Engine:
    """A database that has had all migrations, one after the other."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrations.migrate(connection)
    return engine


def undo_0015(connection: sqlite3.Connection) -> None:
    for name in (
        "nodes_space_changed_in",
        "turns_space_position",
        "turns_space_spoken_at",
        "turns_space_state_position",
    ):
        connection.execute(f"DROP INDEX ix_{name}")
    connection.execute("CREATE INDEX ix_turns_space_state ON turns (space, state)")
    connection.execute("ALTER TABLE nodes DROP COLUMN changed_in")
    connection.execute("ALTER TABLE spaces DROP COLUMN renewed_in")


def undo_0014(connection: sqlite3.Connection) -> None:
    undo_0015(connection)
    connection.execute("ALTER TABLE spaces DROP COLUMN keep_seconds")


def undo_0013(connection: sqlite3.Connection) -> None:
    undo_0014(connection)
    connection.execute("ALTER TABLE spaces DROP COLUMN title")


def undo_0012(connection: sqlite3.Connection) -> None:
    undo_0013(connection)
    connection.execute("DROP INDEX ix_turns_space_expires_at")
    for column in ("metadata", "expires_at"):
        connection.execute(f"ALTER TABLE turns DROP COLUMN {column}")


def undo_0011(connection: sqlite3.Connection) -> None:
    undo_0012(connection)
    connection.execute("ALTER TABLE changed_spaces DROP COLUMN node_key")
    connection.execute("DROP INDEX ix_turns_space_session_id_position")
    connection.execute("DROP TABLE word_statistics")


def test_the_migrations_make_the_tables_that_the_code_expects(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "migrated.sqlite")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, tables.metadata) == []
    engine.dispose()


def columns_of(path: Path) -> dict[str, object]:
    with sqlite3.connect(path) as connection:
        names = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        described: dict[str, object] = {
            name: (
                connection.execute(f"PRAGMA table_info({name})").fetchall(),
                sorted(row[2:] for row in connection.execute(f"PRAGMA foreign_key_list({name})")),
                "AUTOINCREMENT"
                in connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0],
            )
            for name in names
            if name not in ("alembic_version", "sqlite_sequence")
        }
    connection.close()
    return described


def test_a_new_database_is_one_that_has_had_all_migrations(tmp_path: Path) -> None:
    migrated(tmp_path / "migrated.sqlite").dispose()
    Store(tmp_path / "new.sqlite").close()
    assert columns_of(tmp_path / "new.sqlite") == columns_of(tmp_path / "migrated.sqlite")
    made = []
    for name in ("new", "migrated"):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection:
            marks = (*connection.execute("PRAGMA application_id"), *connection.execute("SELECT * FROM alembic_version"))
            made.append(
                (marks, connection.execute("SELECT name, tbl_name, type FROM sqlite_master ORDER BY 1").fetchall())
            )
    assert made[0] == made[1]


def test_a_database_of_a_newer_revision_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    with Store(path) as store:
        store.append_turns([make_turn(0, "hello")])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = dump(path)
    with pytest.raises(
        StoreVersionError, match=r"schema revision '9999', unknown to this version .* upgrade locigraph"
    ):
        Store(path)
    assert dump(path) == before


def test_opening_twice_migrates_once(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    with Store(path), Store(path) as second:
        second.append_turns([make_turn(0, "hello")])
    assert dump(path)["alembic_version"] == [("0015",)]
    with Store(path) as third:
        assert third.spaces() == [SPACE]


def test_what_models_cost_is_taken_over_from_the_texts_in_which_it_stood(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    with Store(path) as store:
        store.append_turns([make_turn(0, "hello")])
    counts = {"calls": 1, "read": 90, "written": 10, "cost": 0.5}
    pages = {"t0": {"architect": counts, "scribe": counts}, "forgotten": {"scribe": counts}, "": {"scribe": counts}}
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE spent")
        connection.execute("DROP TABLE coined_labels")
        connection.execute("INSERT INTO settings VALUES (?, ?)", [f"spent/{SPACE}", json.dumps(pages)])
        connection.execute("DROP TABLE tombstone_marks")
        connection.execute("ALTER TABLE spaces DROP COLUMN embedded_by")
        undo_0011(connection)
        connection.execute("UPDATE alembic_version SET version_num = '0005'")
    connection.close()
    one = Spent(1, 90, 10, 0.5)
    with Store(path) as store:
        assert store.spent(SPACE) == {("", "scribe"): one + one, ("t0", "architect"): one, ("t0", "scribe"): one}
        assert store.setting(f"spent/{SPACE}") is None


def test_what_was_spent_before_replies_were_counted_goes_on_with_these_counts(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    with Store(path) as store:
        store.append_turns([make_turn(0, "hello")])
        store.add_spent(SPACE, "t0", "architect", Spent(2, 90, 10, 0.5))
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in _OF_REPLIES:
            connection.execute(f"ALTER TABLE spent DROP COLUMN {name}")
        connection.execute("DROP TABLE tombstone_marks")
        connection.execute("ALTER TABLE spaces DROP COLUMN embedded_by")
        undo_0011(connection)
        connection.execute("UPDATE alembic_version SET version_num = '0007'")
    with Store(path) as store:
        store.add_spent(SPACE, "t0", "architect", Spent(invalid=2, failed_requests=1))
        assert store.spent_by_stage() == {"architect": Spent(2, 90, 10, 0.5, invalid=2, failed_requests=1)}


def test_what_spaces_said_of_the_labels_that_they_shared_is_kept_by_none(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    turn = make_turn(0, "hello")
    with Store(path) as store:
        store.append_turns([turn, make_turn(0, "hello", space=OTHER_SPACE)])
        edge = NewRelation("f", "ADOPTED", "episode")
        change = change_of(turn, nodes=[fact("f", "Ann has a cat", turn)], relations=[edge])
        store.commit(replace(change, coined={"ADOPTED": "Who adopted whom."}))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE coined_labels")
        for name in _OF_REPLIES:
            connection.execute(f"ALTER TABLE spent DROP COLUMN {name}")
        connection.execute("UPDATE relation_labels SET description = 'At the clinic.' WHERE name = 'ADOPTED'")
        connection.execute("DROP TABLE tombstone_marks")
        connection.execute("ALTER TABLE spaces DROP COLUMN embedded_by")
        undo_0011(connection)
        connection.execute("UPDATE alembic_version SET version_num = '0006'")
    with Store(path) as store:
        label = store.relation_labels(SPACE)["ADOPTED"]
        assert (label.kind, label.family) == ("semantic", COINED_FAMILY)
        assert label.description == shared_labels(path)["ADOPTED"] == UNDESCRIBED
        assert "ADOPTED" not in store.relation_labels(OTHER_SPACE)
        assert store.relation_labels(OTHER_SPACE) == RELATION_LABELS
    assert b"clinic" not in path.read_bytes()
