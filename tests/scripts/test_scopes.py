"""Users and agents, whose spaces are asked and forgotten together, through the public API and the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph import Memory
from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings
from locigraph.assembly.strategies import recalled
from locigraph.kg.errors import LocigraphError, StoreError, UnknownScopeError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import Scope, SpaceId
from locigraph.memory import Recalled
from locigraph.scripts.commands.memory import spaces, verify
from locigraph.scripts.commands.memory.build import build
from locigraph.scripts.commands.memory.forget import forget
from locigraph.scripts.commands.memory.recall import recall
from locigraph.serving.keys import Caller, ForbiddenSpaceError
from locigraph.serving.operations import OPERATIONS, Answer, Asked, ToForget
from tests.fakes_graph import small_checkpoint
from tests.faults.residue import files_with
from tests.faults.workbench import FakeCachedEncoder, conversation

RECALLED = [*recalled()]
CHATS = {
    "chat 1": ["I sold the blue bike to Tom.", "My favourite colour is green."],
    "chat 2": ["Tom repaired the blue bike.", "I live in Denver."],
    "chat 3": ["The bike of my neighbour is red.", "My favourite colour is green."],
}


def opened(place: Path, name: str = "memory.sqlite") -> Memory:
    return Memory.open(place / name, checkpoint=str(place / "checkpoint"))


def turns_of(space: str, **more: str) -> list[dict[str, Any]]:
    return [
        {"space": space, "session": space, "speaker": "Ana", "text": text, "turn_id": f"t{n}"} | more
        for n, text in enumerate(CHATS[space])
    ]


def found(hits: Recalled) -> list[tuple[str, str]]:
    return [(hit.space, turn) for hit in hits for turn in hit.turn_ids]


def test_chats_of_a_user_are_asked_together_and_apart(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many(
            [*turns_of("chat 1", user="ana"), *turns_of("chat 2", user="ana", agent="helper"), *turns_of("chat 3")]
        )
        memory.add(**turns_of("chat 3")[0], user="bo", agent="helper")
        assert memory.scopes()[SpaceId("chat 2")] == Scope("ana", "helper")
        assert memory.spaces(user="ana") == ["chat 1", "chat 2"]

        def asked(**scope: Any) -> set[tuple[str, str]]:
            return {*found(memory.recall("Who has the blue bike?", top_k=99, **scope))}

        both = {(space, turn) for space in ("chat 1", "chat 2") for turn in ("t0", "t1")}
        assert asked(user="ana") == asked(space=["chat 1", "chat 2"]) == both
        assert asked(agent="helper") == {(space, turn) for space in ("chat 2", "chat 3") for turn in ("t0", "t1")}
        assert (
            asked(user="ana", agent="helper")
            == asked(space="chat 2", user="ana")
            == {("chat 2", "t0"), ("chat 2", "t1")}
        )
        assert asked(space="chat 1") == {("chat 1", "t0"), ("chat 1", "t1")}
        with pytest.raises(UnknownScopeError, match="no space belongs to user 'anna'; nearest is \"user 'ana'\""):
            asked(user="anna")
        with pytest.raises(UnknownScopeError, match="space 'chat 1' does not belong to user 'bo'"):
            asked(user="bo", space="chat 1")
        with pytest.raises(UnknownSpaceError, match="space 'chat 9' is not in the store"):
            asked(user="ana", space=["chat 1", "chat 9"])
        for nothing in ({}, {"space": ()}, {"space": ""}):
            with pytest.raises(LocigraphError, match="no space is named; name a space"):
                asked(**nothing)
        for wrong in ({"user": ["ana"]}, {"agent": 1}):
            (name,) = wrong
            for call in (asked, memory.spaces, memory.profile, partial(memory.forget, whole_space=False)):
                with pytest.raises(LocigraphError, match=rf"{name} is .*; expected text"):
                    call(**wrong)
        with pytest.raises(StoreError, match="space 'chat 1' belongs to user 'ana', not 'bo'"):
            memory.add(**turns_of("chat 1")[0], user="bo")


@pytest.mark.parametrize("strategy", ["bm25", "dense"])
def test_several_spaces_are_scored_as_one_pool(place: Path, strategy: str) -> None:
    with opened(place) as memory:
        for space in CHATS:
            memory.add_many(turns_of(space, user="ana"))
            memory.add_many(
                [turn | {"space": "all", "turn_id": f"{space} {turn['turn_id']}"} for turn in turns_of(space)]
            )
        one, joint = (
            memory.recall("Which colour has the bike?", **scope, strategy=strategy, top_k=99, fold=None)  # type: ignore[arg-type]
            for scope in ({"space": "all"}, {"user": "ana"})
        )
    scores = {turn: hit.score for hit in one for turn in hit.turn_ids}
    assert max(scores.values()) > 0
    assert {f"{hit.space} {turn}": hit.score for hit in joint for turn in hit.turn_ids} == pytest.approx(scores)


def test_what_is_said_alike_in_several_chats_has_one_place_that_names_the_others(place: Path) -> None:
    with opened(place) as memory:
        for space in CHATS:
            memory.add_many(turns_of(space, user="ana"))
        memory.add(**turns_of("chat 1")[1] | {"turn_id": "t9"})
        (hit,) = (hit for hit in memory.recall("Which colour?", user="ana", strategy="bm25") if "green" in hit.text)
    here, there = ("chat 1", "chat 3") if hit.space == "chat 1" else ("chat 3", "chat 1")
    turns = {"chat 1": {"t1", "t9"}, "chat 3": {"t1"}}
    assert {*hit.turn_ids, *hit.same} == turns[here]
    assert {space: {*own} for space, own in hit.elsewhere.items()} == {there: turns[there]}
    shown = json.loads(json.dumps(hit.as_json()))
    assert (shown["space"], {*shown["elsewhere"]}) == (here, {there})


def test_a_context_of_several_chats_names_the_chat_of_each_turn_and_keeps_to_its_budget(place: Path) -> None:
    with opened(place) as memory:
        for space, day in (("chat 2", "2024-05-02"), ("chat 1", "2024-05-03")):
            memory.add_many(turns_of(space, user="ana", spoken_at=day))
        hits = memory.recall("Who has the blue bike?", user="ana", budget_tokens=60, strategy="bm25")
    assert hits.context is not None
    assert hits.context.tokens <= 60
    assert str(hits.context).splitlines() == [
        "[2 May 2024] Ana: Tom repaired the blue bike. (chat 2:t0)",
        "[3 May 2024] Ana: I sold the blue bike to Tom. (chat 1:t0)",
    ]
    assert {*found(hits)} == {("chat 1", "t0"), ("chat 2", "t0")}


def test_a_reader_and_time_and_speakers_hold_for_several_spaces_too(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many(turns_of("chat 1", user="ana", spoken_at="2024-05-01"))
        memory.add_many(turns_of("chat 2", user="ana", spoken_at="2024-06-01", speaker="Bo"))
        with pytest.raises(LocigraphError, match="no speaker 'Bob' in space 'chat 1' and 1 other; nearest is 'Bo'"):
            memory.recall("bike", user="ana", speaker="Bob")
        assert len({space for space, _ in found(memory.recall("bike", user="ana", speaker="Ana"))}) == 1
        for speakers in ("Ana, Bo", ["Ana", "Bo"]):
            hits = memory.recall("bike", user="ana", speaker=speakers)
            assert {space for space, _ in found(hits)} == {"chat 1", "chat 2"}
        memory.add(space="chat 3", user="bo", session="s", speaker="Ana, Bo", text="Our bike is green.", turn_id="t")
        assert found(memory.recall("bike", user="bo", speaker="Ana, Bo"))[0] == ("chat 3", "t")  # one name
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"), access="read") as memory:
        for strategy in ("v2", "v1"):
            early = memory.recall("blue bike", user="ana", as_of="2024-05-10", strategy=strategy)
            assert {hit.space for hit in early} == {"chat 1"}
            assert {hit.space for hit in memory.recall("bike", user="ana", speaker="Bo", strategy=strategy)} == {
                "chat 2"
            }


MARKER = "bqkzwmpr"


def test_all_of_a_user_is_forgotten_for_good_and_no_file_holds_a_word_of_it(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many([turn | {"text": f"{MARKER} {turn['text']}"} for turn in turns_of("chat 1", user=MARKER)])
        memory.add_many(turns_of("chat 2", user=MARKER))
        memory.add_many(turns_of("chat 3", user="bo"))
        memory.recall("bike", user=MARKER)
        for wrong in ({"user": MARKER, "turn_ids": ["t0"]}, {"space": ["chat 1"], "turn_ids": ["t0"]}, {}):
            with pytest.raises(LocigraphError, match="name the turns to erase"):
                memory.forget(**wrong)
        assert memory.forget(user=MARKER) > 0
        assert memory.spaces() == ["chat 3"]
        with pytest.raises(UnknownScopeError):
            memory.forget(user=MARKER)
    assert files_with(place, MARKER, []) == []
    verify.verify(store=str(place / "memory.sqlite"), checkpoint=str(place / "checkpoint"))


def test_a_space_of_which_every_turn_is_forgotten_by_its_id_belongs_to_nobody(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many(turns_of("chat 1", user="ana"))
        memory.forget(space="chat 1", turn_ids=["t0"])
        assert memory.scopes() == {SpaceId("chat 1"): Scope("ana", None)}
        memory.forget(space="chat 1", turn_ids=["t1"])
        assert memory.scopes() == {}
        assert memory.forget(space="chat 1", turn_ids=["t0", "t1"]) == 0  # as before, it is not an error
        memory.add(**turns_of("chat 1", user="bo")[0] | {"turn_id": "t2"})
        assert memory.scopes() == {SpaceId("chat 1"): Scope("bo", None)}


def test_of_several_spaces_those_that_were_forgotten_already_do_not_keep_the_others(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as memory:
        for space in ("chat 1", "chat 2", "chat 3"):
            memory.add_many(turns_of(space))
        memory.forget(space="chat 1", whole_space=True)
        assert memory.forget(space=["chat 1", "chat 2"], whole_space=True) > 0
        assert memory.spaces() == ["chat 3"]
        assert memory.forget(space=["chat 1", "chat 2"], whole_space=True) == 0
        with monkeypatch.context() as cut:  # as if an earlier call had ended between store and index
            cut.setattr(Store, "has_forgotten", lambda *_: True)
            with pytest.raises(UnknownSpaceError, match="'chat 4'"):
                memory.forget(space=["chat 4", "chat 3"], whole_space=True)
        assert memory.spaces() == ["chat 3"]


def test_a_mistyped_user_is_named_whatever_was_forgotten_before(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many(turns_of("chat 1", user="anna"))
        memory.forget(space="chat 1", turn_ids="t0")
        for wrong in ({"user": "ana"}, {"user": "ana", "space": "chat 1"}, {"user": "ana", "space": ["chat 1"]}):
            with pytest.raises(UnknownScopeError, match="to user 'ana'; nearest is \"user 'anna'\""):
                memory.forget(**wrong)
        with pytest.raises(UnknownScopeError):
            OPERATIONS["forget"].perform(memory, ToForget.model_validate({"user": "ana"}), Caller("key", ("chat 1",)))
        assert memory.spaces(user="anna") == ["chat 1"]


def test_the_commands_know_users_and_agents(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    with opened(place) as memory:
        memory.add_many([*turns_of("chat 1", user="ana"), *turns_of("chat 2", user="ana", agent="helper")])
        memory.add_many(turns_of("chat 3", user="bo"))
    recall("Who has the blue bike?", user="ana", store=store, checkpoint=checkpoint)
    shown = capsys.readouterr().out
    assert "space chat 1  turns t0" in shown
    assert "space chat 2  turns t0" in shown
    assert "chat 3" not in shown
    spaces.spaces(store=store)
    assert "chat 2  user ana  agent helper  2 turns" in capsys.readouterr().out
    with pytest.raises(
        LocigraphError, match="user 'ana': everything would be erased permanently; to confirm, add --yes"
    ):
        forget(user="ana", store=store)
    with pytest.raises(LocigraphError, match="--restore works on one space"):
        forget(user="ana", restore=True, store=store)
    forget(user="ana", yes=True, store=store, checkpoint=checkpoint)
    assert "of user 'ana' erased" in capsys.readouterr().out
    spaces.spaces(store=store, json=True)
    assert [json.loads(line)["space"] for line in capsys.readouterr().out.splitlines()] == ["chat 3"]


def test_a_build_says_whose_its_conversations_are(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = [conversation(space, ["I sold the blue bike to Tom."]) for space in ("one", "two")]
    corpus, store = place / "corpus.jsonl", str(place / "graph.sqlite")
    for number, user in enumerate(("ana", "bo")):
        corpus.write_text(json.dumps(told[number]) + "\n")
        build(corpus=CorpusSettings(path=str(corpus)), store=store, checkpoint=None, user=user, agent="helper")
    corpus.write_text("".join(json.dumps(each) + "\n" for each in told))
    build(corpus=CorpusSettings(path=str(corpus)), store=store, checkpoint=None)  # says nothing, and changes nothing
    with Memory.open(store, checkpoint=None, access="read") as memory:
        assert memory.scopes() == {"one": Scope("ana", "helper"), "two": Scope("bo", "helper")}
    with pytest.raises(StoreError, match="space 'one' belongs to user 'ana', not 'bo'"):
        build(corpus=CorpusSettings(path=str(corpus)), store=store, checkpoint=None, user="bo")
    capsys.readouterr()


# --- tenants ---------------------------------------------------------------------------------------------------

NAMES = (
    "ana", "ana*", "ana:1", "ana%3A1", "ana' OR '1'='1", 'ana" or space != "', "ana\\", '"] or 1 == 1 or space in ["',
    "%", "_", "*", "null", "é", "e\u0301", "\u202e", "anabel",
)  # fmt: skip
#: Every second space has the user of the one before it, every third its agent.
SCOPES = {
    name: Scope(NAMES[(number + 1) // 2 % len(NAMES)], NAMES[(number + 2) // 3 % len(NAMES)])
    for number, name in enumerate(NAMES)
}
KEYS = st.lists(st.sampled_from([*NAMES, *(f"{name}*" for name in NAMES)]), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """A memory with a space for each name."""
    place = tmp_path_factory.mktemp("crowd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "text_encoder", lambda _: FakeCachedEncoder("fake", cache=place / "cache.sqlite"))
        small_checkpoint(text_encoder="fake").save(place / "checkpoint")
        with opened(place) as memory:
            for number, (name, scope) in enumerate(SCOPES.items()):
                memory.add(
                    space=name, session="s", speaker="Ana", text=f"My bike has the number {number}.", turn_id="t",
                    user=scope.user, agent=scope.agent,
                )  # fmt: skip
            yield memory


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    user=st.none() | st.sampled_from(NAMES),
    agent=st.none() | st.sampled_from(NAMES),
    patterns=KEYS,
    strategy=st.sampled_from([name for name in RECALLED if not recalled()[name].needs_adapter]),
)
def test_no_scope_reaches_a_space_of_another_or_one_that_the_key_does_not_own(
    crowd: Memory, user: str | None, agent: str | None, patterns: list[str], strategy: str
) -> None:
    caller = Caller("key", tuple(patterns))
    asked = Asked.model_validate(
        {
            "question": "Which number has my bike?",
            "user": user,
            "agent": agent,
            "strategy": strategy,
            "top_k": 99,
            "fold": None,
        }
    )
    own = {name: scope for name, scope in SCOPES.items() if caller.may_use(name)}
    wanted = {name for name, scope in own.items() if Scope(user, agent).covers(scope)}
    if not wanted or (user, agent) == (None, None):
        with pytest.raises(LocigraphError) as error:
            OPERATIONS["recall"].perform(crowd, asked, caller)
        may_show = {user, agent, *(name for scope in own.values() for name in (scope.user, scope.agent))}
        assert not [name for name in NAMES if name not in may_show and repr(name) in str(error.value)]
        return
    answer = OPERATIONS["recall"].perform(crowd, asked, caller)
    assert isinstance(answer, Answer)
    assert {hit.space for hit in answer.hits} <= wanted
    if strategy in ("v2", "v1", "dense", "bm25"):  # which leave out nothing that has the words
        assert {hit.space for hit in answer.hits} == wanted
    for hit in answer.hits:
        assert hit.turn_ids == ["t"]
        assert str(NAMES.index(hit.space)) in hit.text


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_names_another_s_space_beside_a_user_is_refused(crowd: Memory, name: str) -> None:
    others = Caller("key", tuple(other for other in NAMES if other not in (name, "*") and not other.endswith("*")))
    for operation, asked in (
        ("recall", {"question": "bike", "space": name, "user": NAMES[1]}),
        ("forget", {"space": name, "user": NAMES[1]}),
    ):
        with pytest.raises(ForbiddenSpaceError):
            OPERATIONS[operation].perform(crowd, OPERATIONS[operation].request.model_validate(asked), others)


def test_a_key_forgets_of_a_user_its_own_spaces_only(place: Path) -> None:
    with opened(place) as memory:
        for space in CHATS:
            memory.add_many(turns_of(space, user="ana"))
        key, of_ana = Caller("key", ("chat 1", "chat 2")), ToForget.model_validate({"user": "ana"})
        OPERATIONS["forget"].perform(memory, of_ana, key)
        assert memory.spaces() == ["chat 3"]
        with pytest.raises(UnknownScopeError, match=r"no space belongs to user 'ana'; there are none yet"):
            OPERATIONS["forget"].perform(memory, of_ana, key)
        assert OPERATIONS["spaces"].perform(memory, OPERATIONS["spaces"].request(), key).model_dump() == {
            "spaces": [], "scopes": {}, "titles": {}, "days_kept": {},
        }  # fmt: skip


def test_a_space_that_is_forgotten_while_its_user_is_asked_is_left_out(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as memory:
        for space in CHATS:
            memory.add_many(turns_of(space, user="ana"))
        spaces_of, key = memory.spaces, Caller("key", ("chat 1", "chat 2"))

        def listed_then_forgotten() -> list[SpaceId]:
            listed = spaces_of()
            if "chat 2" in listed:
                memory.forget(space="chat 2", whole_space=True)  # as another client or command may at this moment
            return listed

        monkeypatch.setattr(memory, "spaces", listed_then_forgotten)
        asked = Asked.model_validate({"question": "Which number has my bike?", "user": "ana"})
        answer = OPERATIONS["recall"].perform(memory, asked, key)
        assert isinstance(answer, Answer)
        assert {hit.space for hit in answer.hits} == {"chat 1"}
