from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from locigraph.consolidation import merging
from locigraph.consolidation.blueprint import Blueprint, Mention, Topic
from locigraph.consolidation.merging import Match, Merged, Merger, same_names
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.protocols import Context
from locigraph.consolidation.resolution import spelling_key
from locigraph.kg.errors import UnknownNodeError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NewRelation, Node, NodeId, NodeStatus, NodeUpdate, SpaceId, Turn, TurnId
from tests.databases import Place
from tests.fakes import MONDAY, OTHER_SPACE, SPACE, FakeContext, FakeEncoder, FakeExtractor, make_turns
from tests.kg.dumps import dump


class Meanings(FakeEncoder):
    """A bag of words in which some words mean others."""

    def __init__(self, meant: Mapping[str, str]) -> None:
        super().__init__(512)
        self._meant = dict(meant)

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        return super().encode([" ".join(self._meant.get(word, word) for word in text.split()) for text in texts])


ENCODER = Meanings({"hiking": "hike", "Ann": "Ben", "ship": "boat", "张伟": "张敏", "Иван": "Пётр"})


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def build(store: Store, names: Sequence[str], space: SpaceId = SPACE, kinds: Mapping[str, str] = {}) -> None:
    """A turn of each name, which mentions it."""

    def plan(turn: Turn, context: Context) -> Blueprint:
        return Blueprint((), (Mention(turn.text, kinds.get(turn.text, "other")),))

    store.append_turns(make_turns(names, space=space))
    Consolidator(store, FakeExtractor(plan), ENCODER, FakeContext()).run(space)


def mentions(store: Store, space: SpaceId = SPACE) -> dict[str, list[str]]:
    """The turns that mention each active entity, by its label."""
    nodes = {node.id: node for node in store.nodes(space)}
    found: dict[str, list[str]] = {node.label: [] for node in nodes.values() if node.type == "entity"}
    for edge in store.relations(space):
        if edge.label == "MENTIONS" and edge.target in nodes:
            found[nodes[edge.target].label].append(nodes[edge.source].provenance[0])
    return found


def archived(store: Store) -> list[Node]:
    active = {node.id for node in store.nodes(SPACE)}
    return [node for node in store.nodes(SPACE, include_archived=True) if node.id not in active]


def test_spellings_and_meanings_become_one_and_the_oldest_stays(store: Store) -> None:
    build(store, ["red boat", "hike", "red boats", "hiking", "harbour"])
    assert Merger(store, ENCODER).run(SPACE) == Merged(merged=2)
    assert mentions(store) == {"red boat": ["t0", "t2"], "hike": ["t1", "t3"], "harbour": ["t4"]}
    assert {node.label: node.provenance for node in store.nodes(SPACE, types=["entity"])}["hike"] == ("t1", "t3")


def test_each_merge_leaves_a_record_of_what_why_and_how_near(store: Store) -> None:
    build(store, ["red boat", "hike", "red boats", "hiking"])
    Merger(store, ENCODER).run(SPACE)
    ids = {node.label: node.id for node in store.nodes(SPACE)}
    assert [(n.label, n.attributes["merged_into"], n.attributes["merged_by"]) for n in archived(store)] == [
        ("red boats", ids["red boat"], "spelling"), ("hiking", ids["hike"], "meaning"),
    ]  # fmt: skip
    near = {edge.source: (edge.target, edge.weight) for edge in store.relations(SPACE) if edge.label == "SIMILAR_TO"}
    target, cosine = near[archived(store)[1].id]
    assert (target, round(cosine, 5)) == (ids["hike"], 1)


def test_names_of_different_persons_places_or_numbers_stay_apart_however_near(store: Store) -> None:
    build(store, ["house of Ann", "house of Ben"])
    assert Merger(store, ENCODER).run(SPACE) == Merged()


def test_running_again_changes_nothing_and_taking_the_same_turns_in_again_adds_nothing(
    store: Store, store_at: Place
) -> None:
    names = ["red boat", "hike", "red boats", "hiking"]
    build(store, names)
    Merger(store, ENCODER).run(SPACE)
    rows = dump(store_at())
    assert Merger(store, ENCODER).run(SPACE) == Merged()
    build(store, names)
    assert dump(store_at()) == rows


@pytest.mark.parametrize("names", [["张伟", "张敏"], ["Иван", "Пётр"]])
def test_names_in_any_script_are_those_of_different_people(store: Store, names: list[str]) -> None:
    build(store, names)
    assert Merger(store, ENCODER).run(SPACE) == Merged()


def test_a_person_is_no_product_of_a_like_spelling(store: Store) -> None:
    build(store, ["Jean", "jeans"], kinds={"Jean": "person", "jeans": "product"})
    assert Merger(store, ENCODER).run(SPACE) == Merged()


def test_edges_that_a_merged_node_got_later_are_copied_to_the_one_that_stays_by_the_next_run(
    store: Store, store_at: Place
) -> None:
    build(store, ["hike", "hiking", "boat", "boats", "harbour"])
    Merger(store, ENCODER).run(SPACE)
    aliases = {node.label: node.id for node in archived(store)}
    (harbour,) = (edge.source for edge in store.relations(SPACE) if edge.target.endswith("_harbour"))
    late = (
        NewRelation(harbour, "MENTIONS", aliases["hiking"]),
        NewRelation(aliases["hiking"], "CAUSES", aliases["boats"]),
    )
    source = NodeUpdate(aliases["hiking"], add_provenance=(TurnId("t4"),))
    store.commit(GraphChange(SPACE, MONDAY, updates=(source,), relations=late))
    done = Merger(store, ENCODER).run(SPACE)
    assert (done, str(done)) == (Merged(completed=2), "0 nodes merged, late edges of 2 merged nodes copied")
    assert mentions(store) == {"hike": ["t0", "t1", "t4"], "boat": ["t2", "t3"], "harbour": ["t4"]}
    kept = {node.label: node for node in store.nodes(SPACE, types=["entity"])}
    assert kept["hike"].provenance == ("t0", "t1", "t4")
    assert (kept["hike"].id, kept["boat"].id) in {
        (edge.source, edge.target) for edge in store.relations(SPACE) if edge.label == "CAUSES"
    }
    rows = dump(store_at())
    assert Merger(store, ENCODER).run(SPACE) == Merged()
    assert dump(store_at()) == rows


def test_edges_that_a_node_gets_while_it_is_merged_are_copied_by_the_same_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(store, ["hike", "hiking"])

    def meanwhile(seen: Snapshot, threshold: float, kinds: Mapping[NodeId, str]) -> list[Match]:
        if not archived(store):
            build(store, ["hike", "hiking", "hiking"])
        return same_names(seen, threshold, {})

    monkeypatch.setattr(merging, "same_names", meanwhile)
    assert Merger(store, ENCODER).run(SPACE) == Merged(merged=1, completed=1)
    assert mentions(store) == {"hike": ["t0", "t1", "t2"]}


def test_a_later_turn_finds_the_one_that_stays_by_its_alias(store: Store) -> None:
    build(store, ["hike", "hiking"])
    Merger(store, ENCODER).run(SPACE)
    build(store, ["hike", "hiking", "The Hiking"])
    assert mentions(store) == {"hike": ["t0", "t1", "t2"]}


def test_an_alias_comes_back_when_the_one_that_stayed_is_forgotten(store: Store) -> None:
    build(store, ["boat", "ship"])
    Merger(store, ENCODER).run(SPACE)
    store.forget(SPACE, [TurnId("t0")])
    assert mentions(store) == {"ship": ["t1"]}
    assert store.nodes(SPACE, types=["entity"])[0].status == NodeStatus.ACTIVE
    assert "boat" not in json.dumps(dump(store.url), default=str)
    build(store, ["boat", "ship", "The Ship"])  # a turn that names it is consolidated as ever
    assert mentions(store) == {"ship": ["t1", "t2"]}


def test_forgetting_in_one_space_leaves_the_aliases_of_another_that_has_the_same_ids(store: Store) -> None:
    for space in (SPACE, OTHER_SPACE):
        build(store, ["boat", "ship"], space=space)
        Merger(store, ENCODER).run(space)
    before = store.nodes(OTHER_SPACE, include_archived=True)
    assert {node.id for node in before} == {node.id for node in store.nodes(SPACE, include_archived=True)}
    store.forget(SPACE, [TurnId("t0")])
    assert store.nodes(OTHER_SPACE, include_archived=True) == before
    build(store, ["boat", "ship", "The Ship"], space=OTHER_SPACE)
    assert mentions(store, OTHER_SPACE) == {"boat": ["t0", "t1", "t2"]}


def test_what_was_erased_while_a_merge_runs_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    build(store, ["boat", "ship"])

    def erased(seen: Snapshot, threshold: float, kinds: Mapping[NodeId, str]) -> list[Match]:
        found = same_names(seen, threshold, {})
        store.forget(SPACE, [TurnId("t1")])
        return found

    monkeypatch.setattr(merging, "same_names", erased)
    with pytest.raises(UnknownNodeError, match="ship"):
        Merger(store, ENCODER).run(SPACE)


def test_an_alias_of_an_alias_means_the_one_that_stays(store: Store) -> None:
    build(store, ["hike", "hiking"])
    Merger(store, ENCODER).run(SPACE)
    build(store, ["hike", "hiking", "boat"])
    by_label = {node.label: node for node in store.nodes(SPACE, types=["entity"])}
    marks = {"merged_into": by_label["boat"].id, "merged_by": "meaning"}
    archived_too = NodeUpdate(by_label["hike"].id, status=NodeStatus.ARCHIVED, attributes=marks)
    store.commit(GraphChange(SPACE, MONDAY, updates=(archived_too,)))
    build(store, ["hike", "hiking", "boat", "The Hiking"])
    assert mentions(store)["boat"] == ["t2", "t3"]


def test_a_forgotten_alias_leaves_no_words_at_the_one_that_stays(store: Store) -> None:
    build(store, ["hike", "hiking"])
    Merger(store, ENCODER).run(SPACE)
    store.forget(SPACE, [TurnId("t1")])
    assert mentions(store) == {"hike": ["t0"]}
    assert "hiking" not in json.dumps(dump(store.url), default=str)


def test_the_past_shows_the_merged_graph_too(store: Store) -> None:
    build(store, ["hike", "hiking", "harbour"])
    Merger(store, ENCODER).run(SPACE)
    time = make_turns(["a", "b"])[1].spoken_at
    assert [node.label for node in store.nodes(SPACE, types=["entity"], as_of=time)] == ["hike"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("boat", "boats"), ("story", "the stories"), ("class", "classes"), ("Ann's box", "Ann's boxes"), ("bus", "bus")],
)
def test_case_article_and_plural_do_not_tell_names_apart(one: str, other: str) -> None:
    assert spelling_key(one) == spelling_key(other)


@pytest.mark.parametrize(
    ("one", "other"), [("glass", "gla"), ("paint", "painting"), ("analysis", "analysi"), ("Robert", "Roberts")]
)
def test_other_endings_do(one: str, other: str) -> None:
    assert spelling_key(one) != spelling_key(other)


def build_topics(store: Store, topics: Sequence[str]) -> None:
    """A turn of each topic, which speaks of it."""
    extractor = FakeExtractor(lambda turn, context: Blueprint(topics=(Topic(turn.text, turn.text),)))
    store.append_turns(make_turns(topics))
    Consolidator(store, extractor, ENCODER, FakeContext()).run(SPACE)


def topics_of(store: Store) -> dict[str, list[str]]:
    """The turns that speak of each active topic, by its label."""
    nodes = {node.id: node for node in store.nodes(SPACE)}
    found: dict[str, list[str]] = {node.label: [] for node in nodes.values() if node.type == "concept"}
    for edge in store.relations(SPACE):
        if edge.label == "HAS_CONCEPT" and edge.target in nodes:
            found[nodes[edge.target].label].append(nodes[edge.source].provenance[0])
    return found


def test_a_topic_that_a_build_takes_for_another_leaves_a_record_of_what_why_and_how_near(store: Store) -> None:
    build_topics(store, ["red boat", "red ship", "red ships", "red boats"])
    assert topics_of(store) == {"red_boat": ["t0", "t1", "t2", "t3"]}
    kept = next(node for node in store.nodes(SPACE, types=["concept"]))
    assert [(n.label, n.attributes, n.provenance) for n in archived(store)] == [
        ("red_ship", {"merged_into": kept.id, "merged_by": "consolidation"}, ("t1",)),
    ]  # spellings of one name leave none
    near = [(e.target, round(e.weight, 5)) for e in store.relations(SPACE) if e.label == "SIMILAR_TO"]
    assert near == [(kept.id, 1)]
    assert kept.provenance == ("t0", "t1", "t2", "t3")


def test_a_topic_that_a_build_took_for_a_forgotten_one_is_the_topic_of_its_turn_again(store: Store) -> None:
    build_topics(store, ["red boat", "red ship"])
    store.forget(SPACE, [TurnId("t0")])
    assert topics_of(store) == {"red_ship": ["t1"]}
    assert "boat" not in json.dumps(dump(store.url), default=str)


def test_a_forgotten_turn_takes_its_record_of_a_topic_along(store: Store) -> None:
    build_topics(store, ["red boat", "red ship"])
    store.forget(SPACE, [TurnId("t1")])
    assert topics_of(store) == {"red_boat": ["t0"]}
    assert not archived(store)
    assert "ship" not in json.dumps(dump(store.url), default=str)


@pytest.mark.sqlite
def test_a_build_that_goes_on_later_merges_topics_as_one_that_never_stopped(store: Store, tmp_path: Path) -> None:
    topics = ["red boat", "red ship", "blue house", "ship red"]
    for count in range(1, len(topics) + 1):
        build_topics(store, topics[:count])
    with Store(tmp_path / "whole.sqlite") as whole:
        build_topics(whole, topics)
        assert topics_of(store) == topics_of(whole) == {"red_boat": ["t0", "t1", "t3"], "blue_house": ["t2"]}
        assert archived(store) == archived(whole)
