from __future__ import annotations

from pathlib import Path

from locigraph.kg import schema
from locigraph.kg.schema import NODE_TYPES, RELATION_LABELS, SEARCHABLE_TYPES, schema_hash
from locigraph.kg.store import Store


def test_every_parent_is_a_type_that_stands_before_its_child() -> None:
    seen: set[str] = set()
    for node_type in NODE_TYPES:
        assert node_type.parent is None or node_type.parent in seen
        assert node_type.name not in seen
        assert node_type.description
        seen.add(node_type.name)


def test_every_built_in_relation_is_its_own_family_and_described() -> None:
    assert len({label.name for label in RELATION_LABELS}) == len(RELATION_LABELS)
    for label in RELATION_LABELS:
        assert label.family == label.name
        assert label.kind in ("structural", "semantic")
        assert label.description


def test_a_search_returns_statements_and_never_structure() -> None:
    assert set(SEARCHABLE_TYPES) <= {t.name for t in NODE_TYPES}
    assert set(SEARCHABLE_TYPES).isdisjoint({"concept", "entity", "event_category", "knowledge_category"})


def test_the_hash_is_twelve_hexadecimal_digits_and_stable() -> None:
    assert schema_hash() == schema_hash()
    assert len(schema_hash()) == 12
    int(schema_hash(), 16)


def test_a_new_store_holds_the_built_in_rows(tmp_path: Path) -> None:
    with Store(tmp_path / "graph.sqlite") as store:
        assert store.node_types() == {t.name: t.parent for t in NODE_TYPES}
        assert store.relation_labels() == {label.name: label for label in RELATION_LABELS}
    assert schema.COINED_FAMILY in {label.name for label in RELATION_LABELS}
