from __future__ import annotations

import math

import numpy as np
import pytest

from locigraph.consolidation.resolution import (
    CONCEPT_MERGE,
    Resolver,
    concept_key,
    concept_label,
    entity_key,
    full_name,
    spelling_key,
)
from locigraph.kg.types import NodeId

A = np.array([1, 0], dtype=np.float32)


def at_cosine(cosine: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array([cosine, (1 - cosine**2) ** 0.5], dtype=np.float32)


def empty() -> Resolver:
    return Resolver([], np.zeros((0, 2), dtype=np.float32))


def test_spellings_of_one_name_share_a_key() -> None:
    assert (
        entity_key("the Blue  Harbour")
        == entity_key("Blue Harbour's")
        == entity_key("blue harbour’s")
        == "blue harbour"
    )


@pytest.mark.parametrize(
    ("one", "several"),
    [("house", "houses"), ("movie", "movies"), ("party", "parties"), ("box", "boxes"), ("class", "classes"),
     ("horse", "horses"), ("size", "sizes"), ("virus", "viruses"), ("dish", "dishes"), ("nose", "noses"),
     ("iris", "irises"), ("gas", "gases"), ("waltz", "waltzes"), ("topaz", "topazes"), ("trellis", "trellises"),
     ("veggie", "veggies")],
)  # fmt: skip
def test_names_that_differ_in_the_plural_alone_are_spelt_alike(one: str, several: str) -> None:
    assert spelling_key(f"the old {several}") == spelling_key(f"Old {one}")
    assert spelling_key("Roberts") != spelling_key("Robert")


def test_a_short_form_of_one_speaker_means_the_speaker() -> None:
    assert full_name("Mel", ["Melanie", "Ben"]) == "Melanie"
    assert full_name("Me", ["Melanie", "Ben"]) == "Me"  # too short
    assert full_name("Ann", ["Anna", "Annette"]) == "Ann"  # two could be meant
    assert full_name("Carla", ["Anna"]) == "Carla"
    assert full_name("Daniel", ["Daniela", "Ben"]) == "Daniel"  # not short for it
    assert full_name("Melanie", ["Melanie B", "Ben"]) == "Melanie B"


def test_an_entity_is_found_by_any_spelling() -> None:
    resolver = empty()
    resolver.learn(NodeId("e1"), "entity", "Melanie", A)
    assert resolver.entity("melanie's") == "e1"
    assert resolver.entity("Mel") is None


def test_a_concept_is_found_by_its_stems_or_by_its_meaning() -> None:
    resolver = empty()
    resolver.learn(NodeId("c1"), "concept", "old_boats", A)
    far = at_cosine(0.0)
    assert resolver.concept("old boat", far) == ("c1", None)
    found = resolver.concept("vintage ships", at_cosine(CONCEPT_MERGE + 0.01))
    assert found is not None
    assert found[0] == "c1"
    assert found[1] == pytest.approx(CONCEPT_MERGE + 0.01)
    assert resolver.concept("vintage ships", at_cosine(CONCEPT_MERGE - 0.01)) is None


def test_the_nearest_of_many_concepts_is_taken_as_room_grows() -> None:
    resolver = empty()
    for number in range(40):
        resolver.learn(NodeId(f"c{number}"), "concept", f"topic number{number}", at_cosine(number / 40))
    found = resolver.concept("something else", at_cosine(35 / 40))
    assert found is not None
    assert found[0] == "c35"
    assert found[1] == pytest.approx(1.0)


def test_entities_and_concepts_of_one_name_stay_apart() -> None:
    resolver = empty()
    resolver.learn(NodeId("c1"), "concept", "blue harbour", A)
    assert resolver.entity("blue harbour") is None


def test_a_concept_label_has_two_to_five_content_words() -> None:
    assert concept_label("The old, wooden boats!") == "old_wooden_boats"
    assert concept_label("one two red green blue black white grey") == "two_red_green_blue_black"
    assert concept_label("the boats of 2023") is None
    assert concept_key("Old Boats") == concept_key("old boat")


def test_names_of_signs_are_told_apart() -> None:
    assert entity_key("🦊") != entity_key("🐻")
    assert len({entity_key(name) for name in ("C", "C++", "C#", "F#", "F")}) == 5
    assert entity_key("the C++") == entity_key("c++")
    assert entity_key("C and C++") != entity_key("C++ and C++")
    assert entity_key(" 🦊 ") == entity_key("🦊")


def test_a_topic_exactly_as_similar_as_the_threshold_is_the_known_one() -> None:
    resolver = Resolver([], np.zeros((0, 2), dtype=np.float32))
    resolver.learn(NodeId("c"), "concept", "old boats", np.array([1, 0], dtype=np.float32))
    at = np.array([CONCEPT_MERGE, math.sqrt(1 - CONCEPT_MERGE**2)], dtype=np.float32)
    assert resolver.concept("vintage ships", at) is not None
