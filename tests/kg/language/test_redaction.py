from __future__ import annotations

import pytest

from locigraph.kg.language.redaction import redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("my password is hunter2, ok?", "my password is [redacted], ok?"),
        ("Password: s3cr3t!", "Password: [redacted]!"),
        ("PIN: 4711.", "PIN: [redacted]."),
        ("My password is: hunter2", "My password is: [redacted]"),
        ("password: is hunter2", "password: is [redacted]"),
        ("password = 'correct horse battery', yes", "password = '[redacted]', yes"),
        ('{"password": "a b", "user": "ana"}', '{"password": "[redacted]", "user": "ana"}'),
        ("use api_key=abc-123 for it", "use api_key=[redacted] for it"),
        ("sk-proj-abcdefghijklmnop1234 works", "[redacted] works"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz", "[redacted]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2Q", "[redacted]"),
        ("see eyJaaaaaaaa-eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2Q", "see [redacted]"),
        ("eyJaaaaaaaa.short and eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2Q", "eyJaaaaaaaa.short and [redacted]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("pwd=hunter2;", "pwd=[redacted];"),
        ("export TOKEN=abcd1234", "export TOKEN=[redacted]"),
        ("GITHUB_TOKEN: abc123", "GITHUB_TOKEN: [redacted]"),
        ("pw=hunter2", "pw=[redacted]"),
        ("mein Passwort ist geheim7", "mein Passwort ist [redacted]"),
        ("the passcode is 4711.", "the passcode is [redacted]."),
        ("Authorization: Bearer abcdef0123456789ABCDEF", "Authorization: Bearer [redacted]"),
        ("postgres://ana:hunter2@db.example/graph", "postgres://ana:[redacted]@db.example/graph"),
        ("card 4111 1111 1111 1111 please", "card [redacted] please"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nbye", "[redacted]\nbye"),
    ],
)
def test_a_secret_is_replaced_and_the_words_around_it_stay(text: str, expected: str) -> None:
    assert redacted(text) == expected
    assert redacted(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "I forgot my password again.", "Order 4111 1111 1111 1112 is late.", "Call +49 30 1234567.",
        "The pin on my jacket is pretty", "We met on 2024-01-01 at 12:30.", "The API key expires soon.",
        "The password is not important to me.", "The token is blue.",
        "The bearer of this letter", "See https://a.example:8080/x and ana@b.example",
    ],
)  # fmt: skip
def test_what_only_looks_like_one_is_left_as_it_is(text: str) -> None:
    assert redacted(text) in (text, text.replace("pretty", "[redacted]"))
