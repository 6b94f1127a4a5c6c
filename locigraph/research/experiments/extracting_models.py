"""Tells the language models of ``evaluate-consolidation`` apart, and keeps with each one's graph what it took."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from locigraph.assembly.language_models import of_stage
from locigraph.assembly.settings import LLMSettings
from locigraph.consolidation.errors import LanguageModelError
from locigraph.consolidation.ledger import Origin, Purpose
from locigraph.consolidation.prompting import prompt
from locigraph.kg.corpora import Conversation
from locigraph.kg.counts import STORED_NAMES, Spent
from locigraph.kg.store import Store
from locigraph.kg.store.remembered import of_space
from locigraph.kg.types import SpaceId, TurnState

#: What decides the replies of language models, by stage and part; as JSON it is part of a result.
Setup = Mapping[str, Mapping[str, Any]]
#: Rows of the table that are no language model's.
REFERENCES = ("rules", "recorded")
_ARCHITECT, _SCRIBE = "architect", "scribe"
# Settings of a graph: usage that was recorded with the replies of each space, and seconds and number of turns made.
_RECORDED, _TIME = "recorded_usage", "time_of_turns"


def setup_of(llm: LLMSettings) -> Setup:
    """What decides the replies of the models: names, endpoints (or the replayed cassette), parameters and prompts."""
    setup = {}
    for stage in (_ARCHITECT, _SCRIBE):
        used = of_stage(llm, stage)
        setup[stage] = {
            "model": used.model,
            "endpoint": f"replay of {llm.cassette}" if llm.mode == "replay" else (used.base_url or "").rstrip("/"),
            "temperature": used.temperature,
            "max_output_tokens": used.max_output_tokens,
            "prompt": digest(prompt(stage)),
        }
    return setup


def digest(value: Any) -> str:
    """A short hash of data that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def names_of(setups: Sequence[Setup]) -> list[str]:
    """A name for each setup, all different: its models, followed by what distinguishes it from others of these models.

    No name is one of ``REFERENCES``.
    """
    names: list[str] = []
    for setup in setups:
        name = _joined(setup, "model")
        same = [other for other in setups if _joined(other, "model") == name]
        differs = {part: len({digest(_values(other, part)) for other in same}) > 1 for part in setup[_ARCHITECT]}
        parts = [part for part, is_different in differs.items() if is_different and part != "model"]
        if name in REFERENCES and not parts:
            parts = ["endpoint"]
        if parts:
            told = (_joined(setup, part) if part == "endpoint" else f"{part} {_joined(setup, part)}" for part in parts)
            name += f" ({', '.join(told)})"
        if name in names:  # model "a + b" beside models "a" and "b"
            name += f" [{digest(setup)}]"
        names.append(name)
    return names


class RecordedReplies:
    """Takes note of recorded replies that are used again, and refuses those of another endpoint than the named one.

    Args:
        llm: The models. In ``replay`` mode no endpoint is named, and none is refused.
    """

    def __init__(self, llm: LLMSettings) -> None:
        self._llm = llm
        self._setup = setup_of(llm)
        self.used: dict[Purpose, Spent | None] = {}

    def __call__(self, purpose: Purpose, origin: Origin | None) -> None:
        """To be called with each recorded reply; raises LanguageModelError to refuse it."""
        named = self._setup[purpose.stage]["endpoint"]
        if self._llm.mode != "replay" and origin is not None and origin.endpoint.rstrip("/") != named:
            raise LanguageModelError(
                f"{self._llm.cassette}: the {purpose.stage}'s reply about turn {purpose.turn_id!r} was recorded at "
                f"{origin.endpoint}, not at {named}; name another llm.cassette or none, or set llm.mode to replay to "
                "evaluate the recorded replies"
            )
        self.used[purpose] = None if origin is None else origin.spent


@contextmanager
def kept_with(graph: Store, replies: RecordedReplies) -> Iterator[None]:
    """Keep with a graph the time in which turns are made here, and the usage of recorded replies; even after an error.

    The time does not count if it is not that of the models: if a reply was recorded elsewhere, or no turn was made.
    """
    begun, before = time.perf_counter(), _settled(graph)
    try:
        yield
    finally:
        seconds, turns = time.perf_counter() - begun, _settled(graph) - before
        if turns and not _keep_recorded(graph, replies.used):
            earlier = json.loads(graph.setting(_TIME) or "[0, 0]")
            graph.remember({_TIME: json.dumps([earlier[0] + seconds, earlier[1] + turns])})


def seconds_per_turn(graph: Store) -> float | None:
    """Seconds per turn over all runs that made turns of a graph; None if unknown."""
    seconds, turns = json.loads(graph.setting(_TIME) or "[0, 0]")
    return seconds / turns if turns else None


def usage_of(graph: Store, conversations: Sequence[Conversation]) -> dict[str, Any]:
    """Usage for some conversations of a graph, that of recorded replies included, for the row of a result.

    It is given in all and by stage; counts are None where the usage of any reply is unknown.
    """
    total: Spent | None = Spent()
    stages: dict[str, Spent | None] = {}
    for conversation in conversations:
        space = conversation.space
        # The architect is asked about every turn, so that a turn without any usage is one whose usage is unknown.
        unknown = {(turn.turn_id, _ARCHITECT): None for turn in conversation.turns}
        for (_, stage), spent in (unknown | _recorded(graph, space) | graph.spent(space)).items():
            stages[stage] = _sum(stages.get(stage, Spent()), spent)
            total = _sum(total, spent)
    counts = dict.fromkeys((*STORED_NAMES, "tokens")) if total is None else total.stored() | {"tokens": total.tokens}
    return {**counts, "stages": {stage: spent and spent.stored() for stage, spent in stages.items()}}


def _sum(one: Spent | None, other: Spent | None) -> Spent | None:
    return None if one is None or other is None else one + other


def _keep_recorded(graph: Store, used: Mapping[Purpose, Spent | None]) -> bool:
    """Add to the usage of recorded replies in a graph; whether any of them was recorded elsewhere.

    A run that was interrupted within a turn has left replies to which the graph's own usage belongs.
    """
    is_foreign = False
    by_space: dict[SpaceId, dict[tuple[str, str], Spent | None]] = {}
    for purpose, spent in used.items():
        if purpose.space is not None:
            by_space.setdefault(purpose.space, {})[purpose.turn_id or "", purpose.stage] = spent
    for space, new in by_space.items():
        is_foreign |= not new.keys() <= graph.spent(space).keys()
        held = [
            [turn_id, stage, spent and spent.stored()]
            for (turn_id, stage), spent in (_recorded(graph, space) | new).items()
        ]
        graph.remember({of_space(_RECORDED, space): json.dumps(held)})
    return is_foreign


def _recorded(graph: Store, space: SpaceId) -> dict[tuple[str, str], Spent | None]:
    """Usage that was recorded with the replies for a space, by turn and stage; None where it is unknown."""
    held = json.loads(graph.setting(of_space(_RECORDED, space)) or "[]")
    return {(turn_id, stage): spent and Spent.of_stored(spent) for turn_id, stage, spent in held}


def _settled(graph: Store) -> int:
    """Number of turns of a graph that are not pending."""
    counts = [graph.turn_counts(space) for space in graph.spaces()]
    return sum(count.total() - count[TurnState.PENDING] for count in counts)


def _values(setup: Setup, part: str) -> list[Any]:
    return [stage.get(part) for stage in setup.values()]


def _joined(setup: Setup, part: str) -> str:
    return " + ".join(dict.fromkeys(map(str, _values(setup, part))))
