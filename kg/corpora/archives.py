"""Unpacks the ZIP files in which programs hand out their exports, as far as a reader needs them."""

from __future__ import annotations

import json
import lzma
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from locigraph.kg.corpora.parsing import MAX_FILE_BYTES, decode, parse_json
from locigraph.kg.corpora.slack import DAY_FILE
from locigraph.kg.errors import CorpusFileError, CorpusFormatError

# Files that hold all conversations of an export, whatever stands beside them; large exports of ChatGPT have several.
_WHOLE = re.compile(r"conversations(?:-\d+)?\.json|result\.json")
_PART = re.compile(r"conversations-\d+\.json")
_READ = (".json", ".jsonl", ".txt", ".mbox")


@contextmanager
def unpacked(path: str) -> Iterator[str]:
    """The path of what a ZIP file holds, a file or a folder, while the block runs; any other path as it is.

    Raises:
        CorpusFileError: If it cannot be unpacked, holds too much, or what it holds is not one export.
    """
    if not Path(path).is_file() or not zipfile.is_zipfile(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="corpus_") as place:
        try:
            with zipfile.ZipFile(path) as archive:
                found = _unpacked(archive, path, Path(place))
        except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
            raise CorpusFileError(path, f"it cannot be unpacked ({error})", "unpack it yourself") from error
        yield str(found)


def _unpacked(archive: zipfile.ZipFile, path: str, place: Path) -> Path:
    names = [each for each in archive.namelist() if each.endswith(_READ) and _is_inside(each)]
    if whole := [each for each in names if _WHOLE.fullmatch(PurePosixPath(each).name)]:
        if all(_PART.fullmatch(PurePosixPath(each).name) for each in whole):
            return _joined(_written(archive, path, whole, place), sorted(whole))
        if len(whole) > 1:
            shown = ", ".join(sorted(whole)[:5])
            raise CorpusFileError(path, f"it holds {len(whole)} exports ({shown})", "unpack it and name one of them")
        return _written(archive, path, whole, place) / PurePosixPath(whole[0])
    if days := [each for each in names if "/" in each and DAY_FILE.fullmatch(PurePosixPath(each).name)]:
        channels = {PurePosixPath(each).parent for each in days}
        first = min(channels)
        users = str(first.parent / "users.json")
        has_users = users in names
        written = _written(archive, path, [*days, *([users] if has_users else [])], place)
        return written / (first.parent if has_users or len(channels) > 1 else first)
    if len(names) != 1:
        shown = ", ".join(sorted(names)[:5])
        raise CorpusFileError(path, f"it holds {len(names)} files ({shown})", "unpack it and name one of them")
    # A chat is named after its file, which iOS calls alike in every archive.
    inside = _written(archive, path, names, place) / PurePosixPath(names[0])
    return inside.rename(place / f"{Path(path).stem}{inside.suffix}")


def _joined(place: Path, names: Sequence[str]) -> Path:
    """A file with the conversations of all parts of an export, each a list."""
    parts = [place / PurePosixPath(name) for name in names]
    lists = [parse_json(str(part), decode(str(part))) for part in parts]
    for part, each in zip(parts, lists, strict=True):
        if not isinstance(each, list):
            raise CorpusFormatError(part.name, None, "(top level)", each, "a list of conversations")
    whole = place / "conversations.json"
    whole.write_text(json.dumps([each for part in lists for each in part]), encoding="utf-8")
    return whole


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return not name.startswith("/") and ".." not in parts and "__MACOSX" not in parts


def _written(archive: zipfile.ZipFile, path: str, names: Sequence[str], place: Path) -> Path:
    left = MAX_FILE_BYTES
    for name in names:
        target = place / PurePosixPath(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(name) as packed:
            content = packed.read(left + 1)
        left -= len(content)
        if left < 0:
            raise CorpusFileError(path, f"it holds more than {MAX_FILE_BYTES:,} bytes", "unpack it and split it")
        target.write_bytes(content)
    return place
