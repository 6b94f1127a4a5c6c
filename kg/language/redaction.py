"""Replaces likely secrets in a text: passwords, keys and card numbers. Names and addresses stay."""

from __future__ import annotations

import re
from dataclasses import replace

from locigraph.kg.types import Turn

#: Replacement for a secret.
REDACTED = "[redacted]"
# API keys of well-known services, recognised by prefix; JWTs, which have three parts; and private key blocks. Text that
# only begins like a JWT is matched as well (and kept), or else the regex would try every position inside it.
_KEYS = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bxox[abprs]-[\w-]{10,}"
    r"|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\beyJ[\w-]{8,}+(?P<rest>\.[\w-]{8,}+\.[\w-]{8,})?+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
# Words after "the password is" that are no password: "the password is not important".
_NO_SECRET = "(?:not|no|never|the|too|very|still|already|always|only|so|wrong|expired|required|needed|important)"
# "my password is hunter2", "PIN: 4711", "api_key=abc"; the words before the secret stay.
_NAMED = re.compile(
    r"(?P<before>(?:\b|_)(?:password|passphrase|passcode|passwort|pwd|api[ _-]?key|secret[ _-]?(?:access[ _-]?)?key"
    r"|access[ _-]?token|pin(?: code)?)\b"
    r"['\"]?(?:\s{0,3}(?:\b(?:is|was|ist|war)\b|[:=])){1,3}\s{0,3}|(?:\b|_)(?:token|pw)['\"]?\s{0,3}[:=]\s{0,3})"
    rf"(?:(?P<quote>['\"])(?P<quoted>[^'\"\n]{{1,200}})(?P=quote)|['\"]?(?!{_NO_SECRET}\b)(?P<secret>[^\s'\",;]*[^\s'\",;.!?)]))",
    re.IGNORECASE,
)
# "Authorization: Bearer abc...", and the password in a database URL; the text before the secret stays.
_CARRIED = re.compile(
    r"(?P<before>\bBearer {1,3})[\w.~+/=-]{16,}|(?P<address>://[^\s:/@]{1,64}:)[^\s@/]{1,200}(?=@)", re.ASCII
)
_CARD = re.compile(r"(?<![\d-])\d(?:[ -]?\d){12,18}(?![\d-])")


def redacted(text: str) -> str:
    """The text with ``REDACTED`` in place of each recognised secret; unrecognised ones stay."""
    text = _KEYS.sub(lambda match: match[0] if match[0].startswith("eyJ") and not match["rest"] else REDACTED, text)
    text = _NAMED.sub(lambda match: match["before"] + (match["quote"] or "") + REDACTED + (match["quote"] or ""), text)
    text = _CARRIED.sub(lambda match: (match["before"] or match["address"]) + REDACTED, text)
    return _CARD.sub(lambda match: REDACTED if _is_card(match[0]) else match[0], text)


def redacted_turn(turn: Turn) -> Turn:
    """A turn with the secrets in its text, image caption and metadata replaced."""
    return replace(
        turn,
        text=redacted(turn.text),
        image_caption=turn.image_caption and redacted(turn.image_caption),
        metadata={name: redacted(value) if isinstance(value, str) else value for name, value in turn.metadata.items()},
    )


def _is_card(digits: str) -> bool:
    """Whether a number has the check digit of a card number (Luhn algorithm, ISO/IEC 7812)."""
    numbers = [int(sign) for sign in digits if sign.isdigit()][::-1]
    return sum(numbers[::2]) % 10 == -sum(sum(divmod(2 * number, 10)) for number in numbers[1::2]) % 10
