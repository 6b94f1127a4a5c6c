"""What the rules keep of turns in languages whose grammar they do not know."""

from __future__ import annotations

import pytest

from locigraph.consolidation.blueprint import AddNode, Blueprint
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Context
from tests.fakes import make_turn


def planned(text: str) -> Blueprint:
    return RuleExtractor().plan(make_turn(0, text), Context((), ()))


def kept(text: str) -> list[tuple[str, str]]:
    return [(each.type, each.draft) for each in planned(text).operations if isinstance(each, AddNode)]


def test_statements_are_kept_as_they_were_said_with_their_speaker_and_questions_are_not() -> None:
    said = "Ich habe letzten Samstag mit Lukas das neue Regal aufgebaut. Hat dir die Wohnung gefallen? Danke!"
    assert kept(said) == [("event_node", "Ann: Ich habe letzten Samstag mit Lukas das neue Regal aufgebaut.")]
    assert kept("La clé de la cave est chez notre voisine.") == [
        ("knowledge_node", "Ann: La clé de la cave est chez notre voisine.")
    ]
    assert kept("自転車は駅の裏に置いてあります。鍵は誰が持っていますか？") == [
        ("knowledge_node", "Ann: 自転車は駅の裏に置いてあります。")
    ]


def test_of_a_long_turn_only_statements_with_a_time_are_kept() -> None:
    filler = "Der Ofen steht im Keller neben der alten Werkbank. " * 14
    assert kept(f"{filler}Der Termin ist am 14. März 2024.") == [
        ("event_node", "Ann: Der Termin ist am 14. März 2024.")
    ]


def test_what_is_quoted_is_not_kept() -> None:
    assert kept("> Der Ofen steht im Keller neben der Werkbank.") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Ich war mit Lukas in Hamburg, und die Alte Brücke am Fluss war gesperrt.", ["Ann", "Lukas", "Hamburg"]),
        ("J'ai vu Marie à Lyon samedi, et en Mars nous partons.", ["Ann", "Marie", "Lyon"]),
        ("El perro de Lucía duerme en casa.", ["Ann", "Lucía"]),
    ],
)
def test_names_are_told_by_their_capital_letters_and_german_nouns_by_what_stands_before_them(
    text: str, names: list[str]
) -> None:
    assert [mention.name for mention in planned(text).mentions] == names


def test_topics_end_at_the_function_words_of_the_language() -> None:
    plan = planned("Wir haben den neuen Gartenzaun mit der Nachbarin gestrichen.")
    assert [topic.description for topic in plan.topics] == ["neuen gartenzaun", "nachbarin gestrichen"]
    assert planned("自転車は駅の裏に置いてあります。").topics == ()
