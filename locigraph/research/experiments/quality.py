"""Evaluates an extraction against a recorded one of the same turns: coverage of facts, duplicates, dates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.counts import Counts
from locigraph.kg.types import TurnId

#: Lowest cosine at which two statements of a conversation count as duplicates.
SAME = 0.95


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact or event that was extracted.

    Attributes:
        text: What it says.
        turn_ids: The turns it came from.
        days: First and last day of the event; None if unknown.
    """

    text: str
    turn_ids: tuple[TurnId, ...]
    days: tuple[date, date] | None = None


@dataclass(frozen=True, slots=True)
class Quality(Counts):
    """Counts over conversations.

    Attributes:
        recorded: Number of recorded (reference) statements.
        covered: Recorded statements to which a similar statement with a common source turn was made.
        made: Number of statements made by the extraction under evaluation.
        repeated: Made statements that duplicate an earlier one (cosine at least ``SAME``).
        dated: Covered statements with recorded days.
        right: Dated statements whose most similar made statement has the same days.
    """

    recorded: int = 0
    covered: int = 0
    made: int = 0
    repeated: int = 0
    dated: int = 0
    right: int = 0

    def shares(self) -> dict[str, float | None]:
        """Shares of recorded statements covered, of made ones repeated, and of days right; None if the total is 0."""
        parts = {"covered": (self.covered, self.recorded), "repeated": (self.repeated, self.made)}
        parts["dates_right"] = (self.right, self.dated)
        return {name: count / total if total else None for name, (count, total) in parts.items()}


def quality(
    made: Sequence[Statement],
    made_vectors: NDArray[np.float32],
    recorded: Sequence[Statement],
    recorded_vectors: NDArray[np.float32],
    *,
    threshold: float,
) -> Quality:
    """Compare the statements of one conversation with the recorded ones.

    Args:
        made: Statements to evaluate, oldest first.
        made_vectors: Their L2-normalised embeddings, float32 [made, dim].
        recorded: Reference statements.
        recorded_vectors: Their L2-normalised embeddings, float32 [recorded, dim].
        threshold: Lowest cosine at which a statement covers a recorded one, if they have a common source turn.
    """
    covered = dated = right = 0
    if made and recorded:
        cosines = recorded_vectors @ made_vectors.T
        sources = [set(statement.turn_ids) for statement in made]
        for row, wanted in zip(cosines, recorded, strict=True):
            common = np.array([not turns.isdisjoint(wanted.turn_ids) for turns in sources])
            near = np.where(common, row, -1.0)
            best = int(near.argmax())
            if near[best] < threshold:
                continue
            covered += 1
            if wanted.days is not None:
                dated += 1
                right += made[best].days == wanted.days
    repeated = 0
    if made:
        among = np.tril(made_vectors @ made_vectors.T, -1)  # cosine of each statement with the earlier ones
        repeated = int((among >= SAME).any(axis=1).sum())
    return Quality(len(recorded), covered, len(made), repeated, dated, right)
