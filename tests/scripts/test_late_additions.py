"""A late turn of a large space, as a memory in use takes it: every search finds it, and nothing is out of date."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from locigraph import Memory
from locigraph.assembly import graphs, opening
from locigraph.assembly.settings import EncoderSettings
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from tests.fakes_graph import small_checkpoint
from tests.faults.workbench import ADAPTED, AdaptedEncoder

WORDS = ("I sold the boat.", "Really?", "I live in Rome.", "I moved to Oslo.", "Tom bought the oar.", "It is red.")
QUESTIONS = ("Where does Ana live?", "Who bought the oar?")
#: One or two turns at the end of a session, one put at its beginning or after its first turn; its first one forgotten.
STEPS = ("one", "two", "first", "between", "forget")
STRATEGIES = ("v2", "v1", "v1-adapted", "dense-adapted")


def ranked(memory: Memory, question: str, strategy: str) -> list[tuple[str, float]]:
    hits = memory.recall(question, space="ana", strategy=strategy, top_k=20).hits
    return sorted((",".join(hit.turn_ids), round(hit.score, 4)) for hit in hits)


@pytest.mark.long
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(STEPS), st.integers(-90, 90)), max_size=8))
@example(steps=[(2, "first", 0)])
@example(steps=[(2, "one", 180), (2, "one", 120), (2, "between", 60)])
def test_after_late_turns_a_memory_in_use_answers_as_one_that_is_opened_anew(
    steps: list[tuple[int, str, int]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: AdaptedEncoder(place / "cache.sqlite"))
    monkeypatch.setattr(graphs, "_MOST_REDONE", 0)
    small_checkpoint(text_encoder=ADAPTED).save(place / "checkpoint")
    said: dict[int, list[dict[str, Any]]] = {}
    numbers = count()

    def turn(session: int, minutes: int) -> dict[str, Any]:
        number = next(numbers)
        return {
            "space": "ana", "session": f"s{session}", "speaker": "Ana",
            "text": f"{WORDS[number % len(WORDS)]} It was {number}.",
            "turn_id": f"t{number}",
            "spoken_at": datetime(2024, 5, 1, tzinfo=UTC) + timedelta(days=session, minutes=number + minutes),
        }  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        options: dict[str, Any] = {"checkpoint": str(place / "checkpoint"), "encoder": EncoderSettings(adapter="a")}
        with Memory.open(path, **options) as memory:
            for session, step, minutes in [(2, "one", 0), *steps]:
                told = said.setdefault(session, [])
                if step == "forget" and len(told) > 1:
                    memory.forget(space="ana", turn_ids=[told.pop(0)["turn_id"]])
                else:
                    at = {"first": 0, "between": 1}.get(step, len(told))
                    told[at:at] = [turn(session, minutes) for _ in range(2 if step == "two" else 1)]
                    memory.add_many(told)
                held = {(name, asked): ranked(memory, asked, name) for name in STRATEGIES for asked in QUESTIONS}
            everybody = sorted(each["turn_id"] for told in said.values() for each in told)
            assert sorted(each.turn_id for each in memory.turns("ana")) == everybody
            assert sorted(name for name, _ in held["v2", QUESTIONS[0]]) == everybody
            assert memory._parts.require_live().verify([SpaceId("ana")])[0].is_clean
        with Store(path) as store:
            encoder = AdaptedEncoder(place / "cache.sqlite")
            snapshot = store.snapshot(SpaceId("ana"), embedding_model=encoder.model_id)
            due = encoder.encode(snapshot.embedded_texts(turn_before=True))
            np.testing.assert_allclose(snapshot.embeddings, due, atol=1e-6)
        with Memory.open(path, **options) as memory:
            for (name, asked), hits in held.items():
                assert ranked(memory, asked, name) == hits


@pytest.mark.parametrize(("consolidated", "is_rebuilt"), [(32, True), (33, False)])
def test_a_late_turn_has_a_small_space_consolidated_again_and_leaves_a_larger_one_as_it_is(
    consolidated: int, is_rebuilt: bool, place: Path
) -> None:
    day = datetime(2024, 5, 1, tzinfo=UTC)
    turn: dict[str, Any] = {"space": "ana", "session": "s1", "speaker": "Ana"}
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        memory.add_many(
            turn | {"text": f"I sold boat {n}.", "turn_id": f"t{n}", "spoken_at": day} for n in range(consolidated)
        )
        late = turn | {"session": "s0", "text": "I bought an oar.", "spoken_at": day - timedelta(days=1)}
        assert memory.add(**late, turn_id="late") == "late"
        with Store(place / "memory.sqlite") as store:
            assert store.turns(SpaceId("ana"))[0].turn_id == "late"
            # Keys ascend in the order in which nodes are made.
            assert (store.snapshot(SpaceId("ana")).turns_of[0] == ("late",)) is is_rebuilt


def test_what_a_late_turn_ended_has_that_end_in_views_of_the_time_between(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "_MOST_REDONE", 0)
    day = datetime(2024, 5, 1, tzinfo=UTC)
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        for city, after in (("Boston", 0), ("Austin", 9), ("Denver", 5)):
            memory.add(
                space="ana", session=f"s{after}", speaker="Ana", text=f"I live in {city} with my cats.",
                spoken_at=day + timedelta(days=after),
            )  # fmt: skip
        hits = memory.recall("Where does Ana live?", space="ana", as_of=day + timedelta(days=7)).hits
    denver = (day + timedelta(days=5)).date()
    assert {(hit.type, "Boston" in hit.text, hit.until) for hit in hits} == {
        ("episode", True, denver), ("knowledge_node", True, denver), ("episode", False, None),
        ("knowledge_node", False, None),
    }  # fmt: skip
