"""Reads a corpus of any format, which is done through ``load_corpus`` only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from locigraph.kg.corpora import jsonl
from locigraph.kg.corpora.archives import unpacked
from locigraph.kg.corpora.corpus import Corpus, CorpusFormat
from locigraph.kg.corpora.formats import FORMATS
from locigraph.kg.corpora.parsing import Record, file_sha256, json_lines
from locigraph.kg.corpora.recognition import recognised
from locigraph.kg.counts import counted
from locigraph.kg.errors import CorpusFileError, CorpusFormatError
from locigraph.kg.types import Turn

#: Names of bundled corpora, which can be given instead of a path: a small one to try things, three for training,
#: one of long talk, and one of other languages.
BUNDLED: tuple[str, ...] = ("sample", "threads", "voices", "duets", "projects", "languages")

#: Names of bundled extractions, which can be given instead of a path: for one conversation of the sample, hand-written.
BUNDLED_EXTRACTIONS: tuple[str, ...] = ("sample",)

_EXTRACTIONS_BESIDE = "recorded_extractions.jsonl.gz"


def load_corpus(
    format: str | None,
    path: str,
    *,
    extractions: str | None = None,
    corrections: str | None = None,
    categories: Sequence[str] | None = None,
    conversations: Sequence[str] | None = None,
    space: str | None = None,
) -> Corpus:
    """Read a corpus.

    Args:
        format: Name of a row of ``FORMATS``; None for the one whose signs the file shows.
        path: File, folder or ZIP file of an export, or one of ``BUNDLED`` for a bundled corpus, for which ``format`` is
            ignored (it is JSONL).
        extractions: JSONL file of recorded extractions, one conversation per line, or one of ``BUNDLED_EXTRACTIONS``.
            None uses the file ``recorded_extractions.jsonl.gz`` beside the corpus if it exists.
        corrections: JSONL file of corrected evidence, one question per line; None for none.
        categories: Question categories to keep; None or empty keeps the default categories of the format.
        conversations: Names of the conversations to keep; None keeps all.
        space: Space name for a corpus with a single conversation; None keeps the conversation's name.

    Raises:
        UnknownNameError: If there is no such format.
        CorpusFileError: If the file does not exist or has no turns, or if ``space`` is needed because all exports of
            the program have the same file name.
        CorpusFormatError: If a file is malformed, a category or conversation is unknown, corrections are given for a
            format that has none, or ``space`` is given for several conversations.
    """
    row, corpus = _found(format, path)
    corpus = _usable(corpus, row)
    beside = Path(path).parent / _EXTRACTIONS_BESIDE
    if extractions is None and path not in BUNDLED and beside.is_file():
        extractions = str(beside)
    if extractions in BUNDLED_EXTRACTIONS:
        resource = resources.files("locigraph.kg.corpora") / f"{extractions}_extractions.jsonl"
        with resources.as_file(resource) as bundled:
            corpus = _with_extractions(corpus, str(bundled))
    elif extractions is not None:
        corpus = _with_extractions(corpus, extractions)
    if corrections is not None:
        if row.with_corrections is None:
            able = ", ".join(other.name for other in FORMATS.values() if other.with_corrections)
            expected = f"null, since only these formats have corrections: {able}"
            raise CorpusFormatError(path, None, "corrections", corrections, expected)
        corpus = row.with_corrections(corpus, corrections)
    if row.known_sha256 and corpus.sha256 not in row.known_sha256:
        known = ", ".join(f"{name} {digest}" for digest, name in row.known_sha256.items())
        note = f"the file's SHA-256 {corpus.sha256} is unknown, so results may not be comparable; known: {known}"
        corpus = replace(corpus, notes=(*corpus.notes, note))
    corpus = replace(corpus, unanswerable=tuple(q for q in corpus.questions if q.category in row.unanswerable))
    if conversations is not None:
        corpus = corpus.of_conversations(conversations)
    unresolved = [citation for conversation in corpus.conversations for citation in conversation.unresolved]
    if unresolved:
        note = f"{len(unresolved)} cited turns could not be resolved: " + "; ".join(unresolved)
        corpus = replace(corpus, notes=(note, *corpus.notes))
    kept = categories or tuple(c for c in row.categories if any(q.category == c for q in corpus.questions))
    corpus = corpus.of_categories(kept) if categories or row.categories else corpus
    if space is not None:
        return corpus.in_space(space)
    for conversation in corpus.conversations:
        if conversation.space.partition(" ")[0] == row.nameless:  # also copies, such as "_chat (1)"
            cure = f"name this chat with --corpus.space, since {row.name} gives every chat this name"
            raise CorpusFileError(path, f"the file name {conversation.space!r} does not identify the chat", cure)
    return corpus


def _found(format: str | None, path: str) -> tuple[CorpusFormat, Corpus]:
    """The row of the format, which may be told by the file alone, and the corpus as it was read."""
    row = jsonl.FORMAT if format is None else FORMATS[format]
    if path in BUNDLED:
        row = jsonl.FORMAT
        with resources.as_file(resources.files("locigraph.kg.corpora") / f"{path}.jsonl") as bundled:
            return row, replace(_read(row, str(bundled)), path=path)
    if not Path(path).exists():
        raise CorpusFileError(path, "no such file", f"name an existing file or a bundled corpus: {', '.join(BUNDLED)}")
    with unpacked(path) as inside:
        if format is None:
            row = recognised(inside) or row
        try:
            read = _read(row, inside)
        except CorpusFormatError as error:
            error.args = (_of_archive(str(error), inside, path),)
            raise
        corpus = replace(read, path=path, notes=tuple(_of_archive(note, inside, path) for note in read.notes))
    if format is None and row.is_export:
        corpus = replace(corpus, notes=(f"read as {row.name}; --corpus.format names another format", *corpus.notes))
    return row, corpus


def _of_archive(text: str, inside: str, path: str) -> str:
    """A message that names the archive instead of the folder in which it was unpacked, which is gone by then."""
    return text.replace(f"{inside}/", f"{path}: ").replace(inside, path)


def _read(row: CorpusFormat, path: str) -> Corpus:
    try:
        corpus = row.read(path)
    except CorpusFormatError as error:
        other = recognised(path)
        if other is not None and other is not row:
            error.args = (f"{error}; this looks like the format {other.name!r}: name it with --corpus.format",)
        elif other is None:
            known = ", ".join(each.name for each in FORMATS.values())
            error.args = (f"{error}; the format is not recognised; known: {known}",)
        raise
    return replace(corpus, format=row.name, path=path, sha256=corpus.sha256 or file_sha256(path))


def _usable(corpus: Corpus, row: CorpusFormat) -> Corpus:
    """The corpus without conversations that have no turns, and exports without turns that no store could hold.

    These are mentioned in the notes.

    Raises:
        CorpusFileError: If there is no turn at all.
        CorpusFormatError: If a field of a turn is invalid; in an export, of all turns.
    """
    if row.is_export and any(turn.fault is None for each in corpus.conversations for turn in each.turns):
        corpus = _without_faults(corpus)
    if not any(conversation.turns for conversation in corpus.conversations):
        raise CorpusFileError(corpus.path, "it contains no turns", "check the file and the format it is read as")
    for conversation in corpus.conversations:
        for turn in conversation.turns:
            if turn.fault is not None:
                field, value, expected = turn.fault
                where = f"turn {str(turn.turn_id)[:60]!r}, {field}"
                raise CorpusFormatError(corpus.path, str(turn.space)[:60], where, value, expected)
    empty = tuple(conversation for conversation in corpus.conversations if not conversation.turns)
    if not empty:
        return corpus
    note = f"left out {counted(len(empty), 'conversation')} without turns, such as {str(empty[0].space)!r}"
    kept = tuple(conversation for conversation in corpus.conversations if conversation.turns)
    return replace(
        corpus, conversations=kept, notes=(*corpus.notes, note), left_out=replace(corpus, conversations=empty).skipped
    )


def _without_faults(corpus: Corpus) -> Corpus:
    kept, left_out = [], list[Turn]()
    for each in corpus.conversations:
        left_out += [turn for turn in each.turns if turn.fault is not None]
        kept.append(replace(each, turns=tuple(turn for turn in each.turns if turn.fault is None)))
    if not left_out:
        return corpus
    assert left_out[0].fault is not None
    field, value, expected = left_out[0].fault
    first = CorpusFormatError(corpus.path, str(left_out[0].space)[:60], field, value, expected)
    note = f"skipped turns that cannot be stored: {len(left_out):,}, the first: {first}"
    return replace(corpus, conversations=tuple(kept), notes=(*corpus.notes, note))


def _with_extractions(corpus: Corpus, path: str) -> Corpus:
    by_id = {str(c.space): c for c in corpus.conversations}
    for number, item in json_lines(path):
        name = Record(item, path, None, f"line {number}").string("conversation_id")
        if name not in by_id:
            continue  # the file may hold extractions for a larger corpus of which this is a part
        conversation = by_id[name]
        known = {turn.turn_id for turn in conversation.turns}
        by_id[name] = replace(conversation, extractions=jsonl.read_extractions(Record(item, path, name), known))
    return replace(corpus, conversations=tuple(by_id[str(c.space)] for c in corpus.conversations))
