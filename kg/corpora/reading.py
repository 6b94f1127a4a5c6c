"""One door to all formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

from locigraph.kg.corpora import jsonl, locomo, longmemeval
from locigraph.kg.corpora.corpus import Conversation, Corpus
from locigraph.kg.corpora.parsing import Record, json_lines
from locigraph.kg.errors import CorpusFormatError, nearest
from locigraph.kg.types import MAX_NAME_BYTES, is_name

FORMATS: Mapping[str, Callable[[str], Corpus]] = {
    "locomo": locomo.read,
    "longmemeval": longmemeval.read,
    "jsonl": jsonl.read,
}

#: Names that stand for a bundled corpus where a path is asked for: a small one to try things on, and one to train on.
BUNDLED: tuple[str, ...] = ("sample", "threads")

_EXTRACTIONS_BESIDE = "recorded_extractions.jsonl.gz"


def load_corpus(
    format: str,
    path: str,
    *,
    extractions: str | None = None,
    corrections: str | None = None,
    categories: tuple[str, ...] | None = None,
) -> Corpus:
    """Read a corpus.

    Args:
        format: A key of ``FORMATS``.
        path: File, or ``sample`` or ``threads`` for a bundled corpus (format ``jsonl``).
        extractions: JSONL file of recorded extractions, one conversation a line. None takes the file
            ``recorded_extractions.jsonl.gz`` beside the corpus when there is one.
        corrections: JSONL file of corrected evidence, one question a line; None for none. Read for LoCoMo only.
        categories: Question categories to keep; None keeps all, for LoCoMo all but the adversarial ones, whose
            answers are by design not in the conversation.

    Raises:
        CorpusFormatError: If a file is malformed or a name unknown.
    """
    if format not in FORMATS:
        raise CorpusFormatError(path, None, "format", format, f"a known format{nearest(format, FORMATS)}")
    if path in BUNDLED:
        with resources.as_file(resources.files("locigraph.kg.corpora") / f"{path}.jsonl") as bundled:
            corpus = replace(jsonl.read(str(bundled)), path=path)
    else:
        corpus = FORMATS[format](path)
    corpus = _usable(corpus)
    if extractions is None and path not in BUNDLED and (Path(path).parent / _EXTRACTIONS_BESIDE).is_file():
        extractions = str(Path(path).parent / _EXTRACTIONS_BESIDE)
    if extractions is not None:
        corpus = _with_extractions(corpus, extractions)
    if corrections is not None:
        if corpus.format != "locomo":
            raise CorpusFormatError(path, None, "corrections", corrections, "null, since the format is not locomo")
        corpus = locomo.with_corrections(corpus, corrections)
    if corpus.format == "locomo":
        if corpus.sha256 not in locomo.KNOWN_SHA256:
            known = ", ".join(f"{name} {digest}" for digest, name in locomo.KNOWN_SHA256.items())
            note = f"the file's SHA-256 {corpus.sha256} is unknown, so results may not compare; known: {known}"
            corpus = replace(corpus, notes=(*corpus.notes, note))
        categories = categories or tuple(
            c for c in locomo.DEFAULT_CATEGORIES if any(q.category == c for q in corpus.questions)
        )
    return corpus if categories is None else corpus.of_categories(categories)


def _usable(corpus: Corpus) -> Corpus:
    """The corpus without conversations that have no turn, of which a note is made.

    Raises:
        CorpusFormatError: If a conversation or turn has a name that an index could not hold.
    """
    for conversation in corpus.conversations:
        for field, name in (
            ("conversation_id", str(conversation.space)),
            *(("turn_id", str(turn.turn_id)) for turn in conversation.turns),
        ):
            if not is_name(name):
                expected = f"at most {MAX_NAME_BYTES} bytes without control characters"
                raise CorpusFormatError(corpus.path, str(conversation.space)[:60], field, name[:60], expected)
    empty = [str(c.space) for c in corpus.conversations if not c.turns]
    if not empty:
        return corpus
    note = f"{len(empty)} conversations without turns were left out, such as {empty[0]!r}"
    kept = tuple(c for c in corpus.conversations if c.turns)
    return replace(corpus, conversations=kept, notes=(*corpus.notes, note))


def _with_extractions(corpus: Corpus, path: str) -> Corpus:
    by_id = {str(c.space): c for c in corpus.conversations}
    for number, item in json_lines(path):
        name = Record(item, path, None, f"line {number}").string("conversation_id")
        if name not in by_id:
            continue  # extractions of a larger corpus serve a part of it too
        conversation = by_id[name]
        known = {turn.turn_id for turn in conversation.turns}
        found = jsonl.read_extractions(Record(item, path, name), known)
        by_id[name] = Conversation(conversation.space, conversation.turns, found)
    return replace(corpus, conversations=tuple(by_id[str(c.space)] for c in corpus.conversations))
