"""Exports of other programs, which are edited and renamed there: what of them a store knows, or has forgotten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from locigraph.kg.corpora import FORMATS, Conversation, Corpus
from locigraph.kg.counts import counted
from locigraph.kg.language.redaction import redacted_turn
from locigraph.kg.store import Store
from locigraph.kg.store.alike import Mark, marks_of, recognised
from locigraph.kg.store.rows import content_of
from locigraph.kg.types import SpaceId, Turn, TurnId


def as_first_stored(
    corpus: Corpus, store: Store, forgotten: Mapping[SpaceId, AbstractSet[TurnId]]
) -> tuple[Corpus, list[str]]:
    """A corpus of an export without its edits: turns that the store has with other content are as in the store.

    Other programs let messages be edited and people be renamed, while the content of a stored turn never changes. For
    the same reason forgotten turns are left out. Where ids are made of content, turns under another id are recognised
    too. A turn that differs from the stored one only because secrets were replaced in one of them stays as it is, so
    that appending it is an error.

    Args:
        corpus: The corpus.
        store: The store.
        forgotten: The forgotten turns of each space, as ``forgotten_of`` gives them.

    Returns:
        The corpus, and a line that says how many turns were edited, if any. Other formats are returned as they are.
    """
    if not FORMATS[corpus.format].is_export:
        return corpus, []
    known, edited, conversations = {*store.spaces()}, 0, list[Conversation]()
    for conversation in corpus.conversations:
        space = conversation.space
        held = {turn.turn_id: turn for turn in store.turns(space)} if space in known else {}
        turns = [turn for turn in conversation.turns if turn.turn_id not in forgotten[space]]
        same = _under_other_ids(turns, held) if FORMATS[corpus.format].makes_ids else {}
        for place, turn in enumerate(turns):
            stored = held.get(same.get(turn.turn_id, turn.turn_id), turn)
            if _is_edited(stored, turn):
                turns[place] = replace(stored, position=turn.position)
                edited += 1
        conversations.append(replace(conversation, turns=tuple(turns)))
    verb = "was" if edited == 1 else "were"
    notes = [f"{counted(edited, 'turn')} {verb} edited or renamed since; kept as first stored"] if edited else []
    return replace(corpus, conversations=tuple(conversations)), notes


def forgotten_of(corpus: Corpus, store: Store) -> dict[SpaceId, frozenset[TurnId]]:
    """Which turns of each conversation were forgotten, those of exports under other ids included."""
    forgotten = {}
    for conversation in corpus.conversations:
        space, turns = conversation.space, conversation.turns
        gone = store.forgotten(space, [turn.turn_id for turn in turns])
        forgotten[space] = gone | store.forgotten_alike(space, turns) if FORMATS[corpus.format].makes_ids else gone
    return forgotten


def _under_other_ids(turns: list[Turn], held: dict[TurnId, Turn]) -> dict[TurnId, TurnId]:
    """The id in the store of each turn that the export has under another one."""
    given = {turn.turn_id for turn in turns}
    marks: defaultdict[Mark, list[TurnId]] = defaultdict(list)
    for turn in held.values():
        for mark in marks_of(turn) if turn.turn_id not in given else ():
            marks[mark].append(turn.turn_id)
    return recognised([turn for turn in turns if turn.turn_id not in held], marks)


def _is_edited(stored: Turn, turn: Turn) -> bool:
    if stored.turn_id == turn.turn_id and content_of(stored) == content_of(turn):
        return False
    return content_of(redacted_turn(stored)) != content_of(redacted_turn(turn))
