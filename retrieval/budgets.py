"""How much a context may hold: limits in tokens, words and memories of each kind."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from locigraph.kg.schema import EPISODE

#: A line of dialogue with its date and IDs has about 35 tokens. These lower values allow for shorter lines, of which
#: more are needed to fill a budget.
TOKENS_PER_HIT, WORDS_PER_HIT = 20, 10
_KINDS = {EPISODE: "episodes", "reflection": "reflections"}  # all others are facts
#: Stands for no limit.
UNLIMITED = sys.maxsize
# Six letters are a little more than a token of the usual vocabularies, so a long word counts as several tokens. Of
# scripts without blanks between words, a letter is about one.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u3400-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{1,6}}|[^\w\s]")


def count_tokens(text: str) -> int:
    """Estimated number of language-model tokens: runs of up to six letters or digits, and other single characters.

    Each letter of Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer is one.

    It needs no model's vocabulary, so that budgets mean the same everywhere.
    """
    return len(_TOKEN.findall(text))


def parts_of_tokens(text: str, tokens: int) -> list[str]:
    """A text in parts of so many tokens; the last may have fewer."""
    ends = [match.end() for match in _TOKEN.finditer(text)][tokens - 1 : -1 : tokens]
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)])]


@dataclass(frozen=True, slots=True)
class KindLimits:
    """Largest numbers of memories of each kind; facts include events. A kind that is not named has no limit."""

    facts: int = UNLIMITED
    reflections: int = UNLIMITED
    episodes: int = UNLIMITED

    @property
    def total(self) -> int:
        """Sum of the limits."""
        return self.facts + self.reflections + self.episodes

    def within(self, other: KindLimits) -> KindLimits:
        """The smaller of both limits for each kind."""
        return KindLimits(
            min(self.facts, other.facts),
            min(self.reflections, other.reflections),
            min(self.episodes, other.episodes),
        )

    def mask(self, types: Sequence[str]) -> list[bool]:
        """Which memories are within the limits.

        Args:
            types: Node types of the memories, best first.
        """
        left = RemainingBudget(Budget(kinds=self))
        return [left.take((0, 0), name) for name in types]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a context may hold; what is not named has no limit.

    Attributes:
        tokens: Tokens of all lines, including dates and IDs, by ``count_tokens``.
        words: Words of all lines, separated by white space.
        kinds: Limits by kind of memory.
    """

    tokens: int = UNLIMITED
    words: int = UNLIMITED
    kinds: KindLimits = KindLimits()

    def within(self, other: Budget) -> Budget:
        """The stricter of both budgets in each respect."""
        return Budget(min(self.tokens, other.tokens), min(self.words, other.words), self.kinds.within(other.kinds))


@dataclass(frozen=True, slots=True)
class ContextRules:
    """Rules of a strategy for packing its contexts.

    Attributes:
        budget: Its own limits, which apply in addition to those of the caller.
        brevity: Whether to note how many memories were left out between two lines, as far as the budget allows.
    """

    budget: Budget = Budget()
    brevity: bool = False


class RemainingBudget:
    """What is left of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._tokens, self._words, self._kinds = budget.tokens, budget.words, budget.kinds
        self._taken: Counter[str] = Counter()

    def is_used_up(self, costs: Sequence[tuple[int, int]]) -> bool:
        """Whether a line of average cost, or at least of the cost assumed for a short line, would no longer fit."""
        tokens, words = np.mean(costs, axis=0) if costs else (0, 0)
        return bool(self._tokens < max(tokens, TOKENS_PER_HIT) or self._words < max(words, WORDS_PER_HIT))

    def take(self, cost: tuple[int, int], node_type: str | None = None) -> bool:
        """Deduct the cost of a line from the budget; False, and nothing is deducted, if the line does not fit."""
        tokens, words = cost
        kind = None if node_type is None else _KINDS.get(node_type, "facts")
        has_room = kind is None or self._taken[kind] < getattr(self._kinds, kind)
        if not has_room or tokens > self._tokens or words > self._words:
            return False
        self._tokens, self._words = self._tokens - tokens, self._words - words
        if kind is not None:
            self._taken[kind] += 1
        return True
