"""The tool of agents of LangChain and LangGraph: the real packages, where they are installed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locigraph import AsyncMemory, Memory
from locigraph.kg.errors import LocigraphError

pytest.importorskip("langchain_core", reason="needs the extra 'langchain'")

from pydantic import ValidationError

from locigraph.langchain import MemoryRetriever, RecallTool

QUESTION: dict[str, Any] = {"question": "Who bought the bike?"}
SOLD = "I sold the blue bike to Tom."
CALL = {"type": "tool_call", "name": "recall", "args": QUESTION, "id": "call-1"}


def run_of(user: str) -> Any:
    return {"configurable": {"user_id": user, "thread_id": "1"}}


@pytest.fixture
def memory(place: Path) -> Iterator[Memory]:
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as opened:
        ana = {"session": "s1", "speaker": "Ana", "spoken_at": "2024-05-01T10:00", "user": "ana"}
        opened.add(space="chat 1", text=SOLD, turn_id="t1", **ana)
        opened.add(space="chat 2", text="The bike has a bell.", turn_id="t2", **ana)
        opened.add(space="bo's", session="s1", speaker="Bo", text="My bike is a secret.", user="bo")
        yield opened


def test_a_model_reads_dated_lines_and_the_program_gets_all_that_recall_returns(memory: Memory) -> None:
    tool = RecallTool(memory=memory, space="chat 1", options={"strategy": "v2"})
    recalled = memory.recall(**QUESTION, space="chat 1", budget_tokens=1_000, strategy="v2").as_json()
    for message in (tool.invoke(CALL), asyncio.run(tool.ainvoke(CALL))):
        assert message.content == f"[1 May 2024] Ana: {SOLD} (t1)" == recalled["context"]
        assert message.artifact.keys() == recalled.keys()
        assert message.artifact["hits"] == recalled["hits"]
        assert json.loads(json.dumps(message.artifact)) == message.artifact
    assert tool.invoke(QUESTION) == message.content


def test_a_model_gives_the_question_and_nothing_else(memory: Memory) -> None:
    tool = RecallTool(memory=memory, space="chat 1")
    assert tool.tool_call_schema.model_json_schema()["properties"].keys() == {"question"}  # type: ignore[union-attr]
    assert "secret" not in tool.invoke({**QUESTION, "space": "bo's", "config": run_of("bo")})
    for question in ("", " \n"):
        with pytest.raises(ValidationError, match="question is"):
            tool.invoke({"question": question})


def test_each_run_searches_the_spaces_of_its_own_user(memory: Memory) -> None:
    tool = RecallTool(memory=memory, from_run={"user": "user_id"})
    of_ana, of_bo = (tool.invoke(QUESTION, run_of(user)) for user in ("ana", "bo"))
    assert ("chat 1:t1" in of_ana, "chat 2:t2" in of_ana, "secret" in of_ana) == (True, True, False)
    assert ("secret" in of_bo, "blue" in of_bo) == (True, False)
    assert tool.invoke({**QUESTION, "config": run_of("bo"), "user": "bo"}, run_of("ana")) == of_ana  # what a model says


@pytest.mark.parametrize("given", [{}, {"user_id": None}, {"user_id": ""}, {"user_id": ["ana", "bo"]}])
def test_a_run_that_does_not_say_whose_memory_is_an_error_and_never_searches_all(
    memory: Memory, given: dict[str, Any]
) -> None:
    memory.add(space="chat 3", session="s1", speaker="Cy", text="My bike is mine.", user="cy", agent="helper")
    tool = RecallTool(memory=memory, agent="helper", from_run={"user": "user_id"})
    with pytest.raises(LocigraphError, match="has no text 'user_id', which names the user to search"):
        tool.invoke(QUESTION, {"configurable": given})


def test_where_to_search_is_said_once(memory: Memory) -> None:
    with pytest.raises(ValidationError, match="from_run names 'users'; expected some of space, user, agent"):
        RecallTool(memory=memory, from_run={"users": "user_id"})
    with pytest.raises(ValidationError, match="which is 'ana' for all runs; give one"):
        RecallTool(memory=memory, user="ana", from_run={"user": "user_id"})
    with pytest.raises(LocigraphError, match="no space is named"):
        RecallTool(memory=memory).invoke(QUESTION)


def test_of_a_new_user_nothing_is_remembered_and_no_other_is_named(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    tool = RecallTool(memory=memory, from_run={"user": "user_id"})
    for message in (tool.invoke(CALL, run_of("boo")), asyncio.run(tool.ainvoke(CALL, run_of("boo")))):
        assert message.content == "Nothing is remembered yet."
        assert (message.artifact["hits"], message.artifact["notes"]) == ([], [message.content])
    assert any("'boo'" in logged for logged in caplog.messages)


def test_that_nothing_was_found_is_told_with_what_is_missing(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory.add(space="ana", session="s1", speaker="Ana", text=SOLD, metadata={"project": "bikes"})
        tool = RecallTool(memory=memory, space="ana", options={"filter": {"project": "boats"}})
        found, note = tool.invoke(QUESTION).splitlines()
        assert found == "No memory was found."
        assert note == "[note: v1 answered, since v2 cannot be used: no checkpoint is named]"
        small = RecallTool(memory=memory, space="ana", budget_tokens=1)
        assert small.invoke(QUESTION).splitlines()[0] == "What was found does not fit into this answer: 2 hits."
        with pytest.raises(ValueError, match="budget_tokens is an attribute of the tool"):
            RecallTool(memory=memory, space="ana", options={"budget_tokens": None})
        outage = RecallTool(memory=memory, space="ana", options={"strategy": "v2"})
        with pytest.raises(LocigraphError, match="no checkpoint is named"):  # is no answer
            outage.invoke(QUESTION)


def test_an_async_memory_answers_coroutines_alone(place: Path) -> None:
    async def ask() -> str:
        async with AsyncMemory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
            await memory.add(space="ana", session="s1", speaker="Ana", text=SOLD, turn_id="t1")
            tool = RecallTool(memory=memory, space="ana")
            with pytest.raises(LocigraphError, match="await ainvoke"):
                tool.invoke(QUESTION)
            return str(await tool.ainvoke(QUESTION))

    assert asyncio.run(ask()) == f"Ana: {SOLD} (t1)"


def test_a_graph_calls_it_for_the_user_of_the_run_and_keeps_what_it_returns(memory: Memory) -> None:
    prebuilt = pytest.importorskip("langgraph.prebuilt", reason="langgraph is not installed")
    graph, saver = pytest.importorskip("langgraph.graph"), pytest.importorskip("langgraph.checkpoint.memory")
    from langchain_core.messages import AIMessage

    builder = graph.StateGraph(graph.MessagesState)
    builder.add_node("tools", prebuilt.ToolNode([RecallTool(memory=memory, from_run={"user": "user_id"})]))
    builder.add_edge(graph.START, "tools")
    agent = builder.compile(checkpointer=saver.InMemorySaver())
    empty = {**CALL, "args": {"question": ""}, "id": "call-2"}
    agent.invoke({"messages": [AIMessage("", tool_calls=[CALL, empty])]}, run_of("bo"))
    _, found, refused = agent.get_state(run_of("bo")).values["messages"]
    assert "My bike is a secret." in found.content
    assert found.artifact["hits"][0]["space"] == "bo's"
    assert (refused.status, "the question is empty" in refused.content) == ("error", True)


def test_of_several_spaces_those_to_which_nothing_was_added_are_left_out(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    tool = RecallTool(memory=memory, space=["team", "chat 1", "family"])
    assert SOLD in tool.invoke(QUESTION)
    assert SOLD in asyncio.run(tool.ainvoke(QUESTION))
    assert "'team' is not in the store" in caplog.text
    assert RecallTool(memory=memory, space=["team", "family"]).invoke(QUESTION) == "Nothing is remembered yet."


@pytest.mark.parametrize("kind", [RecallTool, MemoryRetriever])
def test_where_to_search_cannot_be_among_further_options(kind: Any, memory: Memory) -> None:
    with pytest.raises(ValidationError, match="options has 'space'"):
        kind(memory=memory, space="chat 1", options={"space": "bo's"})
