"""Questions that are asked by several queries, through the commands and the public API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from locigraph import Memory
from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.consolidation.query_writer import QueriesForm, QueryForm, messages_of
from locigraph.consolidation.replies import strict_schema
from locigraph.kg.schema import searchable_types
from locigraph.memory import Recalled
from locigraph.retrieval.query_generator import SearchQuery, WrittenQueries
from tests.consolidation.endpoints import NOWHERE
from tests.consolidation.stub_server import Stub, stub_server
from tests.test_cli import assert_one_line_and_code_2, run

TURNS = ("The canoe leaks badly.", "My kite is torn.", "I bought fresh bread.", "We painted a barn door.")
DAY = date(2024, 5, 10)
QUESTION = "What is broken?"
SAID = {"space": "s", "session": "1", "speaker": "Ann", "spoken_at": f"{DAY}T10:00"}
#: Written by hand for these tests; no model was asked.
REPLIES = {
    QUESTION: [{"text": "kite torn", "types": [], "time": None}],
    "What was said about boats?": [{"text": "canoe leaks", "types": ["episode"], "time": "today"}],
}


def cassette_by_hand(path: Path, replies: Mapping[str, Any], asked_on: date) -> None:
    """Keep replies as if a model had written them."""
    client = ChatClient(
        Endpoint(NOWHERE, "m", parameters={"temperature": 0.0, "max_tokens": 2_000}), Cassette(path, "auto")
    )
    schema = strict_schema(QueriesForm, {"types": searchable_types()})
    client.cassette.keep(
        [
            (client.request(messages_of(question, asked_on), schema), json.dumps({"queries": queries}))
            for question, queries in replies.items()
        ]
    )


class Told:
    """A writer that always writes the same."""

    name = "told"

    def __init__(self, queries: Sequence[QueryForm]) -> None:
        self.queries = queries

    def __call__(self, question: str, asked_on: date | None) -> Sequence[QueryForm]:
        return self.queries


@pytest.fixture
def filled(place: Path) -> Path:
    """A memory of four turns that share no word with the questions."""
    with Memory.open(place / "m.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        memory.add_many(SAID | {"text": text} for text in TURNS)
    return place


def recall(capsys: pytest.CaptureFixture[str], place: Path, *options: str) -> tuple[int, str, str]:
    return run(
        capsys, "recall", QUESTION, "--space", "s", "--store", str(place / "m.sqlite"),
        "--checkpoint", str(place / "checkpoint"), "--fold", "null", *options,
    )  # fmt: skip


def by_llm(place: Path, url: str = NOWHERE, *options: str) -> list[str]:
    return [
        "--queries", "llm", "--llm.model", "m", "--llm.base_url", url, "--llm.cassette", str(place / "q.sqlite"),
        *options,
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", ["v1", "v2", "bm25", "magma"])
def test_recall_finds_what_a_query_of_the_model_names_offline_from_a_cassette(
    strategy: str, capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    cassette_by_hand(filled / "q.sqlite", REPLIES, DAY)
    plain = recall(capsys, filled, "--strategy", strategy)
    asked = recall(capsys, filled, "--strategy", strategy, *by_llm(filled, NOWHERE, "--llm.mode", "replay"))
    assert (plain[0], asked[0]) == (0, 0), (plain[2], asked[2])
    assert "by rules" not in asked[1] + asked[2]
    assert ("loading the text encoder" in plain[1] + asked[1]) == (strategy != "bm25")
    assert plain[1].splitlines()[:-1] != asked[1].splitlines()[:-1]
    assert "kite" in asked[1]


def test_recall_says_what_the_model_cost_and_asks_it_once(capsys: pytest.CaptureFixture[str], filled: Path) -> None:
    with stub_server(Stub(lambda request: {"queries": REPLIES[QUESTION]})) as stub:
        code, out, error = recall(capsys, filled, "--strategy", "bm25", *by_llm(filled, stub.url))
        assert (code, error) == (0, "")
        assert "queries: 1 call, 100 tokens read, 20 written" in out
        assert "kite" in out
        code, out, _ = recall(capsys, filled, "--strategy", "bm25", *by_llm(filled, stub.url))
    assert (code, len(stub.requests)) == (0, 1)
    assert "calls" not in out
    document = json.loads(stub.requests[0]["messages"][1]["content"])
    assert (document["question"], document["asked_on"]) == (QUESTION, str(DAY))


@pytest.mark.parametrize(
    ("stub", "reason"),
    [
        (Stub(lambda request: {"queries": []}), "after 2 attempts"),
        (Stub(lambda request: {}, rate=1.0, faults=["503"]), "fault 503"),
        (Stub(lambda request: {}, rate=1.0, faults=["refusal"]), "the model refuses"),
    ],
    ids=["no use", "outage", "refusal"],
)
def test_no_failure_of_the_model_is_one_of_recall(
    stub: Stub, reason: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, filled: Path
) -> None:
    plain = recall(capsys, filled, "--strategy", "v1", "--queries", "rules")
    with stub_server(stub):
        code, out, _ = recall(capsys, filled, "--strategy", "v1", *by_llm(filled, stub.url, "--llm.deadline_s", "0.01"))
    assert code == 0
    (said,) = [record.message for record in caplog.records if "made by rules" in record.message]
    assert said.startswith("the query writer failed, so queries are made by rules: ")
    assert reason in said
    hits = plain[1].splitlines()[:-1]
    assert out.splitlines()[: len(hits)] == hits


def test_a_memory_asks_any_strategy_the_queries_of_any_generator(filled: Path) -> None:
    with Memory.open(filled / "m.sqlite", checkpoint=str(filled / "checkpoint")) as memory:
        days: list[date | None] = []

        def queries(question: str, asked_on: date | None) -> list[SearchQuery]:
            days.append(asked_on)
            return [SearchQuery(question), SearchQuery("bread")]

        def found(strategy: str, **options: Any) -> Recalled:
            return memory.recall(QUESTION, space="s", strategy=strategy, **options)

        assert "bread" in found("bm25", queries=queries)[0].text
        assert set(days) == {DAY}
        assert len(found("bm25")) == 0
        packed = found("magma", queries=queries, budget_tokens=200)
        assert packed.context is not None
        assert "bread" in str(packed.context)


def test_what_a_model_says_is_asked_for_decides_how_magma_searches(filled: Path) -> None:
    beams = {}
    with Memory.open(filled / "m.sqlite", checkpoint=str(filled / "checkpoint")) as memory:
        memory.add_many(SAID | {"text": f"Boat {number} leaks."} for number in range(30))  # more than MAGMA begins at
        for intent in (None, "entity", "when", "why"):
            form = QueryForm(text=QUESTION, intent=intent)
            queries = WrittenQueries(Told([form]))
            hits = memory.recall(QUESTION, space="s", strategy="magma", queries=queries, top_k=50, fold=None)
            beams[intent] = {hit.turn_ids: hit.signals["beam"] for hit in hits}
    assert beams[None] == beams["entity"]  # what the rules say of the question
    # The links of these turns are of time and of one entity, whose greatest weights are 6, 4 and 2.5.
    entity, when, why = (max(beams[intent].values()) for intent in ("entity", "when", "why"))
    assert entity > when > why


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--queries", "rule"], "query generator 'rule' is not known; nearest is 'rules'"),
        (["--queries", "llm"], "llm.model is ''"),
        (["--queries", "llm", "--llm.model", "m"], "llm.base_url is not set"),
    ],
)
def test_a_generator_that_cannot_be_is_one_line(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    code, _, error = recall(capsys, filled, *options)
    assert_one_line_and_code_2(code, error, told)


@pytest.mark.long
def test_an_evaluation_asks_every_strategy_the_same_queries_and_says_how_many_were_made_by_rules(
    capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    turns = [{"turn_id": f"t{i}", "speaker": "Ann", "text": text} for i, text in enumerate(TURNS)]
    asked = [("q0", QUESTION, "t1"), ("q1", "What was said about boats?", "t0"), ("q2", "What is there to eat?", "t2")]
    conversation = {
        "conversation_id": "s",
        "sessions": [{"session_id": "1", "started_at": f"{DAY}T10:00:00", "turns": turns}],
        "questions": [
            {"question_id": name, "text": text, "evidence_turn_ids": [turn], "category": "x"}
            for name, text, turn in asked
        ],
    }
    (place / "c.jsonl").write_text(json.dumps(conversation) + "\n")
    cassette_by_hand(place / "q.sqlite", REPLIES, DAY)
    command = ["evaluate", "--corpus.path", str(place / "c.jsonl"), "--strategies", "v1,bm25", "--contexts", "false"]
    found = {}
    for name, options in (("plain", []), ("llm", by_llm(place, NOWHERE, "--llm.mode", "replay"))):
        code, _, error = run(capsys, *command, "--output", str(place / name), *options)
        assert code == 0, error
        found[name] = json.loads((place / name / "results.json").read_text())
        rankings = map(json.loads, (place / name / "rankings.jsonl").read_text().splitlines())
        found[name] |= {"bm25": {str(r["question_id"]): r["ranking"] for r in rankings if r["strategy"] == "bm25"}}
    assert found["plain"]["manifest"]["settings"]["queries"] is None
    assert found["llm"]["manifest"]["settings"]["queries"].startswith("m ")
    assert found["plain"]["bm25"] == {"s:q0": [], "s:q1": [], "s:q2": []}
    assert found["llm"]["bm25"] == {"s:q0": ["t1"], "s:q1": ["t0"], "s:q2": []}
    (note,) = [note for note in found["llm"]["notes"] if "by rules" in note]
    assert note.startswith("the query writer failed, so the queries of 1 question were made by rules; first error: ")
    assert "no reply to this request to model 'm' is recorded" in note
