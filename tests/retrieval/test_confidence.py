"""The probability that there is an answer, and that a hit is evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval import confidence
from locigraph.retrieval.confidence import READ, ConfidentRetriever, features_of, log_odds, probability
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing
from tests.record_tables import RESULTS

SPACE = SpaceId("s")


def hits(*scored: tuple[str, float]) -> list[Hit]:
    return [
        Hit(NodeId(f"n{place}"), "episode", text, (TurnId(f"t{place}"),), score)
        for place, (text, score) in enumerate(scored)
    ]


def speakers_of(found: Sequence[Hit]) -> dict[NodeId, frozenset[str]]:
    return {hit.node_id: frozenset((hit.text.partition(":")[0],)) for hit in found}


class Listed(Retriever):
    """A strategy that finds the same for every question."""

    name = "v2"

    def __init__(self, found: Sequence[Hit]) -> None:
        self.found = tuple(found)
        self.asked_for: list[int] = []

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        self.asked_for.append(top_k)
        return Result(self.found[:top_k], Timing())


def judging(found: Sequence[Hit]) -> ConfidentRetriever:
    return ConfidentRetriever(Listed(found), lambda _, ids: {k: v for k, v in speakers_of(found).items() if k in ids})


def test_the_named_speaker_s_best_turn_is_compared_with_the_best_of_the_others_and_with_the_tenth() -> None:
    found = hits(("Ben: a", 1.2), ("Ann: b", 1.0), *((f"Ben: {n}", 0.9 - n / 100) for n in range(10)))
    features = features_of("When did Ann sell the boat?", found, speakers_of(found))
    assert features is not None
    tenth = found[9].score
    assert features.log_score == pytest.approx(math.log(1.0))
    assert features.stands_out == pytest.approx(1.0 - tenth)
    assert features.own_speaker == pytest.approx(-0.2 / (pstdev([hit.score for hit in found]) + 1e-6))
    assert features.names_speaker == 1
    assert features.missing == 0  # the name of a speaker is missing nowhere


def test_where_none_of_the_best_may_be_shown_the_next_ones_are_judged_once_they_are_found() -> None:
    found = hits(*((f"Ann: {number}", 2 - number / 100) for number in range(READ + 9)))
    may_be_shown = {hit.node_id: frozenset({"Ann"}) for hit in found[READ + 3 :]}
    retriever = ConfidentRetriever(Listed(found), lambda _, ids: {k: v for k, v in may_be_shown.items() if k in ids})
    retriever.retrieve("Who?", SPACE, top_k=5)
    assert retriever.confidence == 0
    deeper = retriever.retrieve("Who?", SPACE, top_k=READ + 9)
    assert retriever.confidence
    assert all(hit.confidence for hit in deeper.hits)


def test_names_that_the_best_texts_do_not_have_are_missing() -> None:
    found = hits(("Ann: I met Carol in Oslo.", 1.0), ("Ben: The boats are red.", 0.5))
    for question, missing in (
        ("Where did we meet Carol?", 0.0),
        ("Where did we meet Dora?", 1.0),
        ("Where did we meet Carol and Dora?", 0.5),
        ("Dora is where?", 0.0),  # the first word of a question has a capital anyway
        ("What did we do on Monday in May?", 0.0),
    ):
        features = features_of(question, found, speakers_of(found))
        assert features is not None
        assert features.missing == missing, question


def test_a_name_is_found_with_and_without_its_accents_in_any_script() -> None:
    found = hits(("Ann: I met José, Zoe and Иван at the station.", 1.0), ("Ben: The boats are red.", 0.5))
    for question in ("Where did we meet José?", "Where did we meet Jose?", "Where is Zoë now?", "Where is Иван now?"):
        features = features_of(question, found, speakers_of(found))
        assert features is not None
        assert features.missing == 0.0, question


def test_what_looked_up_words_add_to_a_score_does_not_change_the_confidence() -> None:
    plain = hits(("Ann: a kestrel", 0.8), *((f"Ann: {n}", 0.7 - n / 100) for n in range(20)))
    raised = [*plain[1:5], replace(plain[0], score=2.8, signals={"looked_up": 2.0}), *plain[5:]]
    raised.sort(key=lambda hit: -hit.score)
    first, second = judging(plain), judging(raised)
    shown = first.retrieve("kestrel", SPACE).hits, second.retrieve("kestrel", SPACE).hits
    assert first.confidence == pytest.approx(second.confidence)
    assert shown[0][0].confidence == pytest.approx(shown[1][0].confidence)


def test_nothing_found_is_no_answer() -> None:
    nothing = judging([])
    assert nothing.retrieve("Who?", SPACE).hits == ()
    assert nothing.confidence == 0.0


def test_fifty_hits_are_read_and_as_many_as_asked_for_are_returned_with_their_confidence() -> None:
    found = hits(*((f"Ann: {n}", 1 - n / 100) for n in range(70)))
    retriever = judging(found)
    assert retriever.confidence is None
    shown = retriever.retrieve("What did Ann say?", SPACE, top_k=3).hits
    assert [hit.node_id for hit in shown] == ["n0", "n1", "n2"]
    confidences = [hit.confidence or 0.0 for hit in shown]
    assert confidences == sorted(confidences, reverse=True)
    once = retriever.confidence
    assert len(retriever.retrieve("What did Ann say?", SPACE, top_k=60).hits) == 60
    assert retriever.confidence == once
    assert isinstance(retriever._retriever, Listed)
    assert retriever._retriever.asked_for == [READ, 60]


def test_a_better_score_that_stands_out_more_is_more_likely_an_answer() -> None:
    found = hits(("Ann: boats", 0.9), *((f"Ann: {n}", 0.5) for n in range(10)))
    better = hits(("Ann: boats", 1.1), *((f"Ann: {n}", 0.5) for n in range(10)))
    of_found, of_better = (features_of("boats?", each, speakers_of(each)) for each in (found, better))
    assert of_found is not None
    assert of_better is not None
    assert log_odds(of_better) > log_odds(of_found)


@given(
    st.text(max_size=60),
    st.lists(st.tuples(st.text(max_size=20), st.floats(-5, 5)), max_size=60).map(
        lambda rows: sorted(rows, key=lambda row: -row[1])
    ),
)
def test_whatever_is_asked_and_found_probabilities_are_probabilities(
    question: str, scored: list[tuple[str, float]]
) -> None:
    retriever = judging(hits(*scored))
    shown = retriever.retrieve(question, SPACE).hits
    assert retriever.confidence is not None
    assert all(0 <= each <= 1 for each in (retriever.confidence, *(hit.confidence or 0.0 for hit in shown)))


def test_the_weights_are_those_of_the_record() -> None:
    fitted = json.loads((RESULTS / "confidence.json").read_text())["fitted"]
    assert fitted == {
        "answered": list(confidence._ANSWERED), "answered_constant": confidence._ANSWERED_CONSTANT,
        "evidence": list(confidence._EVIDENCE), "evidence_constant": confidence._EVIDENCE_CONSTANT,
    }  # fmt: skip


def test_even_odds_are_a_half() -> None:
    assert probability(0.0) == 0.5
    assert (probability(-1e6), probability(1e6)) == (0.0, 1.0)
