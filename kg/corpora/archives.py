"""Unpacks the ZIP files in which programs hand out their exports, as far as a reader needs them."""

from __future__ import annotations

import lzma
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from locigraph.kg.corpora.parsing import MAX_FILE_BYTES
from locigraph.kg.errors import CorpusFileError

# Files that hold all conversations of an export, whatever stands beside them.
_WHOLE = ("conversations.json", "result.json")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json")  # of a channel of Slack, in its folder
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
    if whole := [each for each in names if PurePosixPath(each).name in _WHOLE][:1]:
        return _written(archive, path, whole, place) / PurePosixPath(whole[0])
    if days := [each for each in names if "/" in each and _DAY.fullmatch(PurePosixPath(each).name)]:
        top = PurePosixPath(days[0]).parent.parent  # without users.json it may be a single channel
        users = str(top / "users.json")
        written = _written(archive, path, [*days, *([users] if users in names else [])], place)
        return written / (top if users in names else PurePosixPath(days[0]).parent)
    if len(names) != 1:
        shown = ", ".join(sorted(names)[:5])
        raise CorpusFileError(path, f"it holds {len(names)} files ({shown})", "unpack it and name one of them")
    # A chat is named after its file, which iOS calls alike in every archive.
    inside = _written(archive, path, names, place) / PurePosixPath(names[0])
    return inside.rename(place / f"{Path(path).stem}{inside.suffix}")


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
