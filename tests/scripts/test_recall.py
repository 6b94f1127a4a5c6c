"""What ``locigraph recall`` and ``locigraph explain`` print for programs."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from locigraph import Memory
from locigraph.assembly import options
from locigraph.kg.errors import LocigraphError
from locigraph.scripts.commands.memory.explain import explain
from locigraph.scripts.commands.memory.recall import recall
from locigraph.serving.operations import Answer, Explained


@pytest.mark.parametrize(
    "given", ["2024-05-01T20:30:00-07:00", datetime(2024, 5, 1, 20, 30, tzinfo=timezone(-timedelta(hours=7)))]
)
def test_today_is_the_day_in_utc_as_it_is_for_turns(given: object) -> None:
    asked = options.time_of(given)
    assert asked is not None
    assert asked.date() == date(2024, 5, 2)


@pytest.mark.parametrize(
    "given", [1712041512345, 1712041512.0, np.int64(20240501), "1712041512345", "1712041512345.0", "1712041512345Z"]
)
def test_numbers_are_no_times(given: object) -> None:
    with pytest.raises(LocigraphError, match="is not ISO 8601"):
        options.time_of(given)


@pytest.mark.parametrize("given", [np.datetime64("2024-05-01T10:00"), "20240501T10", date(2024, 5, 1)])
def test_what_reads_as_iso_8601_is_a_time(given: object) -> None:
    asked = options.time_of(given)
    assert asked is not None
    assert asked.date() == date(2024, 5, 1)


def test_json_is_what_a_server_would_answer(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    with Memory.open(store, checkpoint=checkpoint) as memory:
        for text in ("I sold the blue bike to Tom.", "Tom moved to Porto."):
            memory.add(space="ana", session="s1", speaker="Ana", text=text)
        hits = memory.recall("Who bought the blue bike?", space="ana")
        explained = memory.explain("Who bought the blue bike?", space="ana", top_k=1)
    question = "Who bought the blue bike?"
    recall(question, space="ana", store=store, checkpoint=checkpoint, json=True)
    answer = Answer.model_validate_json(capsys.readouterr().out, strict=True, extra="forbid")
    assert [hit.model_dump() for hit in answer.hits] == [hit.as_json() for hit in hits]
    assert (answer.strategy, answer.context) == ("v2", None)
    recall(question, space="ana", store=store, checkpoint=checkpoint, budget_tokens=40, json=True)
    assert "blue bike" in json.loads(capsys.readouterr().out)["context"]
    explain(question, space="ana", store=store, checkpoint=checkpoint, top_k=1, influences=1, json=True)
    found = Explained.model_validate_json(capsys.readouterr().out)
    assert [turn.turn_id for turn in found.turns] == [turn.turn_id for turn in explained]
    assert found.turns[0].score == pytest.approx(explained[0].score)
    assert len(found.turns[0].influences) == 1
    last = hits[-1].turn_ids[0]
    explain(question, space="ana", store=store, checkpoint=checkpoint, turns=last, json=True)
    found = Explained.model_validate_json(capsys.readouterr().out)
    assert [turn.turn_id for turn in found.turns] == [last] != [explained[0].turn_id]
