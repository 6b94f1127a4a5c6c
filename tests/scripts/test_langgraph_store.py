"""The store of LangGraph: its own store in memory is the referee of everything but searches by meaning."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from locigraph import AsyncMemory, Memory
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import rewind
from tests.faults.residue import files_with

base = pytest.importorskip("langgraph.store.base", reason="needs the extra 'langgraph'")
referee = pytest.importorskip("langgraph.store.memory", reason="langgraph is not installed")

ANA, BO = ("memories", "ana"), ("memories", "bo")
TENNIS = {"text": "Ana plays tennis on Saturdays.", "sure": True, "times": 4}


@contextmanager
def opened(place: Path, **options: Any) -> Iterator[Any]:
    from locigraph.langgraph import MemoryStore

    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        yield MemoryStore(memory, **options)


def told(items: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((item.namespace, item.key, repr(item.value)) for item in items)


def test_keys_that_are_equal_times_are_keys_of_their_own(place: Path) -> None:
    first, same = "2024-05-01T10:00:00Z", "2024-05-01T12:00:00+02:00"
    with opened(place) as store:
        store.put(ANA, first, {"text": "Breakfast."})
        store.put(ANA, same, {"text": "Lunch."})
        assert [store.get(ANA, key).value["text"] for key in (first, same)] == ["Breakfast.", "Lunch."]
        store.delete(ANA, "2024-05-01T10:00:00+00:00")
        store.delete(ANA, same)
        assert [item and item.key for item in (store.get(ANA, first), store.get(ANA, same))] == [first, None]


def test_values_that_are_put_in_the_same_second_are_not_consolidated_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewound: list[str] = []
    monkeypatch.setattr(rewind, "remove_nodes_of", lambda connection, space, early: rewound.append(early))
    with opened(place) as store:
        for key in ("m3", "m1", "m2", "m0"):
            store.put(ANA, key, {"text": f"Value {key}."})
        assert told(store.search(ANA)) == [(ANA, f"m{i}", repr({"text": f"Value m{i}."})) for i in range(4)]
    assert rewound == []


def test_a_value_is_found_by_meaning_key_and_fields_and_replaced_and_deleted(place: Path) -> None:
    with opened(place) as store:
        store.put(ANA, "m1", TENNIS)
        store.put(ANA, "m2", {"text": "The harbour opens at nine.", "nested": {"deep": ["Ana rows there."]}})
        store.put(BO, "m1", {"text": "Bo plays tennis, too."})
        first = store.search(ANA, query="Who plays tennis?", limit=1)
        assert [(item.namespace, item.key, item.value) for item in first] == [(ANA, "m1", TENNIS)]
        assert first[0].score is not None
        assert store.search(ANA, query="Who rows there?", limit=1)[0].key == "m2"
        both = store.search(("memories",), query="Who plays tennis?", limit=5)
        assert {(item.namespace, item.key) for item in both} == {(ANA, "m1"), (ANA, "m2"), (BO, "m1")}
        assert store.search(("memories",), query="Who plays tennis?", limit=5, offset=1) == both[1:]
        assert told(store.search(("memories",), query="tennis", filter={"times": {"$gte": 4}})) == told(first)
        made = store.get(ANA, "m1").created_at
        store.put(ANA, "m1", {"text": "Ana plays chess."})
        item = store.get(ANA, "m1")
        assert (item.value, item.created_at) == ({"text": "Ana plays chess."}, made)
        assert item.updated_at > made
        store.delete(ANA, "m1")
        assert store.get(ANA, "m1") is None
    assert files_with(place, "Saturdays", []) == []
    assert files_with(place, "chess", []) == []


def test_a_value_and_a_key_may_be_blank(place: Path) -> None:
    with opened(place) as store:
        store.put(ANA, "k", {"text": " "}, index=["text"])
        store.put(ANA, " ", {})
        assert store.get(ANA, "k").value == {"text": " "}
        assert store.get(ANA, " ").value == {}


def test_what_is_put_without_an_index_is_in_no_search_by_meaning(place: Path) -> None:
    with opened(place) as store:
        store.put(ANA, "m1", TENNIS, index=False)
        store.put(ANA, "m2", {"a": "Ana sings.", "b": "Ana swims."}, index=["b"])
        assert [item.key for item in store.search(ANA, query="tennis")] == ["m2"]
        assert told(store.search(ANA)) == told([store.get(ANA, "m1"), store.get(ANA, "m2")])


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda store: store.put(ANA, "m", {"text": "x" * 9_000}), "metadata"),
        (lambda store: store.search(ANA, filter={"a": [1]}), "filter a is"),
        (lambda store: store.search(ANA, filter={"a": {"$eq": "x" * 300}}), "filter a is"),
        (lambda store: store.search(ANA, query="a", filter={"a": {"$like": 1}}), "like"),
    ],
)
def test_what_a_memory_cannot_keep_or_compare_is_refused(place: Path, act: Callable[[Any], Any], said: str) -> None:
    with opened(place) as store:
        store.put(ANA, "m1", TENNIS)
        with pytest.raises(LocigraphError, match=said):
            act(store)
        assert told(store.search(("memories",))) == told([store.get(ANA, "m1")])


def test_more_lists_and_more_hits_than_a_filter_may_name_are_no_reason_to_refuse(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from locigraph import langgraph

    monkeypatch.setattr(langgraph, "MOST_VALUES", 2)
    with opened(place) as store:
        store.put(ANA, "wide", {f"list{n}": ["boat"] for n in range(70)})
        for n in range(5):
            store.put(ANA, f"m{n}", {"text": f"boat {n}"})
        assert {item.key for item in store.search(ANA, query="boat", limit=10)} == {
            "wide",
            *(f"m{n}" for n in range(5)),
        }


def test_fields_that_cannot_be_compared_are_there_all_the_same(place: Path) -> None:
    expected = referee.InMemoryStore()
    with opened(place) as store:
        for each in (store, expected):
            each.put(ANA, "m1", {"long": "x" * 300, "list": [1], "object": {"a": 1}, "none": None, "short": "y"})
            each.put(ANA, "m2", {"short": "z"})
        for field in ("long", "list", "object", "none", "short"):
            for wanted in (None, {"$ne": "y"}, {"$eq": "y"}, {"$ne": None}):
                found, due = (told(each.search(ANA, filter={field: wanted})) for each in (store, expected))
                assert found == due, (field, wanted)
        assert told(store.search(ANA, query="  ")) == told(expected.search(ANA, query="  "))
        assert store.search(ANA, query="y", limit=0) == []


def test_an_async_memory_serves_coroutines_alone(place: Path) -> None:
    from locigraph.langgraph import MemoryStore

    async def work() -> Any:
        async with AsyncMemory.open(place / "memory.sqlite", checkpoint=None) as memory:
            store = MemoryStore(memory)
            with pytest.raises(LocigraphError, match="only be used in a coroutine"):
                store.get(ANA, "m1")
            await store.aput(ANA, "m1", TENNIS)
            return await store.asearch(ANA, query="tennis")

    assert [item.value for item in asyncio.run(work())] == [TENNIS]


def drawn(randomness: random.Random) -> Any:
    """An operation on a few namespaces and keys."""

    def namespace() -> tuple[str, ...]:
        return tuple(randomness.choice("abc") for _ in range(randomness.randint(1, 3)))

    key, field = randomness.choice(["k1", "k2"]), randomness.choice("abc")
    value = {randomness.choice("abc"): randomness.choice(["yes", "no", 1, 2.5]) for _ in range(2)}
    wanted = {field: randomness.choice(["yes", 1, {"$ne": "yes"}])}
    condition = base.MatchCondition(randomness.choice(["prefix", "suffix"]), randomness.choice([namespace(), ("*",)]))
    return randomness.choice([
        base.PutOp(namespace(), key, value),
        base.PutOp(namespace(), key, randomness.choice([None, value])),
        base.GetOp(namespace(), key),
        base.SearchOp(randomness.choice([(), namespace()]), randomness.choice([None, wanted]), 100),
        base.ListNamespacesOp(randomness.choice([None, (condition,)]), randomness.choice([None, 1, 2])),
    ])  # fmt: skip


def test_an_interrupted_put_leaves_nothing_that_comes_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(place) as store:
        store.put(ANA, "m1", {"text": "Ana rows."})
        with monkeypatch.context() as patch:
            patch.setattr(Memory, "forget", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                store.put(ANA, "m1", {"text": "Ana swims."})
        assert store.get(ANA, "m1").value == {"text": "Ana swims."}
        assert [item.value for item in store.search(ANA, query="Who rows?")] == [{"text": "Ana swims."}]
        store.delete(ANA, "m1")
        assert store.get(ANA, "m1") is None
        assert store.search(("memories",), query="Ana") == []


def test_turns_of_other_kinds_are_no_values_and_a_memory_that_redacts_is_refused(place: Path) -> None:
    from locigraph.langgraph import MemoryStore

    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        store = MemoryStore(memory)
        store.put(ANA, "m1", TENNIS)
        memory.add(space="store:memories.ana", session="s", speaker="Ana", text="I play tennis, too.")
        found = [store.search(ANA), store.search(ANA, query="tennis")]
        assert [[item.key for item in items] for items in found] == [["m1"], ["m1"]]
        assert store.list_namespaces() == [ANA]
    redacting = Memory.open(place / "memory.sqlite", checkpoint=None, redact=True)
    with redacting as memory, pytest.raises(LocigraphError, match="redact=True"):
        MemoryStore(memory).put(ANA, "m2", TENNIS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_it_does_what_the_store_of_langgraph_in_memory_does(place: Path, seed: int) -> None:
    def shown(result: Any) -> Any:
        if isinstance(result, base.Item):
            return told([result])
        return told(result) if isinstance(result, list) and isinstance(next(iter(result), None), base.Item) else result

    randomness, expected = random.Random(seed), referee.InMemoryStore()
    with opened(place) as store:
        for operation in [drawn(randomness) for _ in range(25)]:
            (found,), (wanted,) = store.batch([operation]), expected.batch([operation])
            assert shown(found) == shown(wanted), operation
            for namespace in [each for each, items in expected._data.items() if not items]:
                del expected._data[namespace]  # which it would list, though nothing is there


def test_a_search_goes_on_when_the_last_value_of_a_namespace_is_deleted_meanwhile(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as store:
        store.put(("mem", "ana"), "k", {"text": "I sold the bike."})
        store.put(("mem", "bob"), "k", {"text": "I sold the boat."})
        recall = Memory.recall
        deleted: list[None] = []

        def racing(memory: Memory, *given: Any, **options: Any) -> Any:
            if not deleted:
                deleted.append(store.delete(("mem", "bob"), "k"))
            return recall(memory, *given, **options)

        monkeypatch.setattr(Memory, "recall", racing)
        assert [item.namespace for item in store.search(("mem",), query="Who sold it?")] == [("mem", "ana")]


def test_a_value_that_is_no_json_is_refused_in_words(place: Path) -> None:
    with opened(place) as store, pytest.raises(LocigraphError, match="cannot be written as JSON"):
        store.put(("mem",), "k", {"at": datetime(2024, 5, 1, tzinfo=UTC)})
