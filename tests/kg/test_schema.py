from __future__ import annotations

from pathlib import Path

from locigraph.kg import schema
from locigraph.kg.schema import NODE_TYPES, RELATION_LABELS, NodeType, schema_hash
from locigraph.kg.store import Store
from tests.kg.dumps import dump, shared_labels


def test_every_parent_is_a_type_that_stands_before_its_child() -> None:
    seen: set[str] = set()
    for node_type in NODE_TYPES.values():
        assert node_type.parent is None or node_type.parent in seen
        assert node_type.name not in seen
        assert node_type.description
        seen.add(node_type.name)


def test_every_built_in_relation_is_its_own_family_and_described() -> None:
    for label in RELATION_LABELS.values():
        assert label.family == label.name
        assert label.kind in ("structural", "semantic")
        assert label.description


def test_a_search_returns_statements_and_never_structure() -> None:
    assert set(schema.searchable_types()).isdisjoint({"concept", "entity", "event_category", "knowledge_category"})
    assert set(schema.answer_types()) <= set(schema.searchable_types())


def test_types_that_an_architect_may_make_and_types_with_a_date_of_their_own() -> None:
    assert schema.plannable_types() == ("event_node", "sub_event", "knowledge_node")
    assert schema.dated_types() == ("episode", "event_node", "sub_event")
    assert {row.network for row in NODE_TYPES.values()} <= set(NODE_TYPES)


def test_the_hash_of_the_built_in_rows_is_the_one_that_shipped_checkpoints_carry() -> None:
    assert schema_hash() == "ece77fa2568a"
    NODE_TYPES.add(NodeType("feeling", None, "A mood.", "knowledge_node"))
    assert schema_hash() != "ece77fa2568a"
    NODE_TYPES.remove("feeling")


def test_a_new_store_holds_the_built_in_rows(tmp_path: Path) -> None:
    with Store(tmp_path / "graph.sqlite"):
        pass
    assert shared_labels(tmp_path / "graph.sqlite") == {r.name: r.description for r in RELATION_LABELS.values()}
    held = sorted((t.name, t.parent, t.description) for t in NODE_TYPES.values())
    assert dump(tmp_path / "graph.sqlite")["node_types"] == held
    assert schema.COINED_FAMILY in RELATION_LABELS
