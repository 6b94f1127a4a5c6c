from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.types import NodeId, Said, TurnId
from locigraph.memory.known_nodes import KnownNode, _Kept

NODES = st.sampled_from("abcdef")
TURNS = st.sampled_from(["t0", "t1", "t2", "t3"])


def known(turns: list[str]) -> KnownNode:
    return KnownNode("x" * len(turns), tuple(Said(TurnId(turn), "s", "Ann") for turn in turns))


@given(
    st.lists(st.one_of(st.dictionaries(NODES, st.lists(TURNS, max_size=3)), st.tuples(st.sets(NODES), st.sets(TURNS))))
)
def test_what_is_kept_of_a_space_is_what_was_read_without_what_has_changed(
    steps: list[dict[str, list[str]] | tuple[set[str], set[str]]],
) -> None:
    kept, expected = _Kept(), dict[str, list[str]]()
    for step in steps:
        before = kept, dict(kept.nodes), dict(kept.saying)
        if isinstance(step, dict):
            new = {name: turns for name, turns in step.items() if name not in expected}
            kept = kept.with_more({NodeId(name): known(turns) for name, turns in new.items()})
            expected |= new
        else:
            nodes, changed = step
            kept = kept.without(map(NodeId, nodes), map(TurnId, changed))
            expected = {
                name: turns for name, turns in expected.items() if name not in nodes and changed.isdisjoint(turns)
            }
        assert kept.nodes == {name: known(turns) for name, turns in expected.items()}
        assert kept.letters == sum(400 + len(turns) for turns in expected.values())
        assert kept.saying == {
            turn: names
            for turn in ("t0", "t1", "t2", "t3")
            if (names := {name for name, turns in expected.items() if turn in turns})
        }
        assert (before[0].nodes, before[0].saying) == before[1:]  # other threads may read what was kept before
