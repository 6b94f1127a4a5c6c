"""What the tests of commands and public API share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from locigraph.assembly import opening
from locigraph.assembly.settings import EncoderSettings
from tests.fakes_graph import small_checkpoint
from tests.faults.workbench import FakeCachedEncoder


@pytest.fixture(scope="session")
def saved_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that fits the text encoder of ``place``, to be copied."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoint"
    small_checkpoint(text_encoder="fake").save(folder)
    return folder


def make_place(folder: Path, saved_checkpoint: Path, patch: pytest.MonkeyPatch) -> Path:
    """Give a folder a checkpoint, and have all memories use the text encoder that it fits."""

    def encoder(settings: EncoderSettings) -> FakeCachedEncoder:
        return FakeCachedEncoder("fake", cache=folder / "cache.sqlite")

    patch.setattr(opening, "text_encoder", encoder)
    shutil.copytree(saved_checkpoint, folder / "checkpoint")
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_checkpoint: Path) -> Path:
    """A folder with a checkpoint that fits the text encoder."""
    return make_place(tmp_path, saved_checkpoint, monkeypatch)
