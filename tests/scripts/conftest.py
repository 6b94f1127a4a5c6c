"""What the tests of commands and public API share."""

from __future__ import annotations

from pathlib import Path

import pytest

from locigraph.scripts.assembly import opening
from locigraph.scripts.assembly.settings import EncoderSettings
from tests.fakes_graph import small_checkpoint
from tests.faults.workbench import FakeCachedEncoder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint that fits the text encoder."""

    def encoder(settings: EncoderSettings) -> FakeCachedEncoder:
        return FakeCachedEncoder("fake", cache=tmp_path / "cache.sqlite")

    monkeypatch.setattr(opening, "text_encoder", encoder)
    small_checkpoint(text_encoder="fake").save(tmp_path / "checkpoint")
    return tmp_path
