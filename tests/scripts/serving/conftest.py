"""Servers that tests of HTTP and MCP share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from locigraph.scripts.serving.keys import Keyring
from tests.scripts.serving.servers import KEYS, serving


@pytest.fixture
def client(place: Path) -> Iterator[httpx.Client]:
    with serving(place) as client:
        yield client


@pytest.fixture
def guarded(place: Path) -> Iterator[httpx.Client]:
    with serving(place, keys=Keyring(KEYS)) as client:
        yield client
