from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from locigraph.consolidation.blueprint import (
    MAX_MENTIONS,
    MAX_OPERATIONS,
    MAX_TOPICS,
    AddNode,
    AddRelation,
    ArchiveNode,
    Blueprint,
    ContextNode,
    Mention,
    SupersedeNode,
    Topic,
    UpdateNode,
    Wording,
    check_blueprint,
    check_wording,
)
from locigraph.consolidation.errors import BlueprintError, WordingError
from locigraph.kg.types import MAX_DESCRIPTION, MAX_NAME_BYTES, NodeId, TurnId

SHOWN = (ContextNode(NodeId("shown"), "knowledge_node", "a fact"),)
ADD = AddNode("n0", "knowledge_node", "draft", (TurnId("t1"),))
HIDDEN = NodeId("hidden")


def check(*operations: object, **parts: object) -> None:
    plan = Blueprint(operations, **parts)  # type: ignore[arg-type]  # tests pass what they test
    check_blueprint(plan, turn_id=TurnId("t1"), turns={TurnId("t1"), TurnId("t2")}, shown=SHOWN, labels=["CAUSES"])


def test_a_plan_that_keeps_the_rules_passes() -> None:
    check(
        ADD, UpdateNode(NodeId("shown")), SupersedeNode(NodeId("shown"), "n0"), ArchiveNode(NodeId("shown")),
        AddRelation("n0", "CAUSES", "shown"), AddRelation("shown", "CAUSES", "n0"),
        mentions=(Mention("Ann", "person"),), topics=(Topic("old boats", "old boats"),),
    )  # fmt: skip


def test_a_relation_may_name_a_node_that_a_later_operation_adds() -> None:
    check(AddRelation("n0", "CAUSES", "shown"), ADD)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (replace(ADD, type="episode"), r"operation 0 \(AddNode\): type 'episode'; expected one of"),
        (replace(ADD, type="event_category"), "type 'event_category'"),
        (replace(ADD, ref=""), "ref '' is not a new temporary id"),
        (replace(ADD, ref="shown"), "ref 'shown' is not a new temporary id"),
        (replace(ADD, ref="turn:episode"), "ref 'turn:episode' is not a new temporary id"),
        (replace(ADD, turn_ids=(TurnId("t2"),)), "lack the present turn 't1'"),
        (replace(ADD, turn_ids=(TurnId("t1"), TurnId("t9"))), "source 't9' is not a turn of this conversation"),
        (replace(ADD, days=(date(2024, 1, 2), date(2024, 1, 1))), "ends 2024-01-01 before it begins 2024-01-02"),
        (UpdateNode(HIDDEN), "id 'hidden' was not shown"),
        (ArchiveNode(HIDDEN), "id 'hidden' was not shown"),
        (SupersedeNode(HIDDEN, "n0"), "id 'hidden' was not shown"),
        (SupersedeNode(NodeId("shown"), "shown"), "successor 'shown' is not a new node of this plan"),
        (AddRelation("shown", "CAUSE", "shown"), "relation label 'CAUSE' is not in the schema"),
        (AddRelation("hidden", "CAUSES", "shown"), "end 'hidden' is neither a new ref nor an id that was shown"),
    ],
)
def test_a_broken_rule_names_the_operation_and_the_value(operation: object, message: str) -> None:
    with pytest.raises(BlueprintError, match=message):
        check(operation)


def test_one_ref_names_one_node() -> None:
    with pytest.raises(BlueprintError, match=r"operation 1 \(AddNode\): ref 'n0'"):
        check(ADD, ADD)


def test_counts_and_lengths_are_limited() -> None:
    many = [replace(ADD, ref=f"n{i}") for i in range(MAX_OPERATIONS + 1)]
    check(*many[:-1])
    with pytest.raises(BlueprintError, match="1001 operations for one turn; at most 1000"):
        check(*many)
    for parts in (
        {"mentions": (Mention("Ann", "person"),) * (MAX_MENTIONS + 1)},
        {"topics": (Topic("a b", "c"),) * (MAX_TOPICS + 1)},
        {"mentions": (Mention("x" * (MAX_NAME_BYTES + 1), "person"),)},
        {"mentions": (Mention(" ", "person"),)},
        {"topics": (Topic("", "c"),)},
        {"topics": (Topic("a b", "x" * (MAX_DESCRIPTION + 1)),)},
    ):
        with pytest.raises(BlueprintError, match=r"at most|expected 1 to"):
            check(**parts)


def test_words_are_needed_for_new_and_changed_nodes_and_for_nothing_else() -> None:
    plan = Blueprint((ADD, UpdateNode(NodeId("a"), "draft"), UpdateNode(NodeId("b")), ArchiveNode(NodeId("c"))))
    words = Wording("label", "description")
    check_wording(plan, {"n0": words, "a": words})
    with pytest.raises(WordingError, match="no words for 'a'"):
        check_wording(plan, {"n0": words})
    with pytest.raises(WordingError, match="words for 'b', which is not in the plan"):
        check_wording(plan, {"n0": words, "a": words, "b": words})


@pytest.mark.parametrize(
    "words", [Wording("", "d"), Wording("l", " \n"), Wording("x" * 121, "d"), Wording("l", "x" * 2_001)]
)
def test_words_have_a_least_and_a_greatest_length(words: Wording) -> None:
    with pytest.raises(WordingError, match=r"of 'n0' has [\d,]+ characters; expected 1 to"):
        check_wording(Blueprint((ADD,)), {"n0": words})
