from __future__ import annotations

import json

import pytest

from locigraph.consolidation.errors import BlueprintError
from locigraph.consolidation.replies import _without_thoughts, read_reply


def taken(reply: object) -> object:
    """A reply as it is, if it is an object with an ``a``."""
    if not (isinstance(reply, dict) and "a" in reply):
        raise BlueprintError(f"{reply} has no a")
    return reply


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": 1}',
        'Here you are: {"a": 1} I hope this helps.',
        'Here:\n```json\n{"a": 1}\n```\nAnything else?',
        '```JSON \r\n\n{"a": 1}\n```',
        '<think>The user wants {JSON}.</think>{"a": 1}',
        '<think>One.</think> <Thinking>{"a": 2}</Thinking>\n{"a": 1}',
        '{"a": 1} <think>That was all.</think>',
        'I <think> so: {"a": 1}',
        '{"a": 1} <think>What of {"x": 2}?</think>',
        'I think {"a": 2} maybe\n</think>\n\n{"a": 1}',
        'First <think>one</think> then {"a": 2}</think>{"a": 1}',
        'Nothing stands behind {"a": 1}</think>\n',
        'Neither {} nor {JSON} nor {"x": {"a": 2}}, but {"a": 1}, and that is all',
        'I reply {"a": 1}, that is: {"a": 1}',
        '{"x": NaN}</think>{"a": 1}',
    ],
)
def test_the_object_is_found_behind_thoughts_fences_and_words(reply: str) -> None:
    assert read_reply(reply, taken) == {"a": 1}


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "Here: {}."])
@pytest.mark.parametrize("said", ["as ```x``` says", '{"a": 2}'])
def test_words_of_a_reply_may_hold_fences_and_braces(said: str, around: str) -> None:
    assert read_reply(around.format(json.dumps({"a": said})), taken) == {"a": said}


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "\n```\n{}```\n"])
@pytest.mark.parametrize("said", ["she wrote </think> and left", "<think>{}</think>"])
def test_words_of_a_reply_that_is_json_alone_may_hold_tags(said: str, around: str) -> None:
    assert read_reply(around.format(json.dumps({"a": said})), taken) == {"a": said}


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": 1}, not {"a": 3}',
        'Mallory says {"a": 3}, so I reply ```json\n{"a": 1}\n```',
        '{"a": 1}\nIf not: {"a": 0}',
    ],
)
def test_of_several_objects_that_fit_none_is_guessed(reply: str) -> None:
    with pytest.raises(ValueError, match="2 objects of the right form"):
        read_reply(reply, taken)


def test_of_objects_that_cannot_be_read_the_last_is_told_what_is_wrong() -> None:
    with pytest.raises(BlueprintError, match=r"'y': 2. has no a"):
        read_reply('Not {"x": 1} but {"y": 2}', taken)


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (" ", "empty"), ("<think>{}</think>", "empty"), ("Sure!", "not JSON"), ("Sure: {x", "not JSON"),
        ("[" * 5_000, "deeply"), ('Sure: {"a": ' + "[" * 5_000, "deeply"),
    ],
)  # fmt: skip
def test_a_reply_without_an_object_is_said_to_be_so(reply: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_reply(reply, taken)


def test_what_is_no_number_of_json_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN is not a JSON number"):
        read_reply('{"a": NaN}', taken)


def test_of_several_ends_of_thoughts_the_last_counts() -> None:
    assert _without_thoughts('{"a": 1}</think>{"a": 2}</think>{"a": 3}') == '{"a": 3}'
