"""What a server says when it cannot answer yet, or has too much to do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from locigraph.assembly import defaults
from locigraph.kg.errors import LocigraphError
from locigraph.serving import request_queue
from locigraph.serving.problems import LimitError, problem_of
from locigraph.serving.service import Service
from tests.faults.workbench import FakeCachedEncoder
from tests.scripts.serving.servers import serving


def test_with_too_many_waiting_a_request_is_told_to_come_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "_MOST_WAITING", 0)
    with serving(place) as client:
        answer = client.get("/v1/spaces")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["detail"] == "0 requests are already waiting; try again later"
        monkeypatch.setattr(request_queue, "_MOST_WAITING", 1)
        assert client.get("/v1/spaces").status_code == 200


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LocigraphError("the weights are missing; install them"), "the weights are missing; install them"),
        (RuntimeError("I sold the bike"), "the server failed; its log says where, without quoting conversations"),
    ],
)
def test_a_server_that_cannot_load_its_models_lives_and_says_why_it_is_not_ready(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(encoder: FakeCachedEncoder) -> None:
        raise error

    monkeypatch.setattr(FakeCachedEncoder, "load", fail)
    with serving(place, is_loaded=False) as client:
        assert client.get("/health").json() == {"status": "ok"}
        answer = client.get("/ready")
        while answer.json()["detail"].startswith("models are being loaded"):
            answer = client.get("/ready")
        assert (answer.status_code, answer.json()["detail"]) == (503, said)


def test_models_that_could_not_be_loaded_are_tried_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, failures = FakeCachedEncoder.load, [LocigraphError("the model hub did not answer")]

    def fail_once(encoder: FakeCachedEncoder) -> None:
        if failures:
            raise failures.pop()
        load(encoder)

    monkeypatch.setattr(FakeCachedEncoder, "load", fail_once)
    monkeypatch.setattr(Service.warm_up, "__defaults__", (0.1,))
    with serving(place, is_loaded=False) as client:
        for _ in range(600):
            if client.get("/ready").status_code == 200:
                break
            time.sleep(0.05)
        assert client.get("/ready").json()["strategy"] == "v2"
    assert not failures


def test_notes_and_reasons_of_answers_name_no_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = f"{place}/checkpoint: no checkpoint found there"
    monkeypatch.setattr(defaults, "opened_embeddings", lambda *_, **__: (None, reason))
    with serving(place) as client:
        client.post("/v1/add", json={"space": "ana", "session": "1", "speaker": "Ana", "text": "The dog barks."})
        answers = [client.post("/v1/recall", json={"space": "ana", "question": "dog?"}), client.get("/v1/health")]
        for answer in [*answers, client.get("/ready")]:
            assert "checkpoint: no checkpoint found there" in answer.text
            assert str(place) not in answer.text


def test_who_owes_requests_is_told_when_they_are_paid() -> None:
    answer = problem_of(LimitError("key 'ana' has asked for more work than it has requests; try again in 7 s", 7))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert b"urn:locigraph:limit" in answer.body
