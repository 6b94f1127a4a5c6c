"""Records requests to language models and their replies, so that a run can be replayed without sending them again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from locigraph.consolidation.errors import LanguageModelError, MissingReplyError
from locigraph.consolidation.ledger import Origin
from locigraph.kg.counts import Spent
from locigraph.kg.errors import same_beginning
from locigraph.kg.files import (
    MAKE_ROOM,
    ensure_table,
    has_table,
    is_of_disk,
    make_private_folder,
    opened_sqlite,
    replace_file,
)

#: ``auto`` uses recorded replies and requests the others, ``record`` requests all again, ``replay`` requests none.
CassetteMode = Literal["auto", "record", "replay"]
#: An unusable reply, or None if the endpoint refused to reply, and what is wrong.
Attempt = tuple[str | None, str]
#: Cassettes that come with the package, by name. They are only replayed.
BUNDLED = {"sample": Path(__file__).parent / "cassettes" / "sample.sqlite"}
_SHOWN = 60  # characters that an error shows of each of two requests where they differ
_FAILURES = "(key TEXT PRIMARY KEY, replies TEXT NOT NULL, faults TEXT NOT NULL)"  # lists in JSON, by attempt
_ORIGINS = "(key TEXT PRIMARY KEY, endpoint TEXT NOT NULL, spent TEXT NOT NULL)"  # spent: counts in JSON
_NEAREST_OF = 2_000  # newest recorded requests that are searched for the one most similar to a missing one


def key_of(request: Mapping[str, Any]) -> str:
    """Key of a request: a hash of its model, messages, schema and parameters."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


class Cassette:
    """Requests and replies in an SQLite file; several threads and processes may use it at the same time.

    Args:
        path: The file; created if absent, except in ``replay`` mode.
        mode: Whether recorded replies are used and missing ones requested.
    """

    def __init__(self, path: Path, mode: CassetteMode = "auto") -> None:
        self.path = path
        self._file = path.absolute()  # stays the same when the process changes its folder
        self.mode = mode

    def find(self, keys: Sequence[str]) -> dict[str, str]:
        """The recorded replies by key; keys without a reply are left out. Empty in ``record`` mode."""
        if self.mode == "record":
            return {}
        with self._opened() as file:
            rows = (file.execute("SELECT key, reply FROM calls WHERE key = ?", (key,)).fetchone() for key in keys)
            return dict(row for row in rows if row is not None)

    def origin(self, key: str) -> Origin | None:
        """Where the reply to or the failure of a request came from; None if this was not recorded."""
        with self._opened() as file:
            if not has_table(file, "origins"):  # recorded by an earlier version
                return None
            row = file.execute("SELECT endpoint, spent FROM origins WHERE key = ?", (key,)).fetchone()
        return None if row is None else Origin(row[0], Spent.of_stored(json.loads(row[1])))

    def keep(self, calls: Sequence[tuple[Mapping[str, Any], str]], origin: Origin | None = None) -> None:
        """Record requests with their replies, replacing earlier replies to and failures of the same requests.

        Args:
            calls: The requests and their replies.
            origin: The origin of each of these replies; None if it is unknown.
        """
        rows = [(key_of(request), json.dumps(request, sort_keys=True), reply) for request, reply in calls]
        with self._opened() as file, file:
            file.executemany("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", rows)
            file.executemany("DELETE FROM failures WHERE key = ?", [(key,) for key, _, _ in rows])
            _keep_origin(file, [key for key, _, _ in rows], origin)

    def refuse_missing(self, request: Mapping[str, Any]) -> None:
        """In ``replay`` mode, raise MissingReplyError, which describes the most similar recorded request.

        It must be called only for a request without a recorded reply; in other modes it does nothing.
        """
        if self.mode != "replay":
            return
        with self._opened() as file:
            rows = file.execute("SELECT request FROM calls ORDER BY rowid DESC LIMIT ?", (_NEAREST_OF,)).fetchall()
        differences = [_difference(request, json.loads(row[0])) for row in rows]
        nearest = min(differences, key=itemgetter(0))[1] if differences else "the cassette is empty"
        raise MissingReplyError(
            f"{self.path}: no reply to this request to model {request['model']!r} is recorded; {nearest}; set "
            "mode to auto to ask the endpoint"
        )

    def keep_failed(
        self, request: Mapping[str, Any], attempts: Sequence[Attempt], origin: Origin | None = None
    ) -> None:
        """Record a failed request and its attempts, both for replays and as a text file for people to read."""
        path, key = _failure_beside(self._file, request), key_of(request)
        make_private_folder(path.parent)
        parts = [f"--- {message['role']}\n{message['content']}" for message in request["messages"]]
        for reply, fault in attempts:
            parts += [f"--- fault\n{fault}"] if reply is None else [f"--- reply\n{reply}\n--- fault\n{fault}"]
        replace_file(path, "\n".join(parts).encode(errors="backslashreplace").decode() + "\n")
        with self._opened() as file, file:
            row = (key, json.dumps([reply for reply, _ in attempts]), json.dumps([fault for _, fault in attempts]))
            file.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?)", row)
            _keep_origin(file, [key], origin)

    def failed(self, request: Mapping[str, Any]) -> list[Attempt]:
        """In ``replay`` mode, the attempts of a request that failed; empty if it did not fail, and in other modes."""
        if self.mode != "replay":
            return []
        with self._opened() as file:
            if not has_table(file, "failures"):  # recorded by an earlier version
                return []
            rows = file.execute("SELECT replies, faults FROM failures WHERE key = ?", (key_of(request),)).fetchall()
        return [
            attempt for replies, faults in rows for attempt in zip(json.loads(replies), json.loads(faults), strict=True)
        ]

    def failure_file(self, request: Mapping[str, Any]) -> Path:
        """The text file about a request that failed."""
        return _failure_beside(self.path, request)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self.mode == "replay" and not self._file.is_file():
            raise LanguageModelError(
                f"{self.path}: there is no such cassette to replay; first record it with mode auto"
            )
        make_private_folder(self._file.parent)
        columns = "(key TEXT PRIMARY KEY, request TEXT NOT NULL, reply TEXT NOT NULL)"
        with opened_sqlite(self._file, self._failed, table="calls", columns=columns) as file:
            if self.mode != "replay":
                ensure_table(file, "failures", _FAILURES)
                ensure_table(file, "origins", _ORIGINS)
            yield file

    def _failed(self, error: sqlite3.Error) -> LanguageModelError:
        cure = MAKE_ROOM if is_of_disk(error) else "if no other process locks it, name another"
        return LanguageModelError(f"{self.path}: the cassette of replies cannot be used ({error}); {cure}")


def _failure_beside(cassette: Path, request: Mapping[str, Any]) -> Path:
    return cassette.with_suffix(".failed") / f"{key_of(request)[:16]}.txt"


def _keep_origin(file: sqlite3.Connection, keys: Sequence[str], origin: Origin | None) -> None:
    """Record the origin of what was just recorded under these keys, or remove an earlier one if it is unknown."""
    file.executemany("DELETE FROM origins WHERE key = ?", [(key,) for key in keys])
    if origin is not None:
        spent = json.dumps(origin.spent.stored())
        file.executemany("INSERT INTO origins VALUES (?, ?, ?)", [(key, origin.endpoint, spent) for key in keys])


def _difference(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> tuple[tuple[int, int], str]:
    """Distance of two requests (number of differing parts, characters after the first difference) and a message."""
    parts = [name for name in ("model", "parameters", "schema", "messages") if asked[name] != recorded[name]]
    if not parts:  # impossible unless the file was edited
        return (0, 0), "an identical request is recorded under another key"
    last = parts[-1]
    mine, other = (json.dumps(request[last], sort_keys=True, ensure_ascii=False) for request in (asked, recorded))
    same = same_beginning(mine, other)
    message = (
        f"the most similar recorded request differs in {' and '.join(parts)}, in {last} first at character {same}: "
        f"requested {mine[same : same + _SHOWN]!r}, recorded {other[same : same + _SHOWN]!r}"
    )
    return (len(parts), len(mine) - same), message
