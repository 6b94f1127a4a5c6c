"""A memory behind the retrievers of LangChain and LlamaIndex: the real packages, where they are installed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from locigraph import AsyncMemory, Memory
from locigraph.kg.errors import LocigraphError, UnknownSpaceError
from locigraph.kg.types import SpaceId
from tests.fakes import make_turn

Found = list[tuple[str, str, dict[str, Any]]]  # id, text, metadata
Opened = Memory | AsyncMemory
QUESTION, SOLD = "Who bought the bike?", "I sold the blue bike to Tom."


def of_langchain(
    memory: Opened, space: str | None = None, *, user: str | None = None, **options: Any
) -> tuple[Callable[[str], Found], Any]:
    pytest.importorskip("langchain_core", reason="needs the extra 'langchain'")
    from locigraph.langchain import MemoryRetriever

    retriever = MemoryRetriever(memory=memory, space=space, user=user, options=options)

    def shown(documents: Any) -> Found:
        return [(each.id, each.page_content, each.metadata) for each in documents]

    async def awaited(question: str) -> Found:
        return shown(await retriever.ainvoke(question))

    return lambda question: shown(retriever.invoke(question)), awaited


def of_llama_index(memory: Opened, space: str | None = None, **options: Any) -> tuple[Callable[[str], Found], Any]:
    pytest.importorskip("llama_index.core", reason="needs the extra 'llama-index'")
    from locigraph.llama_index import MemoryRetriever

    retriever = MemoryRetriever(memory, space, **options)

    def shown(nodes: Any) -> Found:
        for each in nodes:
            assert each.get_content(metadata_mode="llm") == each.node.text  # nothing but what was said is for models
            assert each.score == each.node.metadata["score"]
        return [(each.node.node_id, each.node.text, each.node.metadata) for each in nodes]

    async def awaited(question: str) -> Found:
        return shown(await retriever.aretrieve(question))

    return lambda question: shown(retriever.retrieve(question)), awaited


FRAMEWORKS = pytest.mark.parametrize("framework", [of_langchain, of_llama_index], ids=["langchain", "llama-index"])


@pytest.fixture
def memory(place: Path) -> Iterator[Memory]:
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as opened:
        for number, text in enumerate((SOLD, "Was it the old one?", "Yes, Tom came by in the rain.")):
            opened.add(space="ana", session="s1", speaker="Ana", text=text, turn_id=f"t{number}")
        yield opened


@FRAMEWORKS
def test_a_retriever_finds_what_the_memory_recalls_with_all_that_a_hit_says(framework: Any, memory: Memory) -> None:
    invoke, awaited = framework(memory, "ana", top_k=2, strategy="v2")
    # The second time it is answered from memory, where products are added up in another order than in the index.
    _, recalled = (memory.recall(QUESTION, space="ana", top_k=2, strategy="v2") for _ in range(2))
    expected = [
        (hit.node_id, hit.text, {"space": "ana", "turn_ids": [*hit.turn_ids], "score": hit.score,
                                 "signals": {**hit.signals}, "strategy": "v2"})
        for hit in recalled
    ]  # fmt: skip
    for found in (invoke(QUESTION), asyncio.run(awaited(QUESTION))):
        assert [(name, text, {key: held[key] for key in each}) for (name, text, held), (_, _, each)
                in zip(found, expected, strict=True)] == expected  # fmt: skip
        assert json.loads(json.dumps(found[0][2])) == found[0][2]


@FRAMEWORKS
def test_a_filter_and_a_confidence_reach_the_memory(framework: Any, memory: Memory) -> None:
    memory.add(
        space="ana", session="s2", speaker="Ana", text="Then I bought a green bike.", metadata={"project": "bikes"}
    )
    invoke, awaited = framework(memory, "ana", filter={"project": {"$exists": True}})
    for found in (invoke(QUESTION), asyncio.run(awaited(QUESTION))):
        assert {text.removeprefix("Ana: ") for _, text, _ in found} == {"Then I bought a green bike."}
    assert framework(memory, "ana", min_confidence=1.0)[0](QUESTION) == []


@FRAMEWORKS
def test_all_spaces_of_a_user_are_asked_together_and_ids_tell_them_apart(framework: Any, memory: Memory) -> None:
    for space in ("chat 1", "chat 2"):
        said = {"session": "s1", "speaker": "Bo", "text": "I sold the red boat.", "spoken_at": "2024-05-01T10:00"}
        memory.add(space=space, user="bo", **said)
    invoke, _ = framework(memory, user="bo", fold=None)
    found = invoke("Who sold a boat?")
    assert {metadata["space"] for _, _, metadata in found} == {"chat 1", "chat 2"}
    assert len({name for name, _, _ in found}) == len(found)
    invoke, _ = framework(memory)
    with pytest.raises(LocigraphError, match="no space is named"):
        invoke("Who sold a boat?")


@FRAMEWORKS
def test_a_note_reaches_the_metadata_and_an_error_the_caller(framework: Any, place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory.add(space="ana", session="s1", speaker="Ana", text=SOLD)
        invoke, _ = framework(memory, "ana")
        (_, text, metadata), *_ = invoke(QUESTION)
        assert (text, metadata["strategy"]) == (f"Ana: {SOLD}", "v1")
        assert metadata["notes"] == ["v1 answered, since v2 cannot be used: no checkpoint is named"]
        invoke, _ = framework(memory, "anna")
        with pytest.raises(UnknownSpaceError, match="nearest is 'ana'"):
            invoke(QUESTION)


@FRAMEWORKS
def test_that_turns_are_missing_is_logged_though_nothing_is_found(
    framework: Any, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = make_turn(0, SOLD, space=SpaceId("ana"))
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory._graph.append_turns([said])  # and nothing consolidates it
        invoke, awaited = framework(memory, "ana")
        for ask in (invoke, lambda question: asyncio.run(awaited(question))):
            caplog.clear()
            assert ask(QUESTION) == []
            assert any("1 is not consolidated yet" in message for message in caplog.messages), caplog.messages


@FRAMEWORKS
def test_an_async_memory_answers_coroutines_alone(framework: Any, place: Path) -> None:
    async def ask() -> Found:
        async with AsyncMemory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
            await memory.add(space="ana", session="s1", speaker="Ana", text=SOLD)
            invoke, awaited = framework(memory, "ana")
            with pytest.raises(LocigraphError, match="await ainvoke"):
                invoke(QUESTION)
            found: Awaitable[Found] = awaited(QUESTION)
            return await found

    ((_, text, metadata),) = asyncio.run(ask())
    assert (text, metadata["strategy"]) == (f"Ana: {SOLD}", "v2")
