"""Graphs that language models build, against the scripted endpoint."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from locigraph.assembly.build_context import HybridContext
from locigraph.assembly.language_models import clients_of
from locigraph.assembly.settings import LLMSettings, ScribeSettings
from locigraph.consolidation import llm
from locigraph.consolidation.cassette import Cassette, CassetteMode
from locigraph.consolidation.errors import LimitReachedError
from locigraph.consolidation.extractors.language_model import LLMExtractor
from locigraph.consolidation.ledger import Ledger, Prices
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.consolidation.pipeline import Consolidator, versions_of
from locigraph.kg.corpora import Conversation, load_corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, TurnState
from tests.consolidation.endpoints import NOWHERE
from tests.consolidation.stub_server import FAULTS, Stub, extracted, stub_server
from tests.fakes import FakeEncoder
from tests.fakes_models import tiny_text_encoder
from tests.kg.dumps import dump
from tests.test_cli import assert_one_line_and_code_2, beginnings, run

SAMPLE = load_corpus("jsonl", "sample").conversations[:1]
#: The beginning of it, where how much is said makes no difference.
BEGINNING = (replace(SAMPLE[0], turns=SAMPLE[0].turns[:40]),)


def build(
    store: Store,
    url: str,
    cassette: Path,
    conversations: Sequence[Conversation] = SAMPLE,
    *,
    mode: CassetteMode = "auto",
    model: str = "m",
    ledger: Ledger | None = None,
    timeout_s: float = 10.0,
) -> int:
    """Consolidate conversations; returns how many turns failed."""
    ledger = ledger or Ledger()
    ledger.bind(store)
    endpoint = Endpoint(url, model, prices=Prices(1.0, 1.0), timeout_s=timeout_s, deadline_s=60)
    extractor = LLMExtractor(*(ChatClient(endpoint, Cassette(cassette, mode), ledger) for _ in range(2)))
    encoder = FakeEncoder(512)  # wide, so that no two topics are taken for one by chance
    for conversation in conversations:
        store.append_turns(conversation.turns)
        context = HybridContext(store, encoder)
        Consolidator(store, extractor, encoder, context).run(conversation.space)
    return sum(len(store.failures(conversation.space)) for conversation in conversations)


def graph_of(store: Store, space: SpaceId) -> tuple[Counter[Any], Counter[Any]]:
    """Nodes and edges by what they say, whatever order they were made in."""
    nodes = {node.id: node for node in store.nodes(space, include_archived=True)}
    said = Counter(
        (n.type, n.label, n.description, n.status, n.provenance, json.dumps(n.attributes)) for n in nodes.values()
    )
    edges = Counter((nodes[r.source].description, r.label, nodes[r.target].description) for r in store.relations(space))
    return said, edges


LOCOMO = Path(__file__).parents[3] / "shared" / "data" / "locomo" / "locomo10.json"


def two_of_locomo() -> Sequence[Conversation]:
    return load_corpus("locomo", str(LOCOMO)).conversations[:2]


@pytest.mark.parametrize(
    "conversations",
    [
        pytest.param(lambda: SAMPLE, id="sample", marks=pytest.mark.long),
        pytest.param(
            two_of_locomo,
            id="locomo",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not LOCOMO.exists(), reason=f"NOT RUN: {LOCOMO} is absent, no real conversations"),
            ],
        ),
    ],
)
def test_with_a_fifth_of_the_requests_failing_every_turn_is_done_or_failed_and_a_retry_ends_in_the_same_graph(
    conversations: Callable[[], Sequence[Conversation]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = conversations()
    monkeypatch.setattr(llm, "_FIRST_PAUSE_S", 0.01)
    with stub_server(Stub(extracted)) as stub, Store(tmp_path / "whole.sqlite") as whole:
        assert build(whole, stub.url, tmp_path / "whole.cassette", given) == 0
        expected = [graph_of(whole, conversation.space) for conversation in given]
    assert expected[0][0].total() > 200
    with (
        # Drawn from this seed, some turn fails; every kind of fault is met.
        stub_server(Stub(extracted, rate=0.2, slow_s=0.45, chance=random.Random(119))) as stub,
        Store(tmp_path / "graph.sqlite") as store,
    ):
        failed = build(store, stub.url, tmp_path / "faulty.cassette", given, timeout_s=0.4)
        assert failed > 0
        for conversation in given:
            states = [len(store.turns(conversation.space, state=state)) for state in (TurnState.DONE, TurnState.FAILED)]
            assert sum(states) == len(conversation.turns)
            for failure in store.failures(conversation.space):
                assert "after 2 attempts; see" in failure.error
        for _ in range(9):  # a fifth of the retries fail too
            for conversation in given:
                for failure in store.failures(conversation.space):
                    store.retry_turn(conversation.space, failure.turn_id)
            failed = build(store, stub.url, tmp_path / "faulty.cassette", given, timeout_s=0.4)
            if not failed:
                break
        assert failed == 0
        assert set(stub.met) == set(FAULTS)
        for conversation, (nodes, edges) in zip(given, expected, strict=True):
            made = graph_of(store, conversation.space)
            assert (made[0] - nodes, nodes - made[0]) == (Counter(), Counter())
            assert (made[1] - edges, edges - made[1]) == (Counter(), Counter())


@pytest.mark.long
def test_a_replay_builds_the_same_store_byte_by_byte_without_an_endpoint(tmp_path: Path) -> None:
    part = BEGINNING
    with stub_server(Stub(extracted)) as stub, Store(tmp_path / "a.sqlite") as store:
        build(store, stub.url, tmp_path / "cassette.sqlite", part)
    for name in ("b", "c"):
        with Store(tmp_path / f"{name}.sqlite") as store:
            assert build(store, NOWHERE, tmp_path / "cassette.sqlite", part, mode="replay") == 0
    dumps = [dump(tmp_path / f"{name}.sqlite") for name in ("a", "b", "c")]
    assert dumps[1] == dumps[2]
    with Store(tmp_path / "a.sqlite") as recorded, Store(tmp_path / "b.sqlite") as replayed:
        assert graph_of(recorded, part[0].space) == graph_of(replayed, part[0].space)


@pytest.mark.long
def test_a_replay_of_a_run_with_failed_turns_builds_the_same_store(tmp_path: Path) -> None:
    faulty = Stub(extracted, rate=0.3, faults=["prose", "empty", "cut off"], chance=random.Random(1))
    with stub_server(faulty) as stub, Store(tmp_path / "a.sqlite") as recorded:
        failed = build(recorded, stub.url, tmp_path / "c.sqlite", BEGINNING)
    assert failed > 0
    with Store(tmp_path / "b.sqlite") as replayed:
        assert build(replayed, NOWHERE, tmp_path / "c.sqlite", BEGINNING, mode="replay") == failed
    with Store(tmp_path / "a.sqlite") as recorded, Store(tmp_path / "b.sqlite") as replayed:
        space = BEGINNING[0].space
        assert graph_of(recorded, space) == graph_of(replayed, space)
        assert recorded.failures(space) == replayed.failures(space)


def test_a_graph_that_another_model_goes_on_with_says_so_once_and_knows_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space, parts = SAMPLE[0].space, [(replace(SAMPLE[0], turns=SAMPLE[0].turns[:count]),) for count in (2, 4, 6)]
    with stub_server(Stub(extracted)) as stub, Store(tmp_path / "graph.sqlite") as store:
        build(store, stub.url, tmp_path / "c.sqlite", parts[0])
        build(store, stub.url, tmp_path / "c.sqlite", parts[0], model="n")  # which has nothing to do
        assert [version.split()[:2] for version in versions_of(store, space)] == [["architect", "m"]]
        assert caplog.records == []
        build(store, stub.url, tmp_path / "c.sqlite", parts[1], model="n")
        build(store, stub.url, tmp_path / "c.sqlite", parts[2], model="n")
        assert [version.split()[:2] for version in versions_of(store, space)] == [
            ["architect", "m"],
            ["architect", "n"],
        ]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"space {space!r} was built by architect m ")
    assert "and is continued by architect n " in said


@pytest.mark.long
@pytest.mark.parametrize(("limit", "low", "high"), [("max_tokens", 5_000, 1_000_000), ("max_cost", 0.005, 1.0)])
def test_a_limit_stops_between_turns_and_a_higher_one_goes_on(
    limit: str, low: float, high: float, tmp_path: Path
) -> None:
    def limited(most: float) -> Ledger:
        return Ledger(max_cost=most) if limit == "max_cost" else Ledger(max_tokens=int(most))

    part = BEGINNING
    with stub_server(Stub(extracted)) as stub, Store(tmp_path / "graph.sqlite") as store:
        with pytest.raises(LimitReachedError, match=f"stopped by {limit} {low:,}"):
            build(store, stub.url, tmp_path / "cassette.sqlite", part, ledger=limited(low))
        done = len(store.turns(part[0].space, state=TurnState.DONE))
        assert 0 < done < len(part[0].turns)
        assert store.failures(part[0].space) == []
        asked = len(stub.requests)
        with pytest.raises(LimitReachedError):  # what was spent is not forgotten
            build(store, stub.url, tmp_path / "cassette.sqlite", part, ledger=limited(low))
        assert len(stub.requests) == asked
        ledger = limited(high)
        assert build(store, stub.url, tmp_path / "cassette.sqlite", part, ledger=ledger) == 0
        assert ledger.total.calls == len(stub.requests)
        assert ledger.total.tokens == 120 * len(stub.requests)
        assert {turn for turn, _ in store.spent(part[0].space)} == {turn.turn_id for turn in part[0].turns}


@pytest.mark.long
def test_the_command_builds_stops_with_code_3_and_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.jsonl").write_text(beginnings(1)[0] + "\n")
    command = ["build", "--consolidation", "llm", "--corpus.path", "chat.jsonl", "--store", "g.sqlite"]
    command += ["--encoder.model", tiny]
    code, out, error = run(capsys, *command, "--llm.base_url", NOWHERE, "--llm.model", "m", "--dry_run")
    assert (code, error) == (0, "")
    assert "32 turns to consolidate by llm, about 64 calls" in out
    assert not (tmp_path / "g.sqlite").exists()
    with stub_server(Stub(extracted, rate=1, faults=["prose"], most=1)) as stub:
        command += ["--llm.base_url", stub.url, "--llm.model", "m", "--llm.scribe.model", "writer"]
        code, out, error = run(capsys, *command, "--max_tokens", "4000")
        assert code == 3
        assert "architect: " in out
        assert "in all: " in out
        assert error.splitlines()[-1].startswith("locigraph: stopped by max_tokens 4,000")
        # What is done can be asked meanwhile.
        code, out, error = run(capsys, "recall", "Who sings?", "--space", "harbor", "--store", "g.sqlite")
        assert (code, "are not consolidated yet" in out) == (0, True), error
        code, out, error = run(capsys, *command, "--max_tokens", "400000", "--llm.input_price", "1")
        assert (code, "architect: 33 calls" in out) == (0, True), error
        code, out, error = run(capsys, *command)
        assert code == 0, error
        # Of the run that was stopped, and told after another.
        told = [line for line in out.splitlines() if line.startswith("architect: ")]
        assert told[0].endswith("1 invalid, 1 repaired")
    assert {request["model"] for request in stub.requests} == {"m", "writer"}
    with Store(tmp_path / "g.sqlite") as store:
        space = store.spaces()[0]
        assert len(store.turns(space, state=TurnState.DONE)) == 32
        assert store.node_counts(space)["knowledge_node"] > 10


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_text_encoder(tmp_path_factory.mktemp("models") / "tiny")


DOCUMENT = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text()
#: The builds that the document shows for each kind of endpoint, each as one line.
EXAMPLES = [
    line
    for line in DOCUMENT.replace("\\\n", " ").splitlines()
    if " build " in line and "--llm.base_url http" in line and not line.startswith("|")
]


def test_the_document_has_an_example_for_each_endpoint_of_its_table() -> None:
    table = re.findall(r"^\| [^|]+ \| `(http[^`]+)` \|", DOCUMENT, flags=re.MULTILINE)
    assert len(table) == 5
    assert re.findall(r"--llm.base_url (\S+)", "\n".join(EXAMPLES)) == table


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda line: re.sub(r".*--llm.model (\S+).*", r"\1", line))
def test_the_examples_of_the_document_build_a_graph(
    example: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: str
) -> None:
    monkeypatch.chdir(tmp_path)
    turns = [{"turn_id": f"t{number}", "speaker": "Ann", "text": f"I sold boat {number}."} for number in range(3)]
    session = {"session_id": "s1", "started_at": "2024-01-10T10:00:00Z", "turns": turns}
    chat = {"conversation_id": "c", "sessions": [session], "questions": []}
    (tmp_path / "chats.jsonl").write_text(json.dumps(chat) + "\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = shlex.split(example)
    key = "none"
    while "=" in words[0]:
        name, key = words.pop(0).split("=")
        monkeypatch.setenv(name, key)
    with stub_server(Stub(extracted)) as stub:
        words[words.index("--llm.base_url") + 1] = stub.url
        code, out, error = run(capsys, *words[1:], "--encoder.model", tiny, "--store", "g.sqlite")
    assert (code, error.count("Traceback")) == (0, 0), error
    assert "architect: 3 calls" in out
    assert {request["model"] for request in stub.requests} == {words[words.index("--llm.model") + 1]}
    assert {*stub.keys} == {key}


def test_a_key_is_sent_without_line_ends_and_refused_if_no_header_can_carry_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = LLMSettings(base_url=NOWHERE, model="m", api_key_env="BOATS_KEY", cassette=str(tmp_path / "c.sqlite"))
    monkeypatch.setenv("BOATS_KEY", "sk-1\r\n")
    assert clients_of(settings)("architect")._endpoint.api_key == "sk-1"
    for key in ("sk-ä", "sk-1\nsk-2"):
        monkeypatch.setenv("BOATS_KEY", key)
        with pytest.raises(LocigraphError, match="BOATS_KEY holds letters or signs") as refused:
            clients_of(settings)("architect")
        assert key not in str(refused.value)


def test_stages_with_one_model_share_what_was_found_out_about_its_endpoint(tmp_path: Path) -> None:
    settings = LLMSettings(base_url=NOWHERE, model="m", cassette=str(tmp_path / "c.sqlite"))
    clients = clients_of(settings)
    assert clients("architect") is clients("scribe")  # so that a refusal of schemas is said once
    clients = clients_of(replace(settings, scribe=ScribeSettings(model="writer")))
    assert clients("architect") is not clients("scribe")
    assert (clients("architect").model, clients("scribe").model) == ("m", "writer")


BAD_CALLS = {
    "no model": (["--llm.base_url", NOWHERE], "llm.model is ''"),
    "no endpoint": (["--llm.model", "m"], "llm.base_url is not set"),
    "negative limit": (["--llm.model", "m", "--max_tokens", "-1"], "max_tokens is -1"),
    "cost without prices": (["--llm.model", "m", "--max_cost", "1"], "max_cost is 1.0, but llm.input_price"),
    "endless prices": (["--llm.model", "m", "--llm.input_price", ".inf"], "prices of llm"),
    "no time": (["--llm.model", "m", "--llm.timeout_s", "0"], "llm.timeout_s is 0"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_settings_of_a_model_that_cannot_be_are_one_line_and_change_nothing(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, told = BAD_CALLS[name]
    code, _, error = run(capsys, "build", "--consolidation", "llm", *arguments)
    assert_one_line_and_code_2(code, error, told)
    assert not any(tmp_path.iterdir())
