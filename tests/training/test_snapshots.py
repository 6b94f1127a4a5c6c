from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.kg.views import View, Views
from locigraph.training.errors import TrainingDataError
from locigraph.training.snapshots import TrainingSet, graphs_of, questions_fingerprint, train_and_validation_spaces
from tests.fakes import MONDAY, SPACE, make_turns
from tests.fakes_graph import make_snapshot
from tests.training.planted import QUESTIONS, VIEWS

TURNS = make_turns(["one", "two", "three"])


def known(space: SpaceId, as_of: datetime | None) -> Snapshot:
    return make_snapshot([replace(t, space=space) for t in TURNS if as_of is None or t.recorded_at <= as_of])


def question(name: str, asked_at: datetime | None = None, space: SpaceId = SPACE) -> Question:
    return Question(space, name, f"{name}?", "1", (TurnId("t0"),), asked_at=asked_at)


def set_of(*questions: Question, train: tuple[str, ...] = (SPACE,), validation: tuple[str, ...] = ()) -> TrainingSet:
    return TrainingSet(questions, train, validation, Views(known, {SPACE: TURNS[-1].spoken_at}))


def test_each_question_goes_with_the_graph_of_its_time() -> None:
    early = MONDAY + timedelta(minutes=1)
    graphs = graphs_of([set_of(question("a", early), question("b"), question("c", early))])
    held = {graph.name: ([q.question_id for q in graph.questions], graph.snapshot.turn_ids) for graph in graphs}
    assert held == {SPACE: (["b"], ("t0", "t1", "t2")), View(SPACE, early).name: (["a", "c"], ("t0", "t1"))}


def test_a_space_whose_questions_all_look_at_an_earlier_graph_shows_that_alone() -> None:
    early = MONDAY + timedelta(minutes=1)
    assert [graph.name for graph in graphs_of([set_of(question("a", early))])] == [View(SPACE, early).name]
    # Without any question, the present is what a self-supervised stage learns from.
    assert [graph.name for graph in graphs_of([set_of()])] == [SPACE]


def test_a_question_before_the_first_turn_or_about_another_space_is_passed_over() -> None:
    before = question("a", MONDAY - timedelta(days=1))
    graphs = graphs_of([set_of(before, question("b"), question("c", space=SpaceId("elsewhere")))])
    assert [(graph.name, [q.question_id for q in graph.questions]) for graph in graphs] == [(SPACE, ["b"])]


def test_sides_and_names_of_several_corpora_are_told_apart() -> None:
    first = TrainingSet(QUESTIONS, ("planted2", "planted1"), ("planted3",), VIEWS)
    second = TrainingSet(QUESTIONS, ("planted1",), (), VIEWS)
    assert train_and_validation_spaces([first, second]) == (("planted1", "planted2"), ("planted3",))
    graphs = graphs_of([first, second])
    assert [(graph.name, graph.is_training) for graph in graphs] == [
        ("planted1", True), ("planted2", True), ("planted3", False), ("graph 2: planted1", True),
    ]  # fmt: skip


def test_a_space_on_both_sides_is_refused_also_across_corpora() -> None:
    for data in (
        [set_of(validation=(SPACE,))],
        [set_of(), set_of(train=(), validation=(SPACE,))],
    ):
        with pytest.raises(
            TrainingDataError, match=f"space '{SPACE}' is among both the training and the validation spaces"
        ):
            graphs_of(data)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "another?"},
        {"question_id": "another"},
        {"evidence": (TurnId("t1"),)},
        {"asked_at": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
)
def test_the_fingerprint_of_questions_is_of_all_that_is_learnt_from(change: dict[str, Any]) -> None:
    def fingerprint(*questions: Question) -> str:
        return questions_fingerprint(graphs_of([set_of(*questions)]))

    one, two = question("a"), question("b")
    assert fingerprint(one, two) != fingerprint(one)
    assert fingerprint(replace(one, **change), two) != fingerprint(one, two)


def test_the_order_of_the_questions_is_part_of_their_fingerprint_since_it_orders_the_graphs() -> None:
    asked = [question("a", MONDAY), question("b", MONDAY + timedelta(minutes=1)), question("c")]
    first, second = (graphs_of([set_of(*questions)]) for questions in (asked, asked[::-1]))
    assert [graph.name for graph in first] != [graph.name for graph in second]
    assert questions_fingerprint(first) != questions_fingerprint(second)
    assert questions_fingerprint(first) == questions_fingerprint(graphs_of([set_of(*asked)]))
