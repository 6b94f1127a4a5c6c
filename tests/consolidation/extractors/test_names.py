from __future__ import annotations

from locigraph.consolidation.blueprint import Mention
from locigraph.consolidation.extractors.names import capitalised_names


def test_capitals_inside_a_sentence_are_names_once_each() -> None:
    found = capitalised_names("I met Carla's friend at the Blue Harbour. Then Carla came, I'm sure, in June")
    assert list(found) == [Mention("Carla", "other"), Mention("Blue Harbour", "other")]
