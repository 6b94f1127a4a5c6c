"""Grades of answers by a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.kg.types import Question, TurnId
from locigraph.research.experiments.answering import grade_of
from tests.consolidation.stub_server import Stub, stub_server
from tests.fakes import SPACE

ASKED = Question(SPACE, "q", "Where?", "c", (TurnId("t0"),), answer="Rome")


@pytest.mark.parametrize("grade", [0.0, 0.5, 1.0])
def test_a_grade_from_nought_to_one_is_taken_at_once(grade: float, tmp_path: Path) -> None:
    def graded(request: dict[str, Any]) -> dict[str, Any]:
        return {"grade": grade}

    with stub_server(Stub(graded)) as stub:
        judge = ChatClient(Endpoint(stub.url, "m"), Cassette(tmp_path / "replies.sqlite"))
        assert grade_of(judge, ASKED, "Oslo") == grade
        assert len(stub.requests) == 1
