"""Filters the hits of a strategy: folds near-duplicates, and keeps only the words of chosen speakers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

from locigraph.kg.language.tokens import normalised, telling_signs
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval.hits import searches
from locigraph.retrieval.protocols import DEFAULT_TOP_K, MOST_FOUND, Hit, Result, Retriever, Timing
from locigraph.retrieval.wrapping import WrappingRetriever

#: Reads, for each node, the speakers of the source turns that its text comes from; a deleted node is left out.
SpeakersOfNodes = Callable[[SpaceId, Sequence[NodeId]], Mapping[NodeId, frozenset[str]]]
#: Similarity from which two texts count as near-duplicates: one different word in about thirty is allowed.
DEFAULT_FOLD = 0.9
_GROWTH = 4
_MOST_COMPARED = 100
_MOST_KEPT = 5_000  # characters of a text whose pairs of words are kept for the next comparison
_Pair = tuple[str, str]


class FilteredRetriever(WrappingRetriever):
    """A strategy whose near-duplicate hits are folded, and whose hits may be limited to some speakers.

    A near-duplicate of a better hit, in the words of the same speakers, is removed, and its turns are listed in
    ``Hit.same`` of the better one. The strategy is asked for more hits until the list is full again.

    Args:
        retriever: The strategy.
        speakers_of: Reads the speakers of nodes.
        speakers: Names of speakers; a hit is kept only if all of its speakers are among them. None keeps all hits.
            Names that differ only in how Unicode composes their letters are the same.
        fold: Similarity in (0, 1] from which two texts count as near-duplicates; None folds nothing.
    """

    def __init__(
        self,
        retriever: Retriever,
        speakers_of: SpeakersOfNodes,
        *,
        speakers: Collection[str] | None = None,
        fold: float | None = DEFAULT_FOLD,
    ) -> None:
        super().__init__(retriever)
        self._speakers_of = speakers_of
        self._speakers = None if speakers is None else _composed(speakers)
        self._fold = fold

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; ``top_k`` counts the hits that are left after filtering."""
        timing = Timing()
        more = searches(self._retriever, query, space, as_of=as_of, top_k=top_k, growth=_GROWTH, most=MOST_FOUND)
        for result in more:
            timing += result.timing
            hits = self._filtered(result.hits, space)
            if len(hits) >= top_k:
                break
        return Result(tuple(hits), timing)

    def _filtered(self, hits: Sequence[Hit], space: SpaceId) -> list[Hit]:
        speakers = self._speakers_of(space, [hit.node_id for hit in hits])
        speakers_of = {node: _composed(names) for node, names in speakers.items()}
        if self._speakers is not None:
            hits = [hit for hit in hits if speakers_of.get(hit.node_id, frozenset(("",))) <= self._speakers]
        if self._fold is None:
            return list(hits)
        return folded(hits, [speakers_of.get(hit.node_id) for hit in hits], likeness=self._fold)


def folded(hits: Sequence[Hit], speakers_of: Sequence[object], *, likeness: float = DEFAULT_FOLD) -> list[Hit]:
    """Hits, best first, without near-duplicates of better ones.

    The similarity of two texts is the Jaccard index of their sets of adjacent word pairs: shared pairs / all pairs.
    Hits of different speakers are never folded, so that nobody can displace the words of another speaker by repeating
    them with a small change.

    Near-duplicates always share one of their rarest pairs, so a text is compared only with those that do, and with at
    most the best 100 of them: the time grows with the number of hits, not with its square.

    Args:
        hits: Hits, best first.
        speakers_of: Speakers of each hit, [hits].
        likeness: Similarity in (0, 1] from which two texts count as near-duplicates.

    Source:
        Broder 1997, "On the resemblance and containment of documents", with shingles of two words; Bayardo et al. 2007,
        "Scaling up all pairs similarity search", for the comparisons that can be skipped.
    """
    pairs_of = [_pairs(hit.text) for hit in hits]
    counts = Counter(pair for pairs in pairs_of for pair in pairs)
    kept: list[Hit] = []
    seen: list[frozenset[_Pair]] = []
    same: list[dict[TurnId, None]] = []
    sharing: defaultdict[tuple[object, _Pair], list[int]] = defaultdict(list)  # indices in kept, by voice and rare pair
    for hit, voice, pairs in zip(hits, speakers_of, pairs_of, strict=True):
        # At most ``most_apart`` pairs may be in one text only, so the rarest shared pair is among these in both texts.
        most_apart = len(pairs) - math.ceil(likeness * len(pairs))
        rare = sorted(pairs, key=lambda pair: (counts[pair], pair))[: most_apart + 1]
        near = sorted({place for pair in rare for place in sharing[voice, pair]})[:_MOST_COMPARED]
        twin = next((place for place in near if _alike(pairs, seen[place], likeness)), None)
        if twin is None:
            for pair in rare:
                if len(sharing[voice, pair]) < _MOST_COMPARED:
                    sharing[voice, pair].append(len(kept))
            kept.append(hit)
            seen.append(pairs)
            same.append(dict.fromkeys(hit.same))
        else:
            same[twin].update(dict.fromkeys((*hit.turn_ids, *hit.same)))
    return [
        replace(hit, same=tuple(turn for turn in turns if turn not in hit.turn_ids)) if turns else hit
        for hit, turns in zip(kept, same, strict=True)
    ]


def _composed(names: Iterable[str]) -> frozenset[str]:
    return frozenset(normalised("NFC", name) for name in names)


def _pairs(text: str) -> frozenset[_Pair]:
    return _kept_pairs(text) if len(text) <= _MOST_KEPT else _kept_pairs.__wrapped__(text)


def forget_compared_texts() -> None:
    """Keep nothing of the texts that were compared, since one of them is forgotten."""
    _kept_pairs.cache_clear()


@lru_cache(1_000)  # the same texts are found again and again
def _kept_pairs(text: str) -> frozenset[_Pair]:
    bounded = ["", *telling_signs(text), ""]
    return frozenset(pairwise(bounded))


def _alike(mine: frozenset[_Pair], other: frozenset[_Pair], likeness: float) -> bool:
    # Sizes are compared first: most texts differ so much in size that no overlap would be enough.
    small, large = sorted((len(mine), len(other)))
    return small >= likeness * large and len(mine & other) >= likeness * len(mine | other)
