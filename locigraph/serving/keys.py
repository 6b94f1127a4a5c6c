"""API keys: who sent a request, which spaces it may use, and how many requests a key may make."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from locigraph.kg.errors import LocigraphError, UnknownSpaceError, shortened
from locigraph.kg.files import is_open_to_others

#: Environment variable that holds the keys if no file is named, in the format of that file.
KEYS_VARIABLE = "LOCIGRAPH_KEYS"
_EXAMPLE = '[{name: agent, key: "...", spaces: ["ana", "team/*"]}]'


class ForbiddenSpaceError(LocigraphError):
    """A key may not use a space; raised whether or not the space exists."""

    def __init__(self, caller: Caller, space: str) -> None:
        super().__init__(
            f"key {caller.name!r} may not use space {shortened(space)}; its spaces: {', '.join(caller.spaces)}"
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a key, who sends a request.

    Attributes:
        name: Name in logs.
        spaces: Names of the spaces that may be used, and prefixes of names, which end with ``*``.
    """

    name: str
    spaces: tuple[str, ...]

    def may_use(self, space: str) -> bool:
        """Whether a space is one of the caller's."""
        return any(
            space.startswith(pattern[:-1]) if pattern.endswith("*") else space == pattern for pattern in self.spaces
        )

    def require(self, spaces: Iterable[str]) -> None:
        """Raise ForbiddenSpaceError unless all spaces are the caller's."""
        for space in spaces:
            if not self.may_use(space):
                raise ForbiddenSpaceError(self, space)

    def unknown(self, space: str, known: Iterable[str]) -> UnknownSpaceError:
        """The error for a space that does not exist; its message names no spaces of other callers."""
        return UnknownSpaceError(space, filter(self.may_use, known))


#: The caller if there are no keys: the user who runs the process.
OWNER = Caller("owner", ("*",))


class _Key(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1)
    # Letters that a header can carry: no others ever arrive as they were sent.
    key: str = Field(min_length=16, pattern=r"^[!-~]+$")
    spaces: list[str] = Field(min_length=1)


class Keyring:
    """The keys that are accepted; without any, everyone who reaches the server has the rights of its owner."""

    def __init__(self, keys: Mapping[str, Caller] = {}) -> None:
        self._callers = {_digest(key): caller for key, caller in keys.items()}

    def __len__(self) -> int:
        return len(self._callers)

    def with_owner(self, key: str) -> Keyring:
        """The same keys and one for the owner, who may use all spaces."""
        made = Keyring()
        made._callers = {**self._callers, _digest(key): OWNER}
        return made

    def caller(self, key: str | None) -> Caller | None:
        """The owner of a key; None if it is unknown. Looking up a digest takes the same time whatever is guessed."""
        if not self._callers:
            return OWNER
        return None if key is None else self._callers.get(_digest(key))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def read_keys(file: str | None, environment: Mapping[str, str] = os.environ) -> Keyring:
    """The keys of a file, or else of the environment variable ``LOCIGRAPH_KEYS``, as YAML or JSON.

    Raises:
        LocigraphError: If they are malformed; the message holds no key.
    """
    if file is not None:
        try:
            if is_open_to_others(Path(file)):
                raise LocigraphError(f"key file {file!r} can be read by others; run chmod 600 on it")
            where, text = file, Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise LocigraphError(f"key file {file!r} cannot be read: {error}") from error
    else:
        where, text = f"environment variable {KEYS_VARIABLE}", environment.get(KEYS_VARIABLE, "")
        if not text:
            return Keyring()
    try:
        found = TypeAdapter(list[_Key]).validate_python(yaml.safe_load(text))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "keys"
        raise LocigraphError(f"{where}: {place}: {first['msg']}; expected {_EXAMPLE}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LocigraphError(f"{where}: neither valid YAML nor valid JSON; expected {_EXAMPLE}") from error
    for what in ("name", "key"):
        if len({getattr(key, what) for key in found}) < len(found):
            raise LocigraphError(f"{where}: two keys have the same {what}; each needs its own")
    if not found:
        raise LocigraphError(f"{where}: contains no key; expected {_EXAMPLE}")
    return Keyring({key.key: Caller(key.name, tuple(key.spaces)) for key in found})
