"""Fits the weights of ``retrieval.confidence`` and measures them on kinds of talk that they were not fitted on.

``python -m benchmarks.confidence --stores threads.sqlite,voices.sqlite,duets.sqlite`` with stores that ``locigraph
build`` made of these corpora; ``--tested PATH --tested_stores STORE`` names further corpora, which are only tested.

For each question with evidence, v2 is asked (a) as it is, (b) with the turns of its evidence taken out of what it
found, (c) naming another speaker of the conversation in place of the one it names, and (d) in another conversation of
the corpus, none of which should be answered but (a); (e) are the questions of the corpus that have no answer.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.records import options_of, write
from locigraph.assembly.graphs import require_same_turns
from locigraph.assembly.settings import REMEMBERED
from locigraph.kg.corpora import load_corpus
from locigraph.kg.corpora.corpus import Corpus
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, TurnId, TurnState
from locigraph.memory import Memory
from locigraph.retrieval.confidence import READ, as_judged, features_of
from locigraph.retrieval.protocols import Hit

_KINDS = ("evidence removed", "other speaker", "other conversation")  # each a third of the unanswerable in the fit
_HITS = 20  # of a question, whose own probability is fitted


class Asked(NamedTuple):
    """What was found for a question."""

    kind: str  # "answered", "unanswerable", or one of _KINDS
    features: tuple[float, ...]
    hits: list[tuple[float, float, bool]]  # log(1 + rank), distance to the best score, whether it is evidence


def asked(corpus: Corpus, store: str, *, cache: str | None = None, seed: int = 0) -> Iterator[Asked]:
    """Ask all questions of a corpus in all ways."""
    draw = random.Random(seed)
    turns = {(turn.space, turn.turn_id): turn.speaker for each in corpus.conversations for turn in each.turns}
    spaces = sorted({space for space, _ in turns})
    speakers = {space: sorted({who for (where, _), who in turns.items() if where == space}) for space in spaces}
    with Memory.open(store, encoder=replace(REMEMBERED, cache=cache)) as memory:

        def of(
            question: str, space: SpaceId, kind: str, evidence: Sequence[TurnId] = (), *, without: bool = False
        ) -> Asked:
            found = memory.recall(question, space=space, top_k=READ + len(evidence), fold=None, strategy="v2")
            hits = [hit for hit in found if not (without and {*hit.turn_ids} & {*evidence})]
            voices = {hit.node_id: frozenset(turns[space, turn] for turn in hit.turn_ids) for hit in hits}
            judged = as_judged(hits)
            features = features_of(question, sorted(judged, key=lambda hit: -hit.score), voices)
            if features is None:
                raise SystemExit(f"{store}: nothing was found in space {space!r}; build the store again")
            return Asked(kind, astuple(features), list(_rows_of(judged, evidence)))

        for question in tqdm(corpus.questions, desc=corpus.path, unit="question"):
            text, space = question.text, question.space
            ways = [
                of(text, space, "answered", question.evidence),
                of(text, space, _KINDS[0], question.evidence, without=True),
            ]
            swapped = _other_speaker(text, speakers[space])
            if swapped is not None:
                ways.append(of(swapped, space, _KINDS[1]))
            if len(spaces) > 1:
                ways.append(of(text, draw.choice([each for each in spaces if each != space]), _KINDS[2]))
            yield from ways
        for question in corpus.unanswerable:
            yield of(question.text, question.space, "unanswerable")


def _rows_of(judged: Sequence[Hit], evidence: Sequence[str]) -> Iterator[tuple[float, float, bool]]:
    best = max((hit.score for hit in judged), default=0.0)
    for rank, hit in enumerate(judged[:_HITS]):
        yield float(np.log1p(rank)), best - hit.score, bool({*hit.turn_ids} & {*evidence})


def _other_speaker(question: str, speakers: Sequence[str]) -> str | None:
    """The question about another speaker; None if it does not name exactly one."""
    named = [who for who in speakers if re.search(rf"\b{re.escape(who)}\b", question)]
    others = [who for who in speakers if who not in named]
    if len(named) != 1 or not others:
        return None
    return re.sub(rf"\b{re.escape(named[0])}\b", lambda _: others[0], question)


def _weights(found: Sequence[Asked], kinds: Mapping[str, float]) -> NDArray[np.float64]:
    """Weights of the questions: half for those with an answer, the rest as given, of the kinds that there are."""
    counts = {kind: sum(each.kind == kind for each in found) for kind in ("answered", *kinds)}
    there = sum(share for kind, share in kinds.items() if counts[kind])
    shares = {"answered": 0.5} | {kind: 0.5 * share / there for kind, share in kinds.items() if counts[kind]}
    return np.array([shares.get(each.kind, 0.0) / counts.get(each.kind, 1) for each in found])


class Fitted(NamedTuple):
    """Weights and constants of both regressions."""

    answered: list[float]
    answered_constant: float
    evidence: list[float]
    evidence_constant: float

    def odds(self, found: Sequence[Asked]) -> NDArray[np.float64]:
        """Logarithm of the odds of an answer, [questions]."""
        odds: NDArray[np.float64] = np.array([each.features for each in found]) @ np.array(self.answered)
        return odds + self.answered_constant

    def of_hits(self, found: Sequence[Asked]) -> NDArray[np.float64]:
        """The same of each hit, [hits of all questions]."""
        rows = [(odds, *hit[:2]) for odds, each in zip(self.odds(found), found, strict=True) for hit in each.hits]
        odds: NDArray[np.float64] = np.array(rows) @ np.array(self.evidence)
        return odds + self.evidence_constant


def fitted(corpora: Sequence[Sequence[Asked]]) -> Fitted:
    """Fit both regressions on several corpora, each of which counts alike."""
    found = [each for corpus in corpora for each in corpus]
    weights = np.concatenate([_weights(corpus, dict.fromkeys(_KINDS, 1.0)) for corpus in corpora])
    values = np.array([each.features for each in found])
    answered, constant = _regression(values, np.array([each.kind == "answered" for each in found]), weights)
    made = Fitted(answered, constant, [], 0.0)
    odds = made.odds(found)
    rows = np.array([(o, *hit[:2]) for o, each in zip(odds, found, strict=True) for hit in each.hits])
    labels = np.array([hit[2] for each in found for hit in each.hits])
    of_hits = np.repeat(weights, [len(each.hits) for each in found])
    evidence, evidence_constant = _regression(rows, labels, of_hits)
    return made._replace(evidence=evidence, evidence_constant=evidence_constant)


def _regression(
    values: NDArray[np.float64], labels: NDArray[np.bool_], weights: NDArray[np.float64]
) -> tuple[list[float], float]:
    from sklearn.linear_model import LogisticRegression

    used = weights > 0
    values, labels, weights = values[used], labels[used], weights[used] * used.sum() / weights.sum()
    mean, deviation = values.mean(0), values.std(0)
    model = LogisticRegression(C=10.0, max_iter=1_000).fit((values - mean) / deviation, labels, weights)
    coefficients = model.coef_[0] / deviation
    return [round(float(each), 3) for each in coefficients], round(float(model.intercept_[0] - coefficients @ mean), 3)


def measured(model: Fitted, found: Sequence[Asked]) -> dict[str, Any]:
    """AUROC by kind of question without an answer, and the calibration over all kinds."""
    from sklearn.metrics import brier_score_loss, roc_auc_score

    odds = model.odds(found)
    answered = np.array([each.kind == "answered" for each in found])
    auroc = {}
    for kind in ("unanswerable", *_KINDS):
        chosen = np.array([each.kind in ("answered", kind) for each in found])
        if sum(each.kind == kind for each in found) > 3:
            auroc[kind] = round(float(roc_auc_score(answered[chosen], odds[chosen])), 3)
    weights = _weights(found, dict.fromkeys(_KINDS, 1.0))
    used = weights > 0
    chances = 1 / (1 + np.exp(-odds))
    of_hits = 1 / (1 + np.exp(-model.of_hits(found)))
    labels = np.array([hit[2] for each in found for hit in each.hits])
    weights_of_hits = np.repeat(weights, [len(each.hits) for each in found])
    return {
        "questions": {kind: sum(each.kind == kind for each in found) for kind in ("answered", *auroc)},
        "auroc": auroc,
        "auroc of all kinds": round(float(roc_auc_score(answered[used], odds[used], sample_weight=weights[used])), 3),
        "ece": _calibration_error(answered[used], chances[used], weights[used]),
        "brier": round(float(brier_score_loss(answered[used], chances[used], sample_weight=weights[used])), 3),
        "reliability": _bins(answered[used], chances[used], weights[used]),
        "auroc of hits": round(float(roc_auc_score(labels, of_hits, sample_weight=weights_of_hits)), 3),
        "ece of hits": _calibration_error(labels, of_hits, weights_of_hits),
    }


def _bins(labels: NDArray[np.bool_], chances: NDArray[np.float64], weights: NDArray[np.float64]) -> list[list[float]]:
    """Mean probability, share of true labels and weight in ten parts of equal width, of those that are not empty."""
    place = np.minimum((chances * 10).astype(int), 9)
    return [
        [
            round(float(np.average(chances[place == at], weights=weights[place == at])), 3),
            round(float(np.average(labels[place == at], weights=weights[place == at])), 3),
            round(float(weights[place == at].sum() / weights.sum()), 3),
        ]
        for at in range(10)
        if weights[place == at].sum() > 0
    ]


def _calibration_error(labels: NDArray[np.bool_], chances: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Expected calibration error over ten parts of equal width."""
    return round(sum(share * abs(mean - true) for mean, true, share in _bins(labels, chances, weights)), 3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", default="threads,voices,duets", help="corpora to fit on, each held out in turn")
    parser.add_argument("--stores", required=True, help="their stores, in the same order")
    parser.add_argument("--tested", default="", help="files of corpora that are only tested")
    parser.add_argument("--tested_stores", default="", help="their stores")
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    options = options_of(parser, arguments)
    own, further = _listed(options.corpora), _listed(options.tested)
    corpora = {Path(path).stem: load_corpus(None, path) for path in (*own, *further)}
    stores = [*_listed(options.stores), *_listed(options.tested_stores)]
    for corpus, place in zip(corpora.values(), stores, strict=True):
        with Store(place, access="read") as graph:
            require_same_turns(corpus, graph)
            for each in corpus.conversations:
                if graph.turns(each.space, state=TurnState.PENDING):
                    raise SystemExit(f"{place}: turns of {each.space} are not consolidated; run the build again")
    found = {
        name: list(asked(corpus, store, cache=options.cache))
        for (name, corpus), store in zip(corpora.items(), stores, strict=True)
    }
    measurements = {
        "fitted": fitted([found[name] for name in own])._asdict(),
        "tested": {
            name: measured(fitted([found[other] for other in own if other != name]), found[name]) for name in found
        },
    }
    print(json.dumps(measurements, indent=1))
    write(options, measurements, corpora=[replace(corpus, path=name) for name, corpus in corpora.items()])


def _listed(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


if __name__ == "__main__":
    main()
