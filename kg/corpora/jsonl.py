"""Reads the project's own format: JSONL with one conversation per line (``docs/corpus-format.md``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import date, timedelta

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat, Extractions, RecordedEvent, RecordedItem
from locigraph.kg.corpora.parsing import Record, Utterance, by_conversation, json_lines, number_turns
from locigraph.kg.counts import counted, is_or_are
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.times import TIME_RANGE, day_start, is_in_range
from locigraph.kg.types import MAX_DESCRIPTION, MAX_NAME_BYTES, Question, SpaceId, TurnId

_FIELDS = (
    "question_id", "text", "category", "evidence_turn_ids", "evidence_session_ids", "asked_at", "answer",
)  # fmt: skip


def read(path: str) -> Corpus:
    """Read a corpus in the project's JSONL, plain or .gz.

    Raises:
        CorpusFormatError: If a line is malformed; names the conversation and the field.
    """
    conversations: list[Conversation] = []
    questions: list[Question] = []
    seen: set[str] = set()
    early, unread = 0, dict[str, None]()
    for space, record in by_conversation(_named(path), "conversation_id", entry="line"):
        turns = number_turns(space, list(_utterances(record)))
        known = {turn.turn_id for turn in turns}
        empty = _turn_ids(record) - known
        sessions = {session.string("session_id") for session in record.records("sessions")}
        skipped: Counter[str] = Counter()
        unresolved: list[str] = []
        spoken = {turn.turn_id: turn.spoken_at for turn in turns}
        for entry in record.records("questions", required=False):
            cited = tuple(dict.fromkeys(map(TurnId, entry.strings("evidence_turn_ids", required=False))))
            question = _question(entry, space, tuple(turn for turn in cited if turn not in empty))
            unresolved += [f"{question.question_id}: {turn} is empty" for turn in cited if turn in empty]
            unread |= dict.fromkeys(name for name in entry.data if name not in _FIELDS)
            if question.question_id in seen:
                raise entry.error("question_id", question.question_id, "an id that no earlier question has")
            seen.add(question.question_id)
            unknown = [t for t in question.evidence if t not in known]
            if unknown:
                raise entry.error("evidence_turn_ids", unknown[0], "the id of a turn of this conversation")
            elsewhere = [session for session in question.evidence_sessions if session not in sessions]
            if elsewhere:
                raise entry.error("evidence_session_ids", elsewhere[0], "the id of a session of this conversation")
            if question.evidence:
                questions.append(question)
                times = [time for turn in question.evidence if (time := spoken[turn]) is not None]
                early += question.asked_at is not None and bool(times) and max(times) > question.asked_at
            else:
                skipped["evidence turn is empty" if cited else "no evidence turn given"] += 1
        extractions = read_extractions(record, known, empty)
        conversations.append(Conversation(space, turns, extractions, skipped, tuple(unresolved)))
    notes = []
    if early:
        notes.append(f"{counted(early, 'question')} {is_or_are(early)} asked before some of their evidence was said")
    if unread:
        notes.append(f"fields of questions that are not read: {', '.join(sorted(unread))}")
    return Corpus(tuple(conversations), tuple(questions), tuple(notes))


def _named(path: str) -> Iterator[tuple[str, Record]]:
    for number, item in json_lines(path):
        if not isinstance(item, dict) or "conversation_id" not in item:
            expected = "an object with conversation_id and sessions"
            raise CorpusFormatError(path, None, f"line {number}", item, expected)
        record = Record(item, path, None, f"line {number}")
        yield record.string("conversation_id"), record


def _turn_ids(record: Record) -> set[TurnId]:
    """Ids of all turns, including empty ones."""
    return {
        TurnId(turn.string("turn_id")) for session in record.records("sessions") for turn in session.records("turns")
    }


def _utterances(record: Record) -> Iterator[Utterance]:
    seen: set[str] = set()
    sessions = list(record.records("sessions"))
    # Sessions are sorted by time only if all have one; otherwise they keep the order of the file.
    times = [session.timestamp("started_at") for session in sessions]
    order = list(range(len(sessions)))
    if all(time is not None for time in times):
        order.sort(key=lambda i: (times[i], i))
    for i in order:
        session_id = sessions[i].string("session_id")
        for turn in sessions[i].records("turns"):
            turn_id = turn.string("turn_id")
            if turn_id in seen:
                raise turn.error("turn_id", turn_id, "an id that no earlier turn of the conversation has")
            seen.add(turn_id)
            caption = turn.optional_string("image_caption")
            text = turn.text("text")
            if not text.strip() and caption is None:
                continue  # an empty message holds nothing to remember
            yield Utterance(
                turn_id, session_id, turn.string("speaker"), text, turn.timestamp("spoken_at") or times[i], caption
            )


def _question(entry: Record, space: SpaceId, evidence: tuple[TurnId, ...]) -> Question:
    asked_at = entry.timestamp("asked_at")
    if asked_at is not None:
        with suppress(ValueError):  # there is a time of the day, too
            date.fromisoformat(entry.string("asked_at").strip())
            asked_at += timedelta(days=1, seconds=-1)
    return Question(
        space,
        f"{space}:{entry.string('question_id')}",
        entry.string("text"),
        entry.optional_string("category") or "uncategorised",
        evidence,
        entry.strings("evidence_session_ids", required=False),
        asked_at,
        entry.optional_string("answer"),
    )


def read_extractions(
    record: Record, known: AbstractSet[TurnId], empty: AbstractSet[TurnId] = frozenset()
) -> Extractions:
    """Read the ``facts``, ``entities``, ``topics`` and ``events`` of a record; each list is optional.

    An item that cites a turn outside the conversation is an error. Citations of ``empty`` turns are ignored, and items
    that cite no other turn are left out, since they would have no provenance.
    """

    def turn_ids(item: Record) -> tuple[TurnId, ...]:
        ids = tuple(TurnId(t) for t in item.strings("turn_ids") if t not in empty)
        for turn_id in ids:
            if turn_id not in known:
                raise item.error("turn_ids", turn_id, "the id of a turn of this conversation")
        return ids

    def text_of(item: Record) -> str:
        text = item.string("text")
        if len(text) > MAX_DESCRIPTION:
            raise item.error("text", text, f"at most {MAX_DESCRIPTION:,} letters")
        return text

    def name_of(item: Record) -> str:
        name = item.string("name")
        if len(name.encode()) > MAX_NAME_BYTES:
            raise item.error("name", name, f"at most {MAX_NAME_BYTES} bytes")
        return name

    def items(key: str, text_of: Callable[[Record], str]) -> tuple[RecordedItem, ...]:
        read_items = (
            RecordedItem(text_of(item), turn_ids(item), item.optional_string("type"))
            for item in record.records(key, required=False)
        )
        return tuple(item for item in read_items if item.turn_ids)

    def day(item: Record, key: str) -> date | None:
        value = item.optional_string(key)
        try:
            # Extractors write "Unknown" if they found no date.
            parsed = None if value is None or value.lower() == "unknown" else date.fromisoformat(value)
        except ValueError:
            raise item.error(key, value, "a day such as '2023-05-07'") from None
        if parsed is not None and not is_in_range(day_start(parsed)):
            raise item.error(key, value, TIME_RANGE)
        return parsed

    events = tuple(
        RecordedEvent(text_of(item), ids, day(item, "start"), day(item, "end"))
        for item in record.records("events", required=False)
        if (ids := turn_ids(item))
    )
    return Extractions(items("facts", text_of), items("entities", name_of), items("topics", text_of), events)


FORMAT = CorpusFormat(
    "jsonl",
    read,
    keys=frozenset(["conversation_id", "sessions"]),
)
