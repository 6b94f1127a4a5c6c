from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locigraph.consolidation.blueprint import (
    AddNode,
    Blueprint,
    ContextNode,
    Mention,
    SupersedeNode,
    UpdateNode,
    check_blueprint,
    check_wording,
)
from locigraph.consolidation.dating import days_of
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Context
from locigraph.kg.language.dated_texts import dated
from locigraph.kg.types import NodeId
from tests.fakes import make_turn

RULES = RuleExtractor()
NOTHING = Context((), ())


def drafts(text: str) -> list[tuple[str, str]]:
    plan = RULES.plan(make_turn(0, text), NOTHING)
    return [(op.type, op.draft) for op in plan.operations if isinstance(op, AddNode)]


def test_a_statement_of_the_speaker_becomes_a_fact_and_a_dated_one_an_event() -> None:
    assert drafts("Hello! I repair old boats. I sold my red bicycle yesterday. Do I sail old boats?") == [
        ("knowledge_node", "Ann repair old boats."),
        ("event_node", "Ann sold Ann's red bicycle yesterday."),
    ]


def test_small_talk_is_not_remembered() -> None:
    assert drafts("Hello! How nice. Thanks a lot!") == []


def test_what_is_said_again_is_an_update_and_not_a_second_fact() -> None:
    held = ContextNode(NodeId("held"), "knowledge_node", "Ann repairs old boats")
    plan = RULES.plan(make_turn(0, "I repair old boats. I am really repairing the old boats."), Context((held,), ()))
    assert plan.operations == (UpdateNode(NodeId("held")),)


def told_after(first: str, second: str) -> list[str]:
    """The facts of a second turn, where the context holds those of the first turn."""
    said = make_turn(0, first)
    held = [
        ContextNode(NodeId(f"held{i}"), op.type, dated(op.draft, days_of(op.draft, said, None)))
        for i, op in enumerate(RULES.plan(said, NOTHING).operations)
        if isinstance(op, AddNode)
    ]
    assert held
    plan = RULES.plan(make_turn(2, second), Context(tuple(held), ()))
    return [op.draft for op in plan.operations if isinstance(op, AddNode)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I repair old boats.", "I don't repair old boats."),
        ("I repair old boats.", "I can’t repair old boats."),
        ("I play tennis with Tom.", "I stopped playing tennis with Tom."),
        ("I take my blood pressure pill before breakfast.", "I take my blood pressure pill after breakfast."),
        ("I heard that Tom owes Clara money.", "I heard that Clara owes Tom money."),
        ("My daughter Mia may eat no peanuts and shellfish.", "My daughter Mia may eat no walnuts and shellfish."),
        ("I prefer C++ for writing games.", "I prefer C# for writing games."),
        ("I was a nurse in a large hospital.", "I am a nurse in a large hospital."),
        ("I saw my grandmother Rosa in Leeds on 2 May 2023.", "I saw my grandmother Rosa in Leeds on 20 May 2023."),
    ],
)
def test_what_differs_by_a_word_a_sign_their_order_or_a_day_is_no_repetition(first: str, second: str) -> None:
    assert len(told_after(first, second)) == 1
    assert told_after(first, first) == told_after(second, second) == []


def test_the_same_words_of_another_day_are_another_event() -> None:
    text = "Yesterday I visited my grandmother Rosa in Leeds."
    first, second = (replace(make_turn(0, text), spoken_at=datetime(2024, 5, day, tzinfo=UTC)) for day in (2, 20))
    draft = "Yesterday Ann visited Ann's grandmother Rosa in Leeds."
    held = ContextNode(NodeId("held"), "event_node", dated(draft, days_of(draft, first, None)))
    assert RULES.plan(first, Context((held,), ())).operations == (UpdateNode(NodeId("held")),)
    (added,) = RULES.plan(second, Context((held,), ())).operations
    assert isinstance(added, AddNode)


@pytest.mark.parametrize(("year", "dated"), [(2023, True), (2023, False), (2024, False)])
def test_what_was_superseded_and_is_true_again_is_a_new_fact_that_supersedes(year: int, dated: bool) -> None:
    slots = [{"slot": "Ann:home", "value": value} for value in ("berlin", "munich")]
    left = ContextNode(
        NodeId("berlin"), "knowledge_node", "Ann live in Berlin near the park.", slots[0],
        superseded_at=datetime(year, 5, 1, tzinfo=UTC),
    )  # fmt: skip
    current = ContextNode(NodeId("munich"), "knowledge_node", "Ann moved to Munich for work.", slots[1])
    turn = make_turn(0, "I live in Berlin near the park.", dated=dated)  # one without a time counts as said last
    plan = RULES.plan(turn, Context((left, current), ()))
    assert [type(op) for op in plan.operations] == [AddNode, SupersedeNode]
    assert plan.operations[1] == SupersedeNode(NodeId("munich"), "n0")


def test_a_short_sentence_is_remembered_if_it_fills_a_slot() -> None:
    assert drafts("I moved to Munich!") == [("knowledge_node", "Ann moved to Munich!")]


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ("leipzig", "I moved in June, it was very hot that day."),
        ("munich", "When I moved to Berlin, I knew nobody there."),
        ("munich", "Once I have moved to Lisbon, I will buy a boat."),
        ("munich", "I hope that by spring I have moved to Lisbon with my sister."),
        ("san diego", "I live in San Diego near the beach."),
    ],
)
def test_a_home_ends_by_a_plain_statement_of_another_one_alone(held: str, text: str) -> None:
    node = ContextNode(NodeId("held"), "knowledge_node", "some words", {"slot": "Ann:home", "value": held})
    plan = RULES.plan(make_turn(0, text), Context((node,), ()))
    assert not any(isinstance(op, SupersedeNode) for op in plan.operations)
    moved = RULES.plan(make_turn(0, "I moved to San Francisco for the new job."), Context((node,), ()))
    assert any(isinstance(op, SupersedeNode) for op in moved.operations)


@pytest.mark.parametrize(
    ("slot", "held", "text"),
    [
        ("Ann:work", "nurse", "I work as a nurse on the night shift."),
        ("Ann:work", "nurse", "My job as a mother is hard work."),
        ("Ann:favourite:book", "dune by herbert", "My favourite book is definitely not Twilight."),
        ("Ann:favourite:food", "pizza with olives", "My favourite food is still pizza."),
    ],
)
def test_the_same_value_in_other_words_and_one_that_is_denied_end_no_fact(slot: str, held: str, text: str) -> None:
    node = ContextNode(NodeId("held"), "knowledge_node", "some words", {"slot": slot, "value": held})
    plan = RULES.plan(make_turn(0, text), Context((node,), ()))
    assert any(isinstance(op, AddNode) for op in plan.operations)
    assert not any(isinstance(op, SupersedeNode) for op in plan.operations)


def test_what_is_quoted_keeps_its_first_person() -> None:
    assert drafts('Tom wrote: "I hate my old job." I told him that I like mine.') == [
        ("knowledge_node", 'Tom wrote: "I hate my old job." Ann told him that Ann likes Ann\'s.'),
    ]
    assert drafts("Tom wrote: I quit my job at the mill.") == [
        ("knowledge_node", "Ann: Tom wrote: I quit my job at the mill."),
    ]
    assert drafts("My sister said: I am pregnant.") == [("knowledge_node", "Ann's sister said: I am pregnant.")]
    assert drafts("Tom: I lost my keys again.") == [("knowledge_node", "Ann: Tom: I lost my keys again.")]
    assert drafts("Update: I lost my keys again.") == [("knowledge_node", "Update: Ann lost Ann's keys again.")]
    assert drafts("She told me, I am leaving my husband.") == [
        ("knowledge_node", "She told Ann, I am leaving my husband."),
    ]
    assert drafts("[Forwarded from Ben] I sold my house.") == [
        ("knowledge_node", "Ann: [Forwarded from Ben] I sold my house."),
    ]
    assert drafts("> I live in Berlin near the park.") == []


def test_a_title_does_not_end_a_sentence_and_does_not_hide_a_name() -> None:
    plan = RULES.plan(make_turn(0, "I met Mrs. Robinson and Dr. Smith at 5 p.m. in St. Louis for my visa."), NOTHING)
    assert [op.draft for op in plan.operations if isinstance(op, AddNode)] == [
        "Ann met Mrs. Robinson and Dr. Smith at 5 p.m. in St. Louis for Ann's visa."
    ]
    assert [mention.name for mention in plan.mentions] == ["Ann", "Robinson", "Smith", "St. Louis"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("My team this year:\nAnna\nBen\nClara\n", ["Anna", "Ben", "Clara"]),
        ("Hi Tom\nThanks for the cake", ["Tom"]),
        ("We had lunch with Anna Tuesday", ["Anna"]),
        ("We read Émile Zola and Łukasz", ["Émile Zola", "Łukasz"]),
        ("We met Zoe\u0308 there", ["Zoë"]),
        ("We saw No Way Home in St Louis", ["No Way Home", "St Louis"]),
    ],
)
def test_names_end_with_their_line_and_may_have_any_accents(text: str, names: list[str]) -> None:
    assert [m.name for m in RULES.plan(make_turn(0, text), NOTHING).mentions] == ["Ann", *names]


def test_another_value_supersedes_and_the_same_value_does_not() -> None:
    held = ContextNode(NodeId("held"), "knowledge_node", "some words", {"slot": "Ann:home", "value": "porto"})
    moved = RULES.plan(make_turn(0, "I live in Lisbon these sunny days."), Context((held,), ()))
    assert [op for op in moved.operations if isinstance(op, SupersedeNode)] == [SupersedeNode(NodeId("held"), "n0")]
    stayed = RULES.plan(make_turn(0, "I live in Porto these sunny days."), Context((held,), ()))
    assert not any(isinstance(op, SupersedeNode) for op in stayed.operations)
    other = replace(make_turn(0, "I live in Lisbon these sunny days."), speaker="Ben")
    assert not any(isinstance(op, SupersedeNode) for op in RULES.plan(other, Context((held,), ())).operations)


@pytest.mark.parametrize(
    "text",
    [
        'Ben wrote to me "I live in Lisbon these days" and laughed.',
        "Ben wrote to me “It is warm. I live in Lisbon these days. Come!” and laughed.",
        'Ben told me: "Hello. I live in Lisbon these days',
        "Ben wrote to me 'I live in Lisbon, it's warm these days' and laughed.",
        "Ben said I moved to Lisbon these days.",
        "Ben wrote: I live in Lisbon now and love it.",
        "Ben said, I live in Lisbon now and love it.",
        "Ben: I live in Lisbon now and love it.",
        "Ben wrote to me:\nI live in Lisbon now and love it.",
        "`I live in Lisbon now and love it`",
        "「I live in Lisbon now and love it」",
        "*I live in Lisbon now*, Ben wrote to me.",
        "I never moved to Lisbon with my sister.",
        "I don't think I live in Lisbon these days.",
        "If I moved to Lisbon my sister would laugh.",
        "I used to think: I live in Lisbon these days.",
        "I moved to Lisbon ten years ago with my sister.",
        "I moved to Lisbon in 1998 with my sister.",
        "I wish I live in Lisbon one sunny day.",
        "I dreamt that I moved to Lisbon with my sister.",
        "I'd live in Lisbon these sunny days.",
    ],
)
def test_what_a_speaker_quotes_denies_imagines_or_tells_of_the_past_ends_no_fact(text: str) -> None:
    held = ContextNode(NodeId("held"), "knowledge_node", "some words", {"slot": "Ann:home", "value": "porto"})
    plan = RULES.plan(make_turn(0, text), Context((held,), ()))
    assert any(isinstance(op, AddNode) for op in plan.operations)
    assert not any(isinstance(op, SupersedeNode) for op in plan.operations)
    after = make_turn(0, 'Ben said "how nice" when I moved to Lisbon these days.')
    assert any(isinstance(op, SupersedeNode) for op in RULES.plan(after, Context((held,), ())).operations)


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("I'm living in Lisbon these days", ("Ann:home", "lisbon")),
        ("I have recently moved back to Lisbon with Ben", ("Ann:home", "lisbon")),
        ("Ben was not pleased, but I moved to Lisbon this week", ("Ann:home", "lisbon")),
        ("I now work as a baker at the station", ("Ann:work", "baker")),
        ("So, I started a new job as a financial analyst last week", ("Ann:work", "financial analyst")),
        ("By the way, I've been living in Lisbon for five months", ("Ann:home", "lisbon")),
        ("My new job as a nurse begins today at noon", ("Ann:work", "nurse")),
        ("My favourite colour is now green", ("Ann:favourite:colour", "green")),
        ("My sister's favourite colour is green, she told me", None),
        ("My favourite colour is not green like a frog", None),
        ("My brother met somebody living in Lisbon these days", None),
    ],
)
def test_a_slot_is_filled_by_what_speakers_state_of_themselves(text: str, slot: tuple[str, str] | None) -> None:
    added = [op for op in RULES.plan(make_turn(0, text), NOTHING).operations if isinstance(op, AddNode)]
    assert len(added) == 1
    found = added[0].attributes
    assert (None if "slot" not in found else (found["slot"], found["value"])) == slot


def test_a_value_that_is_corrected_in_the_same_turn_is_no_fact() -> None:
    held = {"slot": "Ann:start time:meet", "value": "8", "speaker": "Ann"}
    known = ContextNode(NodeId("held"), "knowledge_node", "some words", held)
    plan = RULES.plan(make_turn(0, "The meeting is at 9 now. Sorry, the meeting is at 10 now."), Context((known,), ()))
    (added,) = [op for op in plan.operations if isinstance(op, AddNode)]
    assert added.draft == "Ann: Sorry, the meeting is at 10 now."
    assert [op for op in plan.operations if isinstance(op, SupersedeNode)] == [SupersedeNode(NodeId("held"), added.ref)]


def test_a_turn_that_is_added_late_ends_nothing_that_was_said_after_it() -> None:
    turn = make_turn(0, "I live in Lisbon these sunny days.")
    for days, is_ended in ((-1, True), (0, True), (1, False)):
        held = {"slot": "Ann:home", "value": "porto"}
        known_at = turn.recorded_at + timedelta(days=days)
        known = ContextNode(NodeId("held"), "knowledge_node", "some words", held, known_at=known_at)
        plan = RULES.plan(turn, Context((known,), ()))
        assert any(isinstance(op, SupersedeNode) for op in plan.operations) == is_ended


def test_a_late_turn_is_ended_by_the_first_of_those_that_say_otherwise() -> None:
    turn = make_turn(0, "I live in Lisbon these sunny days.")
    told = [("lisbon", 1), ("porto", 2), ("bern", 3), ("rome", -1)]
    known = [
        ContextNode(
            NodeId(value), "knowledge_node", value, {"slot": "Ann:home", "value": value},
            known_at=turn.recorded_at + timedelta(days=days),
        )
        for value, days in told
    ]  # fmt: skip
    plan = RULES.plan(turn, Context(tuple(known[3:]), (), later=tuple(known[:3])))
    ended = [op for op in plan.operations if isinstance(op, SupersedeNode)]
    assert ended == [SupersedeNode(NodeId("rome"), "n0"), SupersedeNode("n0", "porto")]


def test_no_name_of_a_speaker_ends_a_fact_of_another() -> None:
    held = {"slot": "Ann:favourite:home", "value": "the boat", "speaker": "Ann"}
    eve = replace(make_turn(0, "I live in Lisbon these sunny days."), speaker="Ann:favourite")
    plan = RULES.plan(eve, Context((ContextNode(NodeId("held"), "knowledge_node", "some words", held),), ()))
    assert not any(isinstance(op, SupersedeNode) for op in plan.operations)


def test_names_and_phrases_become_mentions_and_topics() -> None:
    plan = RULES.plan(make_turn(0, "I met Carla's friend at the Blue Harbour, with wooden fishing boats."), NOTHING)
    assert [m.name for m in plan.mentions] == ["Ann", "Carla", "Blue Harbour"]
    assert "wooden fishing boats" in [t.label for t in plan.topics]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("We met in May 2023, then June 2023, and on Monday", []),
        ("We met last Saturday, for Monday's talk, in early June", []),
        ("Well, I'm glad, and I've slept, so I'll come, but I’d rather not", []),
        ("We saw June Carter and the Sunday Times", ["June Carter", "Sunday Times"]),
    ],
)
def test_months_days_and_contractions_are_no_names(text: str, names: list[str]) -> None:
    assert [m.name for m in RULES.plan(make_turn(0, text), NOTHING).mentions] == ["Ann", *names]


def test_a_very_long_name_does_not_spoil_the_turn() -> None:
    shouted = "well " + " ".join(["SHOUTING"] * 60) + " " + "x" * 300 + " " + "y" * 300
    turn = make_turn(0, shouted)
    check_blueprint(RULES.plan(turn, NOTHING), turn_id=turn.turn_id, turns={turn.turn_id}, shown=(), labels=())


@settings(max_examples=60)
@given(st.text(max_size=300), st.none() | st.text(max_size=40))
def test_any_turn_gives_a_plan_that_keeps_the_rules_and_the_same_each_time(text: str, caption: str | None) -> None:
    turn = replace(make_turn(0, text), image_caption=caption)
    plan = RULES.plan(turn, NOTHING)
    check_blueprint(plan, turn_id=turn.turn_id, turns={turn.turn_id}, shown=(), labels=())
    check_wording(plan, RULES.write(turn, plan, NOTHING))
    assert RuleExtractor().plan(turn, NOTHING) == plan


def test_the_expected_texts_hold_what_is_embedded() -> None:
    turn = make_turn(0, "I sold my red racing bicycle yesterday.")
    texts = RULES.expected_texts([turn])
    assert texts[0] == "Ann sold Ann's red racing bicycle yesterday. (31 December 2023)"
    plan = RULES.plan(turn, NOTHING)
    assert [*(t.description for t in plan.topics), *(m.name for m in plan.mentions)] == texts[1:]
    assert plan.topics
    assert plan.mentions


def test_what_another_speaker_said_alike_is_a_fact_of_its_own() -> None:
    theirs = ContextNode(
        NodeId("held"), "knowledge_node", "We repair old wooden boats in the blue harbour", {"speaker": "Ben"}
    )
    plan = RULES.plan(make_turn(0, "We repair old wooden boats in the blue harbour"), Context((theirs,), ()))
    assert [type(operation) for operation in plan.operations] == [AddNode]


def test_of_a_turn_whose_language_cannot_be_told_only_the_speaker_is_known() -> None:
    said = "Tlahuiltia nocal nohuian ica xochitl ihuan tlapalli."
    plan = RuleExtractor().plan(make_turn(0, said), Context((), ()))
    assert plan == Blueprint(mentions=(Mention("Ann", "person"),))


#: 625 characters, and nothing of the speaker or the past.
EXPOSITION = "The wide sea lies there. " * 25


def test_an_exposition_has_one_topic_and_any_other_turn_three() -> None:
    many = "I like red wooden boats, blue glass bottles, green metal bridges, old stone towers. "
    assert len(RULES.plan(make_turn(0, many), NOTHING).topics) == 3
    assert len(RULES.plan(make_turn(0, EXPOSITION + many), NOTHING).topics) == 1


def test_of_an_exposition_only_what_the_speaker_tells_is_kept() -> None:
    assert drafts(f"{EXPOSITION}I bought my old wooden canoe.") == [
        ("knowledge_node", "Ann bought Ann's old wooden canoe."),
    ]
    assert drafts("The rent is 950 euros now.") == [("knowledge_node", "Ann: The rent is 950 euros now.")]


@pytest.mark.parametrize(("size", "is_kept"), [(600, True), (601, False)])
def test_a_turn_of_more_than_600_characters_is_an_exposition(size: int, is_kept: bool) -> None:
    text = ("They sold the old harbour bridge today. " + EXPOSITION[: 22 * 25]).ljust(size, ".")
    assert len(text) == size
    assert bool(drafts(text)) == is_kept


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ("Ann was born in Paris and grew up there", "Actually I prefer Rome, not Paris, for our holiday."),
        ("Ann's brother Bob taught Ann to ride a bike", "It's Mia, not Bob, who called me yesterday."),
        ("Ann runs 5 km every Sunday with Mia", "Sorry, I meant 3, not 5, for the eggs in my cake."),
        ("Ann's brother Tom lives in Leeds", "Tom has left. It's now 10 and I'm tired."),
    ],
)
def test_a_correction_of_something_else_ends_no_fact_that_has_the_old_word(fact: str, said: str) -> None:
    held = ContextNode(NodeId("held"), "knowledge_node", fact, {"speaker": "Ann"})
    assert not any(
        isinstance(op, SupersedeNode) for op in RULES.plan(make_turn(0, said), Context((held,), ())).operations
    )


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ("Ann booked a table for Tuesday at Lune", "Sorry, it's Wednesday, not Tuesday."),
        ("Ann's sister is coming on Tuesday", "I checked my mail. Actually it's Wednesday, not Tuesday."),
        ("The dentist gave Ann an appointment for the 9th", "Actually, it's the 14th now, not the 9th."),
        ("Ann's exam is on the 9th", "The 9th is cancelled. It's now Friday."),
        ("Ann meets Bob for lunch", "Sorry, lunch is with Mia, it's Mia, not Bob."),
    ],
)
def test_a_correction_without_other_words_or_with_a_shared_one_ends_the_fact(fact: str, said: str) -> None:
    held = ContextNode(NodeId("held"), "knowledge_node", fact, {"speaker": "Ann"})
    assert any(isinstance(op, SupersedeNode) for op in RULES.plan(make_turn(0, said), Context((held,), ())).operations)


def test_of_a_forwarded_text_nothing_is_taken_for_the_words_of_who_passes_it_on() -> None:
    text = "Forwarded from Tom: I moved to Berlin. I quit my job at Acme and my wife works as a nurse."
    plan = RULES.plan(make_turn(0, text), NOTHING)
    (added,) = (op for op in plan.operations if isinstance(op, AddNode))
    assert added.draft == "Ann: Forwarded from Tom: I moved to Berlin."
    assert "slot" not in added.attributes


def test_two_favourites_of_one_turn_stand_side_by_side_unless_one_corrects_the_other() -> None:
    text = "In book one my favourite hero is Sam. {} my favourite hero is Faramir."
    assert len(drafts(text.format("In book two"))) == 2
    assert len(drafts(text.format("As a waiter"))) == 2
    assert len(drafts(text.format("Sorry,"))) == 1
    assert len(drafts(text.format("And now"))) == 1


def test_what_has_ended_by_a_sentence_is_replaced_by_what_the_next_one_names() -> None:
    held = ContextNode(NodeId("held"), "knowledge_node", "Ann goes to Lune for coffee", {"speaker": "Ann"})
    plan = RULES.plan(make_turn(0, "Lune has closed. It's now Orbit."), Context((held,), ()))
    assert [op.id for op in plan.operations if isinstance(op, SupersedeNode)] == ["held"]
