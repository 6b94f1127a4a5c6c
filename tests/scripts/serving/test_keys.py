"""API keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locigraph.kg.errors import LocigraphError
from locigraph.serving.keys import KEYS_VARIABLE, OWNER, Caller, ForbiddenSpaceError, read_keys

SECRET = "0123456789abcdef"
ONE = {"name": "agent", "key": SECRET, "spaces": ["ana", "team/*"]}


def test_keys_come_from_a_file_or_else_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(f"- name: agent\n  key: {SECRET[::-1]}\n  spaces: [ana]\n")
    file.chmod(0o600)
    environment = {KEYS_VARIABLE: json.dumps([ONE])}
    from_file, from_environment = read_keys(str(file), environment), read_keys(None, environment)
    assert from_file.caller(SECRET[::-1]) == Caller("agent", ("ana",))
    assert from_file.caller(SECRET) is None
    assert from_environment.caller(SECRET) == Caller("agent", ("ana", "team/*"))


def test_without_keys_everyone_is_the_owner_and_with_keys_nobody_is() -> None:
    assert read_keys(None, {}).caller(None) == OWNER
    ring = read_keys(None, {KEYS_VARIABLE: json.dumps([ONE])})
    assert (ring.caller(None), ring.caller(""), ring.caller(SECRET + "x")) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "neither valid YAML nor valid JSON"),
        ("agent", "keys: Input should be a valid list"),
        ("[]", "contains no key"),
        ("[" * 20_000, "neither valid YAML nor valid JSON"),
        ("- {name: a, key: " + "1" * 5_000 + "}", "neither valid YAML nor valid JSON"),
        (json.dumps([ONE | {"key": "short"}]), "0.key: String should have at least 16 characters"),
        (json.dumps([ONE | {"spaces": []}]), "0.spaces: List should have at least 1 item"),
        (json.dumps([ONE | {"admin": True}]), "0.admin: Extra inputs are not permitted"),
        (json.dumps([ONE, ONE | {"key": SECRET * 2}]), "two keys have the same name"),
        (json.dumps([ONE, ONE | {"name": "other"}]), "two keys have the same key"),
    ],
)
def test_malformed_keys_are_one_line_that_shows_no_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(LocigraphError) as error:
        read_keys(str(file), {})
    assert said in str(error.value)
    assert SECRET not in str(error.value)
    assert "short" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocigraphError, match=r"no\.yaml' cannot be read"):
        read_keys(str(tmp_path / "no.yaml"), {})


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_file_that_others_can_read_is_refused_with_the_cure(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(json.dumps([ONE]))
    file.chmod(mode)
    with pytest.raises(LocigraphError, match=r"keys.yaml' can be read by others; run chmod 600 on it"):
        read_keys(str(file), {})


@pytest.mark.parametrize(
    ("space", "may"),
    [("ana", True), ("anabel", False), ("team/", True), ("team/x", True), ("team", False), ("*", False)],
)
def test_a_star_stands_for_the_rest_of_a_name_and_for_nothing_else(space: str, may: bool) -> None:
    caller = Caller("agent", ("ana", "team/*"))
    assert caller.may_use(space) is may
    if not may:
        with pytest.raises(ForbiddenSpaceError, match="'agent' may not use space"):
            caller.require([space])


def test_an_unknown_space_names_only_those_of_the_caller() -> None:
    assert str(Caller("bo", ("bo*",)).unknown("bob", ["ana", "boa"])).endswith("nearest is 'boa'")
    assert "ana" not in str(Caller("bo", ("bo*",)).unknown("bob", ["ana"]))
