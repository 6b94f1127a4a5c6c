from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from locigraph.kg.errors import LocigraphError
from locigraph.kg.types import GraphChange, NewNode, NewRelation, SpaceId, TurnId
from locigraph.memory import Memory, Profile
from locigraph.memory.known_nodes import KnownNodes
from locigraph.memory.profile import profile_of
from locigraph.retrieval.budgets import count_tokens
from locigraph.scripts import cli
from locigraph.serving.keys import Caller
from locigraph.serving.operations import OPERATIONS

SAID = [
    ("ana", "Ana", "I live in Rome with my two cats.", "2024-01-01", "a1"),
    ("ana", "Ana", "I sold my old canoe yesterday.", "2024-02-02", "a2"),
    ("ana", "Ben", "I paint old wooden boats.", "2024-02-03", "b1"),
    ("ana", "Ana", "I moved to Oslo with my two cats.", "2024-03-01", "a3"),
    ("work", "Ana", "I teach chemistry at a night school.", "2024-04-01", "w1"),
]


def remembered(place: Path) -> Memory:
    memory = Memory.open(place / "memory.sqlite", checkpoint=None)
    for space, speaker, text, at, turn in SAID:
        memory.add(space=space, session="s", speaker=speaker, text=text, spoken_at=at, turn_id=turn, user="u")
    return memory


def told(profile: Profile) -> list[tuple[str, str, date | None, tuple[str, ...]]]:
    return [(each.category, each.text, each.day, each.turn_ids) for each in profile]


def test_a_profile_holds_what_holds_now_by_category_the_newest_first(place: Path) -> None:
    with remembered(place) as memory:
        profile = memory.profile(space="ana", speaker="Ana")
        assert told(profile) == [
            ("facts", "Ana moved to Oslo with Ana's two cats.", date(2024, 3, 1), ("a3",)),
            ("events", "Ana sold Ana's old canoe yesterday. (1 February 2024)", date(2024, 2, 1), ("a2",)),
        ]
        assert str(profile).splitlines() == [
            "Ana",
            "facts",
            "- Ana moved to Oslo with Ana's two cats. (2024-03-01, a3)",
            "events",
            "- Ana sold Ana's old canoe yesterday. (1 February 2024) (2024-02-01, a2)",
        ]
        (other,) = memory.profile(space="ana", speaker="Ben")
        assert other.text == "Ben paints old wooden boats."


def test_of_several_spaces_it_is_one_and_of_nobody_in_particular_that_of_whom_most_is_known(
    place: Path,
) -> None:
    with remembered(place) as memory:
        profile = memory.profile(user="u")
        assert profile.speaker == "Ana"
        assert [(each.space, each.turn_ids) for each in profile] == [
            ("work", ("w1",)), ("ana", ("a3",)), ("ana", ("a2",)),
        ]  # fmt: skip


def test_what_is_forgotten_or_expired_is_in_no_profile_and_what_it_had_replaced_is_again(
    place: Path,
) -> None:
    with remembered(place) as memory:
        memory.forget(space="ana", turn_ids=["a3", "a2"])
        memory.add(space="ana", session="s", speaker="Ana", text="My door code is 7719.", expires_at="2024-01-01")
        assert [each.text for each in memory.profile(space="ana", speaker="Ana")] == [
            "Ana lives in Rome with Ana's two cats."
        ]


def test_what_has_expired_replaces_nothing_although_it_is_not_erased_yet(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        common = {"space": "ana", "session": "s", "speaker": "Ana"}
        memory.add(**common, text="June has the spare key.", spoken_at="2024-05-01")
        just_now = datetime.now(UTC)
        memory.add(**common, text="Marta has the spare key now.", spoken_at="2024-06-01", expires_at=just_now)
        assert [each.text for each in memory.profile(space="ana")] == ["Ana: June has the spare key."]
        asked: dict[str, Any] = {"space": "ana", "strategy": "v1", "fold": None}
        for more in ({}, {"as_of": just_now}, {"budget_tokens": 100}, {"budget_tokens": 100, "as_of": just_now}):
            found = memory.recall("Who has the spare key?", **asked, **more)
            assert {hit.until for hit in found} == {None}
            assert "knowledge_node" in {hit.type for hit in found}
            assert "until" not in str(found.context)


def test_a_fact_that_was_said_again_is_as_new_as_it_was_said_last(place: Path) -> None:
    said = [
        ("a1", "I am allergic to peanuts and cashews.", "2024-01-01"),
        ("a2", "I bought two expensive red bicycles.", "2024-03-01"),
    ]
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        for name, text, day in [*said, *((f"a{month}", said[0][1], f"2024-0{month}-01") for month in (4, 5, 6))]:
            memory.add(space="ana", session="s", speaker="Ana", turn_id=name, text=text, spoken_at=day)
        assert [(each.day, each.turn_ids) for each in memory.profile(space="ana")] == [
            (date(2024, 6, 1), ("a1", "a6")), (date(2024, 3, 1), ("a2",)),
        ]  # fmt: skip


def test_a_category_that_names_what_has_expired_is_not_told(place: Path) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        for number, text in enumerate(["chemotherapy at the clinic", "the doctor of the clinic", "tea at the clinic"]):
            memory.add(
                space="ana", session="s", speaker="Ana", turn_id=f"a{number}", text=f"I like {text}.",
                expires_at=tomorrow if number == 0 else None,
            )  # fmt: skip
        store = memory._graph
        facts = store.nodes(SpaceId("ana"), types=["knowledge_node"])
        filed = NewNode("c", "knowledge_category", "clinic chemotherapy", "…", tuple(TurnId(f"a{n}") for n in range(3)))
        holds = [NewRelation("c", "CONTAINS", fact.id) for fact in facts]
        store.commit(GraphChange(SpaceId("ana"), datetime.now(UTC), nodes=(filed,), relations=tuple(holds)))
        nodes = {SpaceId("ana"): facts}
        known = {SpaceId("ana"): KnownNodes(store).of(SpaceId("ana"), None, [fact.id for fact in facts])}

        def categories(now: datetime) -> set[str]:
            found = profile_of(store, known, nodes, speaker="Ana", budget_tokens=99, now=now)
            return {each.category for each in found}

        assert categories(datetime.now(UTC)) == {"clinic chemotherapy"}
        assert categories(tomorrow + timedelta(days=1)) == {"facts"}


def test_a_profile_keeps_to_its_budget_and_says_how_much_did_not_fit(place: Path) -> None:
    with remembered(place) as memory:
        whole = memory.profile(user="u")
        for budget in range(1, count_tokens(str(whole)) + 10):
            part = memory.profile(user="u", budget_tokens=budget)
            assert count_tokens(str(part)) <= max(budget, count_tokens("Ana"))
            assert len(part) + part.left_out == len(whole)
        assert part.left_out == 0


def test_a_statement_that_does_not_fit_leaves_room_for_older_ones(place: Path) -> None:
    with remembered(place) as memory:
        long = "I paint " + ", ".join(f"boats of kind {n}" for n in range(60)) + "."
        memory.add(space="ana", session="s", speaker="Ana", text=long, spoken_at="2024-05-01")
        profile = memory.profile(space="ana", speaker="Ana", budget_tokens=60)
    assert len(profile) >= 1
    assert profile.left_out >= 1


def test_who_never_speaks_has_no_profile_and_an_empty_space_has_an_empty_one(place: Path) -> None:
    with remembered(place) as memory:
        with pytest.raises(LocigraphError, match="no speaker 'Anna' in these spaces; nearest is 'Ana'"):
            memory.profile(space="ana", speaker="Anna")
        with pytest.raises(LocigraphError, match="budget_tokens is 0"):
            memory.profile(space="ana", budget_tokens=0)
        memory.add(space="empty", session="s", speaker="Cleo", text="Oh?")
        assert told(memory.profile(space="empty")) == []


def test_clients_and_the_command_line_get_the_same_profile(
    place: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with remembered(place) as memory:
        expected = memory.profile(user="u")
        operation = OPERATIONS["profile"]
        answer: Any = operation.perform(memory, operation.request(user="u"), Caller("c", ("*",)))
        assert (answer.text, answer.speaker, answer.left_out) == (str(expected), "Ana", 0)
        assert answer.model_dump(exclude={"text"}) == expected.as_json()
        allowed: Any = operation.perform(memory, operation.request(user="u"), Caller("c", ("work",)))
        assert {each.space for each in allowed.statements} == {"work"}
    cli.main(["profile", "--user", "u", "--store", str(place / "memory.sqlite")])
    assert capsys.readouterr().out.strip() == str(expected)
    cli.main(["profile", "--user", "u", "--budget_tokens", "5", "--store", str(place / "memory.sqlite")])
    assert "3 more did not fit; a larger --budget_tokens shows them" in capsys.readouterr().out


def test_turns_of_a_profile_of_several_spaces_are_named_with_their_spaces(place: Path) -> None:
    with remembered(place) as memory:
        assert "(2024-03-01, ana:a3)" in str(memory.profile(user="u"))
        assert "(2024-03-01, a3)" in str(memory.profile(space="ana"))


def test_who_spoke_only_what_has_expired_is_known_to_nobody(place: Path) -> None:
    with remembered(place) as memory:
        said = {"space": "ana", "session": "s", "text": "My door code is 7719."}
        memory.add(**said, speaker="Zacharias", expires_at=datetime.now(UTC))
        for ask in (memory.profile, partial(memory.recall, "What is the code?")):
            with pytest.raises(LocigraphError) as error:
                ask(space="ana", speaker="Zacharia")
            assert "Zacharias" not in str(error.value)
