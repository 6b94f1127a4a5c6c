"""Filters the hits of a strategy: folds near-duplicates, and keeps only the words of chosen speakers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache, partial
from itertools import pairwise
from typing import Protocol

from locigraph.kg.language.dated_texts import undated
from locigraph.kg.language.tokens import normalised, telling_as_written, telling_signs, words
from locigraph.kg.text_caches import cached
from locigraph.kg.types import NodeId, Replacement, Said, SpaceId, Turn
from locigraph.retrieval.conditions import Condition
from locigraph.retrieval.hits import searches
from locigraph.retrieval.protocols import DEFAULT_TOP_K, MOST_FOUND, Hit, Result, Retriever, Timing
from locigraph.retrieval.wrapping import WrappingRetriever


class Known(Protocol):
    """What is known of a node beside its text."""

    @property
    def speakers(self) -> frozenset[str]:
        """Those whose words it contains."""

    @property
    def spoken_at(self) -> datetime | None:
        """When the last of these words were spoken; None if that is not known."""

    @property
    def until(self) -> date | None:
        """The day on which something later took its place; None while it holds, and if that is not known."""

    @property
    def replaced(self) -> Sequence[Replacement]:
        """What has taken its place."""

    @property
    def said(self) -> Sequence[Said]:
        """The turns whose words it contains."""


#: Reads what is known of nodes; a deleted node is left out.
OriginsOfNodes = Callable[[SpaceId, Sequence[NodeId]], Mapping[NodeId, Known]]
#: Similarity from which two texts count as near-duplicates: one different word in about thirty is allowed.
DEFAULT_FOLD = 0.9
_GROWTH = 4
_MOST_COMPARED = 100
_Pair = tuple[str, str]
#: The words and signs of a text in lower case, and those among them that are a sign, a number, a name, a date or a
#: negation.
_Telling = tuple[tuple[str, ...], frozenset[str]]
_ORNAMENTS = frozenset("*#~`^|@&?")  # mark up what is said, or end it
_EVER = datetime.min.replace(tzinfo=UTC)
# Words without capitals that change what a sentence says: negations of some languages, numbers, and days.
_TURNING = frozenset(
    words(
        "not no never none nobody nothing nowhere neither nor without cannot t dont doesnt didnt cant couldnt wont "
        "wouldnt shouldnt isnt arent wasnt werent havent hasnt aint nicht nie kein keine keinen niemand nichts ohne "
        "ne pas jamais rien personne aucun sans nunca nada nadie sin non mai niente senza nao não nem sem niet geen "
        "nooit не нет нельзя никогда inte ej aldrig ikke ingen aldri ei zero one two three four five six seven eight "
        "nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty "
        "fifty sixty seventy eighty ninety hundred thousand million half first second third fourth fifth today "
        "tomorrow yesterday monday tuesday wednesday thursday friday saturday sunday january february march april may "
        "june july august september october november december lunes martes miércoles jueves viernes sábado domingo "
        "lundi mardi mercredi jeudi vendredi samedi dimanche lunedì martedì mercoledì giovedì venerdì sabato domenica "
        "montag dienstag mittwoch donnerstag freitag samstag sonntag maandag dinsdag woensdag donderdag vrijdag "
        "zaterdag zondag segunda terça quarta quinta sexta"
    )
)


class FilteredRetriever(WrappingRetriever):
    """A strategy whose near-duplicate hits are folded, and whose hits may be limited to some speakers.

    A near-duplicate of a better hit, in the words of the same speakers, is removed, and its turns are listed in
    ``Hit.same`` of the better one. The strategy is asked for more hits until the list is full again.

    Args:
        retriever: The strategy.
        origins_of: Reads whose words nodes contain, and whether they still hold.
        speakers: Names of speakers; a hit is kept only if all of its speakers are among them. None keeps all hits.
            Names that differ only in how Unicode composes their letters are the same.
        condition: What all turns whose words a hit contains must satisfy, as ``retrieval.conditions`` reads it; None
            for no condition.
        now: Hits with words that expire until then are left out; None if none do.
        fold: Similarity in (0, 1] from which two texts count as near-duplicates; None folds nothing.
    """

    def __init__(
        self,
        retriever: Retriever,
        origins_of: OriginsOfNodes,
        *,
        speakers: Collection[str] | None = None,
        condition: Condition | None = None,
        now: datetime | None = None,
        fold: float | None = DEFAULT_FOLD,
    ) -> None:
        super().__init__(retriever)
        self._origins_of = origins_of
        self._speakers = speakers
        self._condition = condition
        self._now = now
        self._fold = fold
        #: Whether the last search ended with fewer hits than wanted, though others may follow the best 16,384.
        self.is_cut_off = False

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; ``top_k`` counts the hits that are left after filtering."""
        timing = Timing()
        more = searches(self._retriever, query, space, as_of=as_of, top_k=top_k, growth=_GROWTH, most=MOST_FOUND)
        for result in more:
            timing += result.timing
            hits = self._filtered(result.hits, space, as_of)
            if len(hits) >= top_k:
                break
        is_limited = self._speakers is not None or self._condition is not None
        self.is_cut_off = is_limited and len(hits) < top_k and len(result.hits) >= MOST_FOUND
        return Result(tuple(hits), timing)

    def _filtered(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None) -> list[Hit]:
        known = self._origins_of(space, [hit.node_id for hit in hits])
        speakers_of = {node: _composed(each.speakers) for node, each in known.items()}
        if self._speakers is not None or self._condition is not None or self._now is not None:
            shown = partial(is_shown, speakers=self._speakers, condition=self._condition, now=self._now)
            hits = [hit for hit in hits if hit.node_id in known and shown(known[hit.node_id], hit.type)]
        if self._fold is None:
            return list(hits)
        dated = [replace(hit, spoken_at=each.spoken_at if (each := known.get(hit.node_id)) else None) for hit in hits]
        holds = {
            node
            for node, each in known.items()
            if (not each.replaced if each.until is None else as_of and each.until > as_of.date())
        }
        voices = [(speakers_of.get(node), node in holds) for node in _ids(hits)]
        return folded(dated, voices, likeness=self._fold)


def is_kept(said: Said | Turn, now: datetime | None) -> bool:
    """Whether a turn has not expired at a time (None: nothing expires)."""
    return now is None or said.expires_at is None or said.expires_at > now


def admitted(said: Said, node_type: str, *, condition: Condition | None, now: datetime | None) -> bool:
    """Whether a turn has not expired, and satisfies the condition on the turns of nodes of a type (None: any does)."""
    return is_kept(said, now) and (condition is None or condition(said, node_type))


def is_shown(
    known: Known,
    node_type: str,
    *,
    speakers: Collection[str] | None,
    condition: Condition | None,
    now: datetime | None,
) -> bool:
    """Whether an answer may show a node, with the limits of ``FilteredRetriever``."""
    if speakers is not None and not _composed(known.speakers) <= _composed(speakers):
        return False
    admits = all(admitted(each, node_type, condition=condition, now=now) for each in known.said)
    return admits and (condition is None or bool(known.said))


def folded(hits: Sequence[Hit], voices: Sequence[object], *, likeness: float = DEFAULT_FOLD) -> list[Hit]:
    """Hits, best first, with one place for near-duplicates: that of the best, which the newest takes.

    The similarity of two texts is the Jaccard index of their sets of adjacent word pairs: shared pairs / all pairs.
    However similar, texts are no duplicates if they differ in a number, a sign, a name, a date or a negation. Hits of
    different voices are never folded, so that nobody can displace the words of another speaker by repeating them with a
    small change, and what holds is never hidden behind what has ended. A fact that repeats its own turn, but for the
    days added to it, takes no second place.

    Near-duplicates always share one of their rarest pairs, so a text is compared only with those that do, and with at
    most the best 100 of them: the time grows with the number of hits, not with its square.

    Args:
        hits: Hits, best first.
        voices: What near-duplicates must have in common, such as their speakers, [hits].
        likeness: Similarity in (0, 1] from which two texts count as near-duplicates.

    Source:
        Broder 1997, "On the resemblance and containment of documents", with shingles of two words; Bayardo et al. 2007,
        "Scaling up all pairs similarity search", for the comparisons that can be skipped.
    """
    pairs_of = [_pairs(hit.text) for hit in hits]
    counts = Counter(pair for pairs in pairs_of for pair in pairs)
    telling = cache(lambda at: _telling(hits[at].text))  # asked for few: those that are alike otherwise
    kept: list[list[int]] = []  # of near-duplicates the places in hits, of which the first is the best

    def are_alike(one: int, other: int) -> bool:
        return _alike(pairs_of[one], pairs_of[other], likeness) and _tell_the_same(telling(one), telling(other))

    sharing: defaultdict[tuple[object, _Pair], list[int]] = defaultdict(list)  # indices in kept, by voice and rare pair
    places: dict[tuple[object, ...], int] = {}  # the same, by voice, turns and text
    for at, (voice, pairs) in enumerate(zip(voices, pairs_of, strict=True)):
        said = voice, hits[at].turn_ids, undated(hits[at].text)
        if said in places:
            kept[places[said]].append(at)
            continue
        # At most ``most_apart`` pairs may be in one text only, so the rarest shared pair is among these in both texts.
        most_apart = len(pairs) - math.ceil(likeness * len(pairs))
        rare = sorted(pairs, key=lambda pair: (counts[pair], pair))[: most_apart + 1]
        near = sorted({place for pair in rare for place in sharing[voice, pair]})[:_MOST_COMPARED]
        twin = next((place for place in near if are_alike(at, kept[place][0])), None)
        if twin is None:
            for pair in rare:
                if len(sharing[voice, pair]) < _MOST_COMPARED:
                    sharing[voice, pair].append(len(kept))
            twin = len(kept)
            kept.append([at])
        else:
            kept[twin].append(at)
        places[said] = twin
    return [_led_by_newest([hits[at] for at in group]) for group in kept]


def _led_by_newest(alike: Sequence[Hit]) -> Hit:
    """The newest of near-duplicates, in the place and with the score of the first, with the turns of all others."""
    best = alike[0]
    if len(alike) == 1:
        return best
    newest = max(alike, key=lambda hit: (hit.spoken_at is not None, hit.spoken_at or _EVER))  # the first of equal ones
    others = [hit for hit in alike if hit is not newest]
    turns = dict.fromkeys(turn for hit in (newest, *others) for turn in (*hit.turn_ids, *hit.same))
    times = [time for hit in others for time in (hit.spoken_at, *hit.again) if time is not None]
    return replace(
        newest,
        score=best.score,
        signals=best.signals,
        confidence=best.confidence,
        same=tuple(turn for turn in turns if turn not in newest.turn_ids),
        again=tuple(sorted({*newest.again, *times})),
    )


def _ids(hits: Iterable[Hit]) -> list[NodeId]:
    return [hit.node_id for hit in hits]


def _composed(names: Iterable[str]) -> frozenset[str]:
    return frozenset(normalised("NFC", name) for name in names)


@cached(1_000)  # the same texts are found again and again
def _pairs(text: str) -> frozenset[_Pair]:
    bounded = ["", *telling_signs(text), ""]
    return frozenset(pairwise(bounded))


def _telling(text: str) -> _Telling:
    found = [word for word in telling_as_written(text) if word not in _ORNAMENTS]
    lowered = tuple(word.lower() for word in found)
    names = {low for word, low in zip(found, lowered, strict=True) if word[0].isupper() or not word.isalpha()}
    return lowered, frozenset(names | (_TURNING & {*lowered}))


def _tell_the_same(one: _Telling, other: _Telling) -> bool:
    """Whether two texts have the same numbers, names, dates and negations in the same order."""
    if one[0] == other[0]:
        return True
    matters = one[1] | other[1]
    return [word for word in one[0] if word in matters] == [word for word in other[0] if word in matters]


def _alike(mine: frozenset[_Pair], other: frozenset[_Pair], likeness: float) -> bool:
    # Sizes are compared first: most texts differ so much in size that no overlap would be enough.
    small, large = sorted((len(mine), len(other)))
    return small >= likeness * large and len(mine & other) >= likeness * len(mine | other)
