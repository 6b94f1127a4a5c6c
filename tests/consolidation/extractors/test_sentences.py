from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.consolidation.extractors.sentences import in_third_person, phrases, sentences, unquoted


def test_sentences_end_at_marks_and_lines() -> None:
    assert sentences("Hi! I sail.  Do you?\n\nYes ") == ["Hi!", "I sail.", "Do you?", "Yes"]
    assert sentences("  \n ") == []
    assert sentences("No. I met Dr. Who.") == ["No.", "I met Dr. Who."]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I'm at my boat", "Ann is at Ann's boat"),
        ("I’m tired and I’ve slept", "Ann is tired and Ann has slept"),
        ("Give me mine, I'd say", "Give Ann Ann's, Ann would say"),
        ("Boats are fine", "Ann: Boats are fine"),
        ("My MP3 is in India", "Ann's MP3 is in India"),
        ("I read of World War I and type I diabetes", "Ann read of World War I and type I diabetes"),
        (
            "I'd already sold it, I'd visited her, and I'd need it",
            "Ann had already sold it, Ann had visited her, and Ann would need it",
        ),
        ("Announcements bore us", "Ann: Announcements bore us"),
        ("I saw a salt mine and a friend of mine", "Ann saw a salt mine and a friend of Ann's"),
        ("Mine is red. Mine shafts scare me", "Ann's is red. Mine shafts scare Ann"),
        ("I fixed the I/O error on the I-95 in phase I", "Ann fixed the I/O error on the I-95 in phase I"),
        ("I'd told him, I'd never say so", "Ann had told him, Ann would never say so"),
        ("I'd better go", "Ann had better go"),
        ("I live in Rome, and I carry a map", "Ann lives in Rome, and Ann carries a map"),
        ("I do not eat fish, I don’t like it", "Ann does not eat fish, Ann doesn’t like it"),
        ("I really, really love it; I never watch TV", "Ann really, really loves it; Ann never watches TV"),
        ("Did I mention that I go there?", "Did Ann mention that Ann goes there?"),
        ("I just put it there and I can swim", "Ann just put it there and Ann can swim"),
        ("Act I bored me", "Act I bored Ann"),
        ("I finished the book I bought", "Ann finished the book Ann bought"),
        ("The scene I want", "The scene Ann wants"),
        ("Oh my sister came", "Oh Ann's sister came"),
        ("Oh my god, I fell", "Oh my god, Ann fell"),
    ],
)
def test_the_first_person_becomes_the_speaker(said: str, told: str) -> None:
    assert in_third_person(said, "Ann") == told


def test_a_quotation_may_end_in_a_later_sentence_and_leaves_what_is_around_it() -> None:
    told = ["He said “I sail.", "I row” and", "I laughed."]
    assert [own for _, own in unquoted(told)] == ["He said         ", "       and", "I laughed."]
    assert list(unquoted(["It's Ann's."])) == [("It's Ann's.", "It's Ann's.")]


@given(st.text(min_size=1, max_size=10).filter(lambda name: name.strip()))
def test_any_name_may_speak(name: str) -> None:
    assert name in in_third_person("Boats please me", name)


def test_a_name_with_backslashes_is_taken_as_it_is() -> None:
    assert in_third_person("I sail", r"A\1\g") == r"A\1\g sail"


def test_phrases_are_runs_of_two_to_four_content_words_without_repetition() -> None:
    text = "The old wooden boat, the old wooden boat and a very fast red racing bicycle club meeting."
    assert phrases(text) == ["old wooden boat"]  # the second run has six words
    assert phrases("Ann likes wooden boats", exclude=frozenset({"ann"})) == ["likes wooden boats"]
    assert phrases("wooden") == []


def test_a_name_made_of_the_words_of_the_first_person_is_put_in_once() -> None:
    name = "I my me"
    assert in_third_person("I gave my boat", name) == "I my me gave I my me's boat"
    assert len(in_third_person("I " * 1_000, "I my me " * 30)) < 300_000


def test_a_verb_in_y_agrees_by_the_letter_before_it() -> None:
    assert in_third_person("I study and I pay, and I buy tea", "Ann") == "Ann studies and Ann pays, and Ann buys tea"


def test_inches_are_no_quotation() -> None:
    told = [own for _, own in unquoted(['I bought a 27" monitor.', "I live in Rome."])]
    assert told == ["I bought a 27  monitor.", "I live in Rome."]
    quoted = [own.split() for _, own in unquoted(['He said "call at 5".', "I do."])]
    assert quoted == [["He", "said", "."], ["I", "do."]]
