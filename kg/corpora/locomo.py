"""Reads LoCoMo's native JSON (Maharana et al. 2024): dated chat sessions of two friends, questions with cited turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    Record,
    Utterance,
    by_conversation,
    decode,
    json_lines,
    listed_records,
    number_turns,
)
from locigraph.kg.types import Question, SpaceId, TurnId

#: The paper's names for the category numbers in the file.
CATEGORIES: Mapping[int, str] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}

# 'D8:6', and irregular forms found in the published file: 'D:11:26', 'D30:05', several in one string.
_CITATION = re.compile(r"D:?(\d{1,9}):(\d{1,9})")
_SESSION = re.compile(r"session_(\d{1,9})")
_CLOCK = "%I:%M %p on %d %B, %Y"


def read(path: str) -> Corpus:
    """Read a LoCoMo file.

    Raises:
        CorpusFormatError: If the file does not have LoCoMo's format.
    """
    records = listed_records(path, decode(path), "a list of conversations")
    conversations: list[Conversation] = []
    questions: list[Question] = []
    for space, record in by_conversation(((each.string("sample_id"), each) for each in records), "sample_id"):
        turns = number_turns(space, list(_utterances(record)))
        skipped: Counter[str] = Counter()
        unresolved: list[str] = []
        known = {turn.turn_id for turn in turns}
        for index, entry in enumerate(record.records("qa")):
            question, lost = _question(entry, space, index, known)
            unresolved += [f"{space} question {index}: {citation}" for citation in lost]
            if question.evidence:
                questions.append(question)
            else:
                skipped["evidence cannot be resolved" if lost else "no evidence given"] += 1
        conversations.append(Conversation(space, turns, skipped=skipped, unresolved=tuple(unresolved)))
    return Corpus(tuple(conversations), tuple(questions))


def with_corrections(corpus: Corpus, path: str) -> Corpus:
    """Add published corrections of the evidence, from a JSONL file, to a LoCoMo corpus; the original is kept as well.

    Each line of the file has ``conversation_id``, ``qa_index`` (index of the question in its conversation),
    ``question`` and ``correct_evidence``. Lines without evidence, or about questions that the corpus lacks, are left
    out and counted in the notes.

    Raises:
        CorpusFormatError: If a line is malformed, its question is worded differently in the corpus, or its evidence is
            not a turn of the conversation.
    """
    questions = {q.question_id: q for q in corpus.questions}
    known = {c.space: {turn.turn_id for turn in c.turns} for c in corpus.conversations}
    corrections: dict[str, tuple[TurnId, ...]] = {}
    left_out = 0
    for number, item in json_lines(path):
        space = SpaceId(Record(item, path, None, f"line {number}").string("conversation_id"))
        record = Record(item, path, space, f"line {number}")
        question = questions.get(f"{space}:{item.get('qa_index')}")
        evidence = tuple(TurnId(turn) for turn in dict.fromkeys(record.strings("correct_evidence")))
        if question is None or not evidence:
            left_out += 1
            continue
        if record.string("question") != question.text:
            raise record.error("question", record.string("question"), f"{question.text!r}, as in the corpus")
        for turn in evidence:
            if turn not in known[space]:
                raise record.error("correct_evidence", turn, "the id of a turn of this conversation")
        corrections[question.question_id] = evidence
    notes = corpus.notes
    if left_out:
        notes = (*notes, f"{left_out} corrections name no evidence, or a question that was not read; they are left out")
    return replace(corpus, corrections=corrections, notes=notes)


def _utterances(record: Record) -> Iterator[Utterance]:
    conversation = record.record("conversation")
    numbers = sorted(int(m.group(1)) for key in conversation.data if (m := _SESSION.fullmatch(key)))
    seen: set[str] = set()
    for number in numbers:
        session = f"session_{number}"
        spoken_at = conversation.time(
            f"{session}_date_time",
            lambda clock: datetime.strptime(clock, _CLOCK),
            "a time such as '1:56 pm on 8 May, 2023'",
        )
        for turn in conversation.records(session):
            turn_id = turn.string("dia_id")
            if turn_id in seen:
                raise turn.error("dia_id", turn_id, "an id that no earlier turn has")
            seen.add(turn_id)
            text = turn.text("text")
            caption = turn.optional_string("blip_caption")
            if not (text.strip() or caption):
                raise turn.error("text", text, "a non-empty string, unless the turn shares an image")
            yield Utterance(turn_id, f"D{number}", turn.string("speaker"), text, spoken_at, caption)


def _question(entry: Record, space: SpaceId, index: int, known: set[TurnId]) -> tuple[Question, list[str]]:
    category = entry.data.get("category")
    if not isinstance(category, int) or category not in CATEGORIES:
        raise entry.error("category", category, f"one of {sorted(CATEGORIES)}")
    evidence: list[TurnId] = []
    lost: list[str] = []
    for cited in entry.strings("evidence", required=False):
        citations = _CITATION.findall(cited)
        if not citations:
            lost.append(cited[:60])
        for session, position in citations:
            turn_id = TurnId(f"D{int(session)}:{int(position)}")
            if turn_id not in known:
                lost.append(f"{cited[:60]} (no turn {turn_id})")
            elif turn_id not in evidence:
                evidence.append(turn_id)
    answer = entry.data.get("answer")
    question = Question(
        space,
        f"{space}:{index}",
        entry.string("question"),
        CATEGORIES[category],
        tuple(evidence),
        answer=None if answer is None else str(answer),
    )
    return question, lost


FORMAT = CorpusFormat(
    "locomo",
    read,
    keys=frozenset(["dia_id", "speaker_a"]),
    with_corrections=with_corrections,
    categories=("multi-hop", "temporal", "open-domain", "single-hop"),  # an adversarial question has no answer to find
    unanswerable=("adversarial",),
    listing=("multi-hop",),
    explained=("open-domain",),
    known_sha256={"79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4": "LoCoMo-10 as published"},
)
