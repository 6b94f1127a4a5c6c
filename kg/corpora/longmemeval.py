"""Reads LongMemEval's native JSON (Wu et al. 2025): each question has its own long history of sessions."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import Record, Utterance, by_conversation, decode, listed_records, number_turns
from locigraph.kg.counts import counted, is_or_are
from locigraph.kg.types import Question, TurnId

_CLOCK = "%Y/%m/%d (%a) %H:%M"


def read(path: str) -> Corpus:
    """Read a LongMemEval file, plain or .gz.

    Sessions are sorted by date. Repeated session ids get the suffixes ``#2``, ``#3``, ... A question's time is set to
    the end of its day, because in the published data many evidence sessions are dated hours after the question about
    them, on the same day.

    Raises:
        CorpusFormatError: If the file does not have LongMemEval's format.
    """
    records = listed_records(path, decode(path), "a list of questions")
    named = ((record.string("question_id"), record) for record in records)
    conversations: list[Conversation] = []
    questions: list[Question] = []
    renamed = 0
    late = 0
    for space, record in by_conversation(named, "question_id", entry="question"):
        utterances, evidence, repeats = _history(record)
        renamed += repeats
        turns = number_turns(space, utterances)
        skipped = {} if evidence else {"no evidence turn marked": 1}
        conversations.append(Conversation(space, turns, skipped=skipped))
        asked_at = _time(record, "question_date").replace(hour=0, minute=0) + timedelta(days=1, seconds=-1)
        late += sum(1 for turn in turns if turn.spoken_at and turn.spoken_at > asked_at)
        if not evidence:
            continue
        answer = record.data.get("answer")
        questions.append(
            Question(
                space,
                str(space),
                record.string("question"),
                record.string("question_type"),
                tuple(TurnId(t) for t in evidence),
                tuple(record.strings("answer_session_ids")),
                asked_at,
                None if answer is None else str(answer),
            )
        )
    notes = []
    if renamed:
        notes.append(f"{counted(renamed, 'repeated session id')} numbered")
    if late:
        notes.append(f"{counted(late, 'turn')} {is_or_are(late)} dated after the day of a question and invisible to it")
    return Corpus(tuple(conversations), tuple(questions), tuple(notes))


def _time(record: Record, field: str) -> datetime:
    return record.time(field, lambda clock: datetime.strptime(clock, _CLOCK), "a time such as '2023/05/30 (Tue) 03:16'")


def _history(record: Record) -> tuple[list[Utterance], list[str], int]:
    ids = record.strings("haystack_session_ids")
    dates = record.strings("haystack_dates")
    sessions = record.items("haystack_sessions")
    if not len(ids) == len(dates) == len(sessions):
        lists = ((sessions, "session"), (ids, "id"), (dates, "date"))
        lengths = ", ".join(counted(len(values), noun) for values, noun in lists)
        raise record.error("haystack_sessions", lengths, "the same number of each")
    times = [
        _time(Record({"date": d}, record.path, record.conversation, f"haystack_dates[{i}]"), "date")
        for i, d in enumerate(dates)
    ]
    uses: Counter[str] = Counter()
    named: set[str] = set()
    utterances: list[Utterance] = []
    evidence: list[str] = []
    for i in sorted(range(len(ids)), key=lambda i: (times[i], i)):
        uses[ids[i]] += 1
        session_id = ids[i] if uses[ids[i]] == 1 else f"{ids[i]}#{uses[ids[i]]}"
        if session_id in named:
            raise record.error(
                "haystack_session_ids", ids[i], f"ids that do not clash with the numbered {session_id!r}"
            )
        named.add(session_id)
        holder = Record({"turns": sessions[i]}, record.path, record.conversation, f"haystack_sessions[{i}]")
        for position, turn in enumerate(holder.records("turns")):
            content = turn.text("content")
            if not content.strip():
                continue  # an empty message holds nothing to remember
            turn_id = f"{session_id}:{position}"
            utterances.append(Utterance(turn_id, session_id, turn.string("role"), content, times[i]))
            if turn.data.get("has_answer"):
                evidence.append(turn_id)
    return utterances, evidence, sum(count - 1 for count in uses.values())


FORMAT = CorpusFormat(
    "longmemeval",
    read,
    keys=frozenset(["haystack_sessions"]),
)
