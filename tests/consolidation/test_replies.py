from __future__ import annotations

import pytest

from locigraph.consolidation.replies import parsed


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
    ],
)
def test_the_object_is_found_behind_thoughts_fences_and_words(reply: str) -> None:
    assert parsed(reply) == {"a": 1}


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (" ", "empty"), ("<think>{}</think>", "empty"), ("Sure!", "not JSON"), ("Sure: {x", "not JSON"),
        ("[" * 5_000, "deeply"), ('Sure: {"a": ' + "[" * 5_000, "deeply"),
    ],
)  # fmt: skip
def test_a_reply_without_an_object_is_said_to_be_so(reply: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parsed(reply)


def test_what_is_no_number_of_json_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN is no number of JSON"):
        parsed('{"a": NaN}')
