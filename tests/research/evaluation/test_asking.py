from __future__ import annotations

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, TurnId
from locigraph.kg.views import Views
from locigraph.research.evaluation.asking import packed_contexts, run_strategy
from locigraph.research.published.gaama import GaamaRetriever
from locigraph.research.published.magma import MagmaRetriever
from locigraph.retrieval.budgets import count_tokens
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)
QUESTION = Question(SPACE, "q", "Which canoe?", "c", (TurnId("t0"),))


def canoes(count: int) -> Snapshot:
    """Turns whose lines have 24 words, days and turns included, and 30 tokens."""
    return make_snapshot(make_turns([f"canoe number {number} " + "and so on " * 5 + "now" for number in range(count)]))


def views(snapshot: Snapshot) -> Views:
    return Views(lambda space, as_of: snapshot, {})


def test_contexts_of_an_evaluation_have_the_strategy_s_own_limits() -> None:
    snapshot = canoes(60)
    made = packed_contexts(GaamaRetriever(lambda space, as_of: snapshot, ENCODER), QUESTION, views(snapshot))
    words = {tokens: sum(len(line.split()) for line in context.lines) for tokens, context in made.items()}
    assert words[500] < words[1000] < words[4000] == 984  # 41 lines; one more would make 1,008


def test_contexts_of_an_evaluation_have_brevity_codes_and_turns_of_memories_alone() -> None:
    snapshot = canoes(60)
    made = packed_contexts(MagmaRetriever(lambda space, as_of: snapshot, ENCODER), QUESTION, views(snapshot))[500]
    codes = [line for line in made.lines if line.startswith("[... ")]
    assert codes  # 16 lines leave 20 tokens, and a code takes 7
    assert len(made.turns) == len(made.lines) - len(codes) == 16
    assert made.tokens == count_tokens("\n".join(made.lines)) <= 500


def test_rankings_and_times_are_of_the_strategy_and_contexts_of_the_packer() -> None:
    snapshot, other = canoes(3), make_snapshot(make_turns(["a canoe of another graph"]))
    strategy = GaamaRetriever(lambda space, as_of: snapshot, ENCODER)
    packer = GaamaRetriever(lambda space, as_of: other, ENCODER)
    run = run_strategy(strategy, [QUESTION], views(snapshot), packer=packer)
    assert {*run.rankings["q"]} == {"t0", "t1", "t2"}
    assert [line for line in run.contexts["q"][500].lines if "another graph" in line] == [*run.contexts["q"][500].lines]
    assert run.search_ms.keys() == {"q"}
