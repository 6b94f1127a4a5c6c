"""What ``training.explanation`` finds: the parts of a turn's score. Read by commands that load no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from locigraph.kg.types import NodeId, TurnId


@dataclass(frozen=True, slots=True)
class Influence:
    """What one neighbour adds to a turn's score.

    Attributes:
        node_id: The neighbour.
        relation: Name of the network's relation between neighbour and turn, such as ``fact`` or ``previous``.
        description: The neighbour's text.
        meaning, words, date: Its shares of the score by the text block, the lexical block and the context block.
        effect: By how much the score falls when the edge is deleted from the graph and all weights are computed anew.
            It may be negative: without an irrelevant neighbour, the others of its relation count for more.
    """

    node_id: NodeId
    relation: str
    description: str
    meaning: float
    words: float
    date: float
    effect: float

    @property
    def total(self) -> float:
        """Sum of its shares."""
        return self.meaning + self.words + self.date


@dataclass(frozen=True, slots=True)
class Explanation:
    """A turn's score and its parts; ``score`` is their sum.

    Attributes:
        turn_id: ID of the turn.
        description: The turn's text.
        score: Inner product of question and stored vector.
        own_meaning, own_words, own_context: The turn's own shares (context: its speaker and date).
        bias: What the turn's traits add, whatever the question.
        influences: What each neighbour adds, greatest effect first.
    """

    turn_id: TurnId
    description: str
    score: float
    own_meaning: float
    own_words: float
    own_context: float
    bias: float
    influences: tuple[Influence, ...]

    def as_json(self) -> dict[str, object]:
        """The explanation as a JSON object, with the fields of its influences."""
        return asdict(self) | {"influences": [asdict(each) for each in self.influences]}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Explanation:
        """Inverse of ``as_json``."""
        return cls(**{**given, "influences": tuple(Influence(**each) for each in given["influences"])})
