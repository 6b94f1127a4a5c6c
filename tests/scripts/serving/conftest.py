"""Servers that tests of HTTP and MCP share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from locigraph.serving.keys import Keyring
from tests.scripts.conftest import make_place
from tests.scripts.serving.servers import KEYS, serving


@pytest.fixture
def client(place: Path) -> Iterator[httpx.Client]:
    with serving(place) as client:
        yield client


@pytest.fixture
def guarded(place: Path) -> Iterator[httpx.Client]:
    with serving(place, keys=Keyring(KEYS)) as client:
        yield client


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory, saved_checkpoint: Path) -> Iterator[httpx.Client]:
    """A client that the tests of a file share which write nothing."""
    folder = tmp_path_factory.mktemp("idle")
    with pytest.MonkeyPatch.context() as patch, serving(make_place(folder, saved_checkpoint, patch)) as client:
        yield client


@pytest.fixture(scope="module")
def idle_guarded(tmp_path_factory: pytest.TempPathFactory, saved_checkpoint: Path) -> Iterator[httpx.Client]:
    """The same of a server with keys."""
    folder = tmp_path_factory.mktemp("idle")
    with (
        pytest.MonkeyPatch.context() as patch,
        serving(make_place(folder, saved_checkpoint, patch), keys=Keyring(KEYS)) as client,
    ):
        yield client
