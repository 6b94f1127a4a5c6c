"""The HTTP application, asked by httpx over loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph import Memory
from locigraph.assembly import search_parts
from locigraph.kg.store import Store
from locigraph.retrieval.rerank import Reranker
from locigraph.scripts.commands.memory import verify
from locigraph.serving.keys import Keyring
from locigraph.serving.operations import OPERATIONS
from tests.scripts.serving.servers import KEYS, bearer, serving

TURN = {"space": "ana", "session": "s1", "speaker": "Ana", "text": "I sold the blue bike to Tom."}
ANA, BO = (bearer(key) for key in KEYS)


def ask(client: httpx.Client, operation: str, asked: dict[str, Any], **headers: str) -> Any:
    """The answer of an operation, which must succeed."""
    answer = client.post(f"/v1/{operation}", json=asked, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and detail of problem details, whose form is checked."""
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert (found.keys(), found["status"]) == ({"type", "title", "status", "detail"}, answer.status_code)
    return found["status"], found["detail"]


def test_what_is_added_is_recalled_explained_listed_and_forgotten(client: httpx.Client) -> None:
    said = ask(client, "add", TURN)["turn_id"]
    others = ask(client, "add_many", {"turns": [TURN | {"text": f"I have {n} dogs."} for n in (2, 3)]})["turn_ids"]
    found = ask(client, "recall", {"space": "ana", "question": "Who bought the bike?", "top_k": 1})
    assert (found["strategy"], found["notes"], found["context"]) == ("v2", [], None)
    assert [(hit["turn_ids"], hit["text"]) for hit in found["hits"]] == [([said], f"Ana: {TURN['text']}")]
    (explained,) = ask(client, "explain", {"space": "ana", "question": "Who bought the bike?", "top_k": 1})["turns"]
    assert explained["turn_id"] == said
    assert explained["influences"][0].keys() >= {"relation", "description", "effect"}
    assert client.get("/v1/spaces").json()["spaces"] == ["ana"]
    assert ask(client, "forget", {"space": "ana", "turn_ids": [said]})["erased"] > 0
    left = ask(client, "recall", {"space": "ana", "question": "Who bought the bike?"})["hits"]
    assert {turn for hit in left for turn in hit["turn_ids"]} == {*others}
    ask(client, "forget", {"space": "ana", "whole_space": True})
    assert client.get("/v1/spaces").json()["spaces"] == []


def test_a_context_and_a_strategy_can_be_asked_for(client: httpx.Client) -> None:
    ask(client, "add", TURN | {"spoken_at": "2024-05-01T10:00"})
    found = ask(client, "recall", {"space": "ana", "question": "bike", "budget_tokens": 50, "strategy": "bm25"})
    assert found["strategy"] == "bm25"
    assert "I sold the blue bike" in found["context"]
    kinds = {"budget_tokens": 50, "budget_kinds": {"episodes": 0, "facts": 0}, "strategy": "bm25"}
    assert ask(client, "recall", {"space": "ana", "question": "bike"} | kinds)["hits"] == []
    earlier = ask(client, "recall", {"space": "ana", "question": "bike", "as_of": "2024-01-01"})
    assert earlier["hits"] == []


def test_a_context_says_how_long_it_is_and_how_much_did_not_fit(client: httpx.Client) -> None:
    ask(client, "add_many", {"turns": [TURN, TURN | {"text": "I have bought a red bike with eighteen gears."}]})
    found = ask(client, "recall", {"space": "ana", "question": "bike", "budget_tokens": 25, "strategy": "bm25"})
    assert 0 < found["context_tokens"] <= 25
    assert found["left_out"] == 2 - len(found["context"].splitlines())
    assert ask(client, "recall", {"space": "ana", "question": "bike"})["left_out"] is None


@pytest.mark.parametrize("path", ["/health", "/ready", "/explorer", "/openapi.json", "/"])
def test_what_needs_no_key_takes_no_body(client: httpx.Client, path: str) -> None:
    for content in (b"x", iter([b"", b"x"])):
        answer = client.post(path, content=content)
        assert (answer.status_code, refusal(answer)[1]) == (413, "requests to this path have no body; leave it out")
    assert client.get("/health").json() == {"status": "ok"}


def test_a_question_whose_client_has_gone_is_not_asked(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(client, "add", TURN)
    asked, may_go, answer = list[str](), Event(), Memory.recall_at_once

    def slowly(memory: Memory, questions: Sequence[Mapping[str, Any]]) -> Any:
        asked.extend(each["question"] for each in questions)
        assert may_go.wait(60)
        return answer(memory, questions)

    monkeypatch.setattr(Memory, "recall_at_once", slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, client, "recall", {"space": "ana", "question": "Who bought the bike?"})
        while not asked:
            time.sleep(0.01)
        gone = {"space": "ana", "question": "Who has gone?"}
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v1/recall", json=gone, timeout=0.3)
        time.sleep(0.3)  # until the server has noticed
        may_go.set()
        assert first.result(60)["hits"]
    assert ask(client, "recall", {"space": "ana", "question": "And now?"})["hits"]
    assert asked == ["Who bought the bike?", "And now?"]


class LastFirst(Reranker):
    """Turns the order of the best two hits round."""

    depth = 2

    def read(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return [*range(len(texts))]


def test_the_shipped_reranker_can_be_asked_for(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_parts, "_reranker", {"default": LastFirst()}.__getitem__)
    ask(client, "add_many", {"turns": [TURN, TURN | {"text": "I have two dogs."}]})
    asked = {"space": "ana", "question": "Who bought the bike?", "top_k": 2}
    found = [hit["turn_ids"] for hit in ask(client, "recall", asked)["hits"]]
    reranked = [hit["turn_ids"] for hit in ask(client, "recall", asked | {"reranker": "default"})["hits"]]
    assert reranked == found[::-1]


def test_metadata_are_given_with_a_turn_and_filter_what_is_recalled(client: httpx.Client) -> None:
    for project in ("bikes", "boats"):
        metadata = {"project": project, "year": 2024, "sold": True}
        ask(client, "add", TURN | {"text": f"I like {project}.", "metadata": metadata})
    ask(client, "add", TURN | {"text": "I like planes.", "expires_at": "2020-01-01"})
    asked = {"space": "ana", "question": "What does Ana like?"}
    texts = {hit["text"] for hit in ask(client, "recall", asked)["hits"] if hit["type"] == "episode"}
    assert texts == {"Ana: I like bikes.", "Ana: I like boats."}
    found = ask(client, "recall", asked | {"filter": {"project": {"$ne": "boats"}, "sold": True}})["hits"]
    assert {hit["text"] for hit in found if hit["type"] == "episode"} == {"Ana: I like bikes."}
    assert all(hit["spoken_at"] is None for hit in found)


_LATE = {"space": "ana", "question": "x"}
#: Requests that cannot be answered, with status and words of the answer.
WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("recall", {"space": "anna", "question": "bike"}, 404, "space 'anna' is not in the store; nearest is 'ana'"),
    ("recall", {"space": "ana"}, 422, "field 'question' is missing"),
    ("recall", _LATE | {"question": "x" * 8_001}, 400, "the question has 8,001 letters; expected at most 8,000"),
    ("explain", {"space": "ana", "question": "x", "turn_ids": ["t9"]}, 404, "space 'ana' has no turn 't9'"),
    ("recall", _LATE | {"top_k": "5"}, 422, "field 'top_k' is '5': input should be a valid"),
    ("recall", _LATE | {"budget_kinds": {"facts": "5"}}, 422, "field 'budget_kinds.facts' is '5'"),
    (
        "recall",
        _LATE | {"budget_tokens": 9, "budget_kinds": {"fact": 5}},
        400,
        "'fact', which is not a kind of memory; nearest is 'facts'",
    ),
    ("recall", _LATE | {"topk": 5}, 422, "request: field 'topk' is not known; nearest is 'top_k'"),
    ("recall", _LATE | {"strategy": "v3"}, 400, "strategy 'v3' is not known"),
    (
        "recall",
        _LATE | {"reranker": "/models/own"},
        422,
        "field 'reranker' is '/models/own': input should be 'default'",
    ),
    ("recall", _LATE | {"filter": {"a": {"$like": 1}}}, 400, "filter.a.$like: '$like' is not known"),
    ("recall", _LATE | {"filter": 5}, 422, "field 'filter' is 5"),
    ("add", TURN | {"metadata": {"a": [1]}}, 422, "field 'metadata.a"),
    ("add", TURN | {"expires_at": "soon"}, 400, "time 'soon' is not ISO 8601"),
    ("recall", _LATE | {"as_of": "then"}, 400, "time 'then' is not ISO 8601"),
    (
        "add",
        TURN | {"turn_id": "t1", "text": "No."},
        409,
        "a different text ('I sold the blue bike to Tom.', not",
    ),
    ("add", TURN | {"speaker": ""}, 400, "speaker"),
    ("add", TURN | {"text": "\ud800"}, 400, "lone surrogates"),
    (
        "add_many",
        {"turns": [TURN, TURN | {"session_id": "s"}]},
        422,
        "turns.1: field 'session_id' is not known; nearest",
    ),
    ("add_many", {"turns": []}, 422, "field 'turns' is []"),
    ("set_retention", {"space": "ana"}, 422, "field 'days' is missing"),
    ("set_retention", {"space": "ana", "days": 0}, 400, "days is 0.0; expected a number above 0"),
    ("set_retention", {"space": "anna", "days": 1}, 404, "space 'anna' is not in the store"),
    ("forget", {"space": "ana"}, 400, "name the turns to erase, all of one space, or choose the whole"),
    ("forget", {"user": "ana", "turn_ids": ["t1"]}, 400, "user 'ana': name the turns to erase, all of one space"),
    ("forget", {"space": "ana", "turn_ids": ["t9"]}, 404, "space 'ana' has no turn 't9'"),
    ("forget", {"space": "ana", "whole_space": "yes"}, 422, "field 'whole_space' is 'yes'"),
    ("forget", {"space": "ana", "whole_space": True, "turn_ids": ["t1"]}, 400, "name the turns to erase, all of"),
]


def test_errors_are_problem_details_in_the_words_of_the_command_line_and_change_nothing(client: httpx.Client) -> None:
    ask(client, "add", TURN | {"turn_id": "t1"})
    for operation, asked, status, said in WRONG:
        body = json.dumps(asked).encode()  # httpx itself would refuse half of a surrogate pair
        answer = client.post(f"/v1/{operation}", content=body, headers={"Content-Type": "application/json"})
        found, detail = refusal(answer)
        assert (found, said in detail) == (status, True), detail
    hits = ask(client, "recall", {"space": "ana", "question": "bike"})["hits"]
    assert [hit["turn_ids"] for hit in hits] == [["t1"]]


_LONG = "q" * 50_000
#: Requests of which one value is much too long.
LONG: list[tuple[str, dict[str, Any]]] = [
    ("add", TURN | {"text": "\0" + _LONG}),
    ("add", TURN | {"image_caption": "\0" + _LONG}),
    ("add", TURN | {"text": " " * 50_000}),
    ("add", TURN | {"spoken_at": _LONG}),
    ("add", TURN | {"speaker": _LONG}),
    ("add", TURN | {"user": _LONG}),
    ("add", TURN | {_LONG: "x"}),
    ("recall", _LATE | {"strategy": _LONG}),
    ("recall", _LATE | {"as_of": _LONG}),
    ("recall", _LATE | {"speaker": _LONG}),
    ("recall", _LATE | {"space": _LONG}),
    ("recall", _LATE | {"user": _LONG}),
    ("explain", _LATE | {"turn_ids": [_LONG]}),
    ("forget", {"space": "ana", "turn_ids": [_LONG]}),
    ("forget", {"space": _LONG}),
    ("times", {"space": _LONG}),
    ("overview", {"space": _LONG}),
    ("set_retention", {"space": _LONG, "days": 1}),
]


def test_no_error_repeats_a_long_value_whole(guarded: httpx.Client) -> None:
    ask(guarded, "add", TURN, **ANA)
    for operation, asked in LONG:
        status, detail = refusal(guarded.post(f"/v1/{operation}", json=asked, headers=ANA))
        assert 400 <= status < 500
        assert len(detail) < 600, (operation, detail[:200])


def test_a_turn_that_was_forgotten_is_refused_with_the_way_to_let_it_come_back(client: httpx.Client) -> None:
    ask(client, "add", TURN | {"turn_id": "t1"})
    ask(client, "forget", {"space": "ana", "turn_ids": ["t1"]})
    status, detail = refusal(client.post("/v1/add", json=TURN | {"turn_id": "t1"}))
    assert status == 400
    assert detail.endswith("Memory.restore or, on the machine that has the store, with locigraph forget --restore")


def test_paths_methods_and_bodies_that_are_not_ours_are_problems_too(idle: httpx.Client) -> None:
    assert refusal(idle.get("/v2")) == (404, "path '/v2' does not exist; /openapi.json lists the paths")
    assert refusal(idle.get("/v1/add")) == (405, "path '/v1/add' does not accept GET; use POST")
    json_type = {"Content-Type": "application/json"}
    assert refusal(idle.post("/v1/add", content=b"{", headers=json_type))[1].startswith("the request is not valid JSON")
    assert "not a JSON object" in refusal(idle.post("/v1/add", content=b"[1]", headers=json_type))[1]
    for content in (b"[" * 90_000, json.dumps(TURN | {"text": "Zoë"}, ensure_ascii=False).encode("latin-1")):
        assert refusal(idle.post("/v1/add", content=content, headers=json_type)) == (
            400,
            "the request cannot be read as JSON: it is not in UTF-8, is nested too deeply, or has a number of too many "
            "digits",
        )


def test_no_stream_can_be_held_open_on_which_nothing_ever_comes(idle: httpx.Client) -> None:
    found = idle.get("/mcp", headers={"Accept": "text/event-stream"}, timeout=5)
    assert refusal(found) == (405, "path '/mcp' does not accept GET; use POST")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_web_page_cannot_write_by_a_form(idle: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = idle.post("/v1/add", content=json.dumps(TURN).encode(), headers=headers)
    assert "Content-Type: application/json" in refusal(answer)[1]
    assert idle.get("/v1/spaces").json()["spaces"] == []


def test_a_web_page_cannot_reach_the_server_by_another_name(idle: httpx.Client) -> None:
    status, detail = refusal(idle.get("/v1/spaces", headers={"Host": "evil.example"}))
    assert (status, "evil.example" in detail) == (421, True)
    assert (
        "access-control-allow-origin" not in idle.get("/v1/spaces", headers={"Origin": "http://evil.example"}).headers
    )


def test_a_key_is_needed_and_opens_only_its_own_spaces(guarded: httpx.Client) -> None:
    for headers in ({}, bearer("no-such-key-000000"), {"Authorization": f"Basic {next(iter(KEYS))}"}):
        answer = guarded.post("/v1/add", json=TURN, headers=headers)
        assert (refusal(answer)[0], answer.headers["www-authenticate"]) == (401, "Bearer")
    ask(guarded, "add", TURN, **ANA)
    ask(guarded, "add", TURN | {"space": "bo"}, **BO)
    for operation, asked in {
        "add": TURN, "add_many": {"turns": [TURN | {"space": "bo"}, TURN]},
        "recall": {"space": "ana", "question": "bike"}, "explain": {"space": "ana", "question": "bike"},
        "profile": {"space": "ana"}, "forget": {"space": "ana", "whole_space": True},
    }.items():  # fmt: skip
        answer = guarded.post(f"/v1/{operation}", json=asked, headers=BO)
        assert refusal(answer) == (403, "key 'bo' may not use space 'ana'; its spaces: bo")
    assert guarded.get("/v1/spaces", headers=BO).json()["spaces"] == ["bo"]
    assert len(ask(guarded, "recall", {"space": "bo", "question": "bike"}, **BO)["hits"]) == 1
    assert guarded.get("/v1/spaces", headers=ANA).json()["spaces"] == ["ana"]


def test_all_chats_of_a_user_are_one_answer_within_what_the_key_may_use(guarded: httpx.Client) -> None:
    for space in ("ana", "team/x", "team/y"):
        ask(guarded, "add", TURN | {"space": space, "user": "ana", "text": f"The bike of {space} is blue."}, **ANA)
    ask(guarded, "add", TURN | {"space": "bo", "user": "ana", "agent": "helper"}, **BO)

    def spaces_of(headers: dict[str, str], **scope: str) -> set[str]:
        return {hit["space"] for hit in ask(guarded, "recall", {"question": "bike"} | scope, **headers)["hits"]}

    assert spaces_of(ANA, user="ana") == {"ana", "team/x", "team/y"}
    assert spaces_of(BO, user="ana") == spaces_of(BO, agent="helper") == {"bo"}
    nobody = guarded.post("/v1/recall", json={"question": "bike", "agent": "helper"}, headers=ANA)
    assert refusal(nobody) == (404, "no space belongs to agent 'helper'; there are none yet")
    assert "no space is named" in refusal(guarded.post("/v1/recall", json={"question": "bike"}, headers=ANA))[1]
    taken = guarded.post("/v1/add", json=TURN | {"space": "team/x", "user": "bo"}, headers=ANA)
    assert refusal(taken) == (
        400, "space 'team/x' belongs to user 'ana', not 'bo'; nothing was written; add to another space",
    )  # fmt: skip
    assert guarded.get("/v1/spaces", headers=BO).json()["scopes"] == {"bo": {"user": "ana", "agent": "helper"}}
    ask(guarded, "forget", {"user": "ana"}, **ANA)
    assert guarded.get("/v1/spaces", headers=ANA).json()["spaces"] == []
    assert spaces_of(BO, user="ana") == {"bo"}


def test_what_holds_nothing_of_a_memory_needs_no_key(idle_guarded: httpx.Client) -> None:
    assert [idle_guarded.get(path).status_code for path in ("/health", "/openapi.json", "/metrics")] == [200, 200, 401]
    answer = idle_guarded.get("/", follow_redirects=True)
    assert (answer.url.path, answer.status_code, answer.headers["content-type"][:9]) == ("/explorer", 200, "text/html")


def test_readiness_tells_nothing_of_files_and_models_without_a_key(idle_guarded: httpx.Client) -> None:
    assert idle_guarded.get("/ready").json() == {"status": "ready", "strategy": "v2"}
    assert (
        idle_guarded.get("/ready", headers={"Authorization": "Bearer wrong"}).json()
        == idle_guarded.get("/ready").json()
    )
    assert {"checkpoint", "index"} < idle_guarded.get("/ready", headers=ANA).json().keys()


def test_an_error_does_not_name_another_key_s_spaces(guarded: httpx.Client) -> None:
    ask(guarded, "add", TURN | {"space": "team/secret"}, **ANA)
    only = {"space": "bo", "question": "bike"}
    assert refusal(guarded.post("/v1/recall", json=only, headers=BO)) == (
        404, "space 'bo' is not in the store; there are none yet",
    )  # fmt: skip


def test_requests_above_a_key_s_rate_wait(place: Path) -> None:
    # Without asking whether it is loaded, which may take all that an address is allowed.
    with serving(place, keys=Keyring(KEYS), requests_per_minute=2, is_loaded=False) as client:
        assert [client.get("/v1/spaces", headers=ANA).status_code for _ in range(3)] == [200, 200, 429]
        answer = client.get("/v1/spaces", headers=ANA)
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert "key 'ana' has no requests left" in refusal(answer)[1]
        assert client.get("/v1/spaces", headers=BO).status_code == 200
        assert client.get("/health").status_code == 200


def test_a_request_that_is_too_large_is_refused_however_it_is_sent(place: Path) -> None:
    with serving(place, max_request_bytes=1_000) as client:
        large = json.dumps(TURN | {"text": "x" * 1_000}).encode()
        json_type = {"Content-Type": "application/json"}
        said = "the request is larger than 1000 bytes"
        for content in (large, iter([large[:600], large[600:]])):  # with its length, and in chunks of unknown number
            answer = client.post("/v1/add", content=content, headers=json_type)
            assert (answer.status_code, said in refusal(answer)[1]) == (413, True)
        assert client.get("/v1/spaces").json()["spaces"] == []


def test_a_request_of_which_a_part_never_comes_changes_nothing(client: httpx.Client) -> None:
    ask(client, "add", TURN)
    whole = json.dumps({"space": "ana", "whole_space": True}).encode()
    head = (
        "POST /v1/forget HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    assert len(whole) < 100
    with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as connection:
        connection.sendall(head.encode() + whole)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1_000) == b""  # waits until the server is done with the request
    assert client.get("/v1/spaces").json()["spaces"] == ["ana"]


def test_a_server_that_stops_leaves_what_is_due_to_whoever_opens_the_memory_next(place: Path) -> None:
    with serving(place) as client:
        ask(client, "add", TURN)
        assert client.get("/ready").json()["index"]["due_spaces"] == 1
    with Store(place / "memory.sqlite", access="read") as graph:
        assert [*graph.changed_spaces()] == ["ana"]
    with serving(place) as client:
        assert ask(client, "recall", {"space": "ana", "question": "bike"})["strategy"] == "v2"


def test_readiness_says_what_index_and_checkpoint_are_in(place: Path) -> None:
    with serving(place) as client:
        ask(client, "add", TURN)
        found = client.get("/ready").json()
        assert (found["status"], found["strategy"], found["reason"]) == ("ready", "v2", "")
        assert found["index"] == {"due_rows": found["index"]["due_rows"], "due_spaces": 1}
        ask(client, "recall", {"space": "ana", "question": "bike"})  # v2 needs no descriptions
        assert client.get("/ready").json()["index"] == found["index"] | {"due_spaces": 0}
        ask(client, "recall", {"space": "ana", "question": "bike", "strategy": "v1"})
        assert client.get("/ready").json()["index"] == {"due_rows": 0, "due_spaces": 0}


def test_metrics_count_operations_by_how_they_ended(client: httpx.Client) -> None:
    ask(client, "add", TURN)
    client.post("/v1/recall", json={"space": "nobody", "question": "bike"})
    client.get("/v1/spaces", headers={"Host": "evil.example"})
    lines = client.get("/metrics").text.splitlines()
    assert 'locigraph_operations_total{end="ok",operation="add"} 1.0' in lines
    assert 'locigraph_operations_total{end="refused",operation="recall"} 1.0' in lines
    assert 'locigraph_refused_total{status="421"} 1.0' in lines
    assert 'locigraph_operation_seconds_count{operation="add"} 1.0' in lines
    assert "locigraph_waiting 0.0" in lines


def test_the_openapi_document_holds_every_operation_with_its_forms(idle: httpx.Client) -> None:
    found = idle.get("/openapi.json").json()
    assert {f"/v1/{name}" for name in OPERATIONS} <= {*found["paths"]}
    assert found["paths"]["/v1/recall"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    refused = found["paths"]["/v1/recall"]["post"]["responses"]["default"]["content"]
    assert refused == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert found["components"]["schemas"]["Answer"]["properties"].keys() >= {"hits", "notes", "strategy"}
    assert "HTTPValidationError" not in found["components"]["schemas"]
    assert found["components"]["securitySchemes"]


def test_the_log_holds_who_and_what_but_nothing_that_was_said(
    place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError(f"cannot write {TURN['text']}")

    caplog.set_level(logging.INFO, "locigraph.serve")
    with serving(place, keys=Keyring(KEYS)) as client:
        ask(client, "add", TURN, **ANA)
        ask(client, "recall", {"space": "ana", "question": "blue bike"}, **ANA)
        client.get("/blue?blue=bike", headers=ANA)
        monkeypatch.setattr(Memory, "add", crash)
        client.get("/openapi.json")
        answer = client.post("/v1/add", json=TURN, headers=ANA)
        assert refusal(answer) == (500, "the server failed; its log says where, without quoting conversations")
    ours = [record.getMessage() for record in caplog.records if record.name == "locigraph.serve"]
    requests = [json.loads(line) for line in ours if line.startswith("{")]
    assert [(line["path"], line["status"], line["key"]) for line in requests[-5:]] == [
        ("/v1/add", 200, "ana"), ("/v1/recall", 200, "ana"), (None, 404, "ana"), ("/openapi.json", 200, None),
        ("/v1/add", 500, "ana"),
    ]  # fmt: skip
    assert any(line.startswith("RuntimeError at ") for line in ours)
    assert not any(word in "\n".join(ours) for word in ("blue", "bike", "Tom", *KEYS))


def test_concurrent_clients_are_all_answered_and_nothing_acknowledged_is_missing(place: Path) -> None:
    async def work(url: str) -> list[str]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:

            async def one(number: int) -> str:
                space = {"space": f"u{number % 3}"}
                added = await client.post("/v1/add", json=TURN | space | {"text": f"Dog {number}."})
                found = await client.post("/v1/recall", json={"question": f"Dog {number}", "fold": None, **space})
                said: str = added.raise_for_status().json()["turn_id"]
                hits = found.raise_for_status().json()["hits"]
                assert said in [hit["turn_ids"][0] for hit in hits]
                return said

            return await asyncio.gather(*(one(number) for number in range(24)))

    with serving(place) as client:
        acknowledged = asyncio.run(work(str(client.base_url)))
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        held = {
            hit.turn_ids[0]
            for space in memory.spaces()
            for hit in memory.recall("Dog", space=space, top_k=30, fold=None)
        }
    assert held == {*acknowledged}
    verify.verify(store=str(place / "memory.sqlite"), checkpoint=str(place / "checkpoint"))


_HOSTILE = st.text(min_size=1, max_size=30) | st.sampled_from(
    ["ana' OR '1'='1", 'ana" or space != "', "ana%", "an_", "*", "team/*", "ANA", "ana ", " ana", "ana\u200b", "../ana",
     "ana/../team", "%61na", "a\u0301na", "ana@2024-01-01", "\ud800", "ana\x00", "", "a" * 300]
)  # fmt: skip


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=_HOSTILE)
def test_no_name_of_a_space_shows_another_key_s_rows(guarded: httpx.Client, name: str) -> None:
    if not guarded.get("/v1/spaces", headers=ANA).json()["spaces"]:
        ask(guarded, "add", TURN | {"text": "The vault code is heliotrope.", "turn_id": "t1"}, **ANA)
        ask(guarded, "add", TURN | {"space": "bo", "turn_id": "t1"}, **BO)
    asked = {"question": "vault code"}
    for operation, more in (("recall", asked), ("explain", asked), ("forget", {"turn_ids": ["t1"]})):
        body = json.dumps({"space": name, **more}).encode()
        headers = {"Content-Type": "application/json", **BO}
        answer = guarded.post(f"/v1/{operation}", content=body, headers=headers)
        assert answer.status_code in (400, 403, 404, 422)
        assert "heliotrope" not in answer.text
    hits = ask(guarded, "recall", {"space": "ana", "question": "vault"}, **ANA)["hits"]
    assert "heliotrope" in hits[0]["text"]
