"""What has expired on a server: which turns do, and how they are erased without any request."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from tests.scripts.serving.servers import serving
from tests.scripts.serving.test_application import ANA, BO, ask

_TURN = {"space": "ana", "session": "s1", "speaker": "Ana", "text": "The zebrafish code is 7719."}


def test_a_space_keeps_its_turns_as_long_as_a_request_says(client: httpx.Client) -> None:
    spoken = datetime.now(UTC) - timedelta(days=3)
    ask(client, "add", _TURN | {"spoken_at": spoken.isoformat()})
    assert client.get("/v1/spaces").json()["days_kept"] == {}
    assert ask(client, "set_retention", {"space": "ana", "days": 7.5}) == {"earlier": 1}
    assert client.get("/v1/spaces").json()["days_kept"] == {"ana": 7.5}
    assert ask(client, "recall", {"space": "ana", "question": "What is the code?"})["hits"]
    assert ask(client, "set_retention", {"space": "ana", "days": 1}) == {"earlier": 1}
    assert not ask(client, "recall", {"space": "ana", "question": "What is the code?"})["hits"]
    assert ask(client, "set_retention", {"space": "ana", "days": None}) == {"earlier": 0}
    assert client.get("/v1/spaces").json()["days_kept"] == {}


def test_a_key_learns_and_sets_nothing_of_the_spaces_of_another(guarded: httpx.Client) -> None:
    ask(guarded, "add", _TURN, **ANA)
    ask(guarded, "set_retention", {"space": "ana", "days": 9}, **ANA)
    refused = guarded.post("/v1/set_retention", json={"space": "ana", "days": 1}, headers=BO)
    assert refused.status_code == 403
    assert guarded.get("/v1/spaces", headers=BO).json()["days_kept"] == {}
    assert guarded.get("/v1/spaces", headers=ANA).json()["days_kept"] == {"ana": 9}


def test_the_server_erases_what_has_expired_without_any_request(place: Path) -> None:
    def stored() -> int:
        with closing(sqlite3.connect(place / "memory.sqlite")) as connection:
            (count,) = connection.execute("SELECT count(*) FROM turns").fetchone()
            return int(count)

    with serving(place, sweep_s=0.05) as client:
        ask(client, "add", _TURN | {"text": "I sold the bike."})
        ask(client, "add", _TURN | {"expires_at": "2020-01-01"})
        ends = time.monotonic() + 60
        while stored() > 1:
            assert time.monotonic() < ends, "nothing was erased"
            time.sleep(0.02)
        assert client.get("/health").status_code == 200
