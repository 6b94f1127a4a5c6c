"""Time of one question for the published strategies, on a random graph of one space.

``python -m benchmarks.published [--nodes 10000] [--at_most_ms 50]``: the shares of node types and relations are those
of the graph of recorded extractions of LoCoMo-10. Texts and embeddings are random around topics. Encoding the question
and reading the space are left out, as they are in every strategy's report.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks import records
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import EPISODE
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.research.published.assomem import AssoMemRetriever
from locigraph.research.published.gaama import GaamaRetriever
from locigraph.research.published.hipporag import HippoRagRetriever
from locigraph.research.published.magma import MagmaRetriever
from locigraph.research.published.tempr import TemprRetriever
from locigraph.retrieval.protocols import Retriever, SnapshotLoader

_SPACE = SpaceId("bench")
_DIM = 384
_QUESTIONS, _WARM = 100, 5
_TURNS_OF_TOPIC, _TURNS_OF_SESSION = 7, 21
_ENTITIES_OF_TURN, _ENTITIES_OF_FACT = 6, 3
_WORDS = 20_000
_START = 1_700_000_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of milliseconds; exits with 1 if a strategy's median is more than what ``--at_most_ms`` allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000], help="sizes of the space to try, in nodes")
    parser.add_argument(
        "--at_most_ms", type=float, help="largest median that a strategy may have; the exit code is 1 if one exceeds it"
    )
    options = records.options_of(parser, arguments)
    too_slow, rows = [], []
    print(f"{'nodes':>8} {'strategy':<12}{'p50 ms':>9}{'p95 ms':>9}{'read s':>9}")
    for nodes in options.nodes:
        snapshot = random_snapshot(nodes, np.random.default_rng(0))
        for name, (p50, p95, read_s) in measured(snapshot).items():
            print(f"{nodes:>8} {name:<12}{p50:>9.1f}{p95:>9.1f}{read_s:>9.1f}")
            rows.append({"nodes": nodes, "strategy": name, "p50_ms": p50, "p95_ms": p95, "read_s": read_s})
            if options.at_most_ms is not None and p50 > options.at_most_ms:
                too_slow.append(f"{name} takes {p50:.1f} ms at {nodes} nodes")
    records.write(options, {"rows": rows})
    if too_slow:
        raise SystemExit(f"{'; '.join(too_slow)}: more than the {options.at_most_ms:g} ms of --at_most_ms")


def measured(snapshot: Snapshot) -> dict[str, tuple[float, float, float]]:
    """Median and 95th percentile of the milliseconds of a search, and the seconds of reading the space, by name."""
    encoder = RandomQuestions(snapshot)
    found: dict[str, tuple[float, float, float]] = {}
    with ThreadPoolExecutor(4) as pool:
        makers: Sequence[Callable[[SnapshotLoader, TextEncoder], Retriever]] = (
            GaamaRetriever, AssoMemRetriever, HippoRagRetriever, MagmaRetriever, partial(TemprRetriever, pool=pool),
        )  # fmt: skip
        for make in makers:
            retriever = make(lambda space, as_of: snapshot, encoder)
            started = time.perf_counter()
            retriever.retrieve(encoder.question(), _SPACE)
            read_s = time.perf_counter() - started
            times = [retriever.retrieve(encoder.question(), _SPACE).timing.search_ms for _ in range(_WARM + _QUESTIONS)]
            p50, p95 = np.percentile(times[_WARM:], [50, 95])
            found[retriever.name] = float(p50), float(p95), read_s
    return found


class RandomQuestions:
    """Questions of random words, whose vectors are near those of random nodes."""

    model_id = "random"

    def __init__(self, snapshot: Snapshot) -> None:
        self._rng = np.random.default_rng(1)
        self._near = snapshot.embeddings

    def question(self) -> str:
        """Six words and, in every second question, a date."""
        day = f" in {'March' if self._rng.random() < 0.5 else 'May'} 2024" if self._rng.random() < 0.5 else ""
        return f"When did they {_words(self._rng, 6)}{day}?"

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        """One vector per text."""
        nodes = self._rng.integers(len(self._near), size=len(texts))
        return _unit(self._near[nodes] + 0.05 * self._rng.standard_normal((len(texts), _DIM)))


def random_snapshot(nodes: int, rng: np.random.Generator) -> Snapshot:
    """A space in which 23 % of the nodes are turns, 18 % facts and events, 3 % topics, and the others entities."""
    turns, facts, topics = int(0.23 * nodes), int(0.18 * nodes), int(0.23 * nodes) // _TURNS_OF_TOPIC
    entities = nodes - turns - facts - topics
    turn, fact = np.arange(turns), turns + np.arange(facts)
    topic_of_turn = np.minimum(turn // _TURNS_OF_TOPIC, topics - 1)
    turn_of_fact = np.sort(rng.integers(turns, size=facts))
    first_topic, first_entity = turns + facts, turns + facts + topics
    named = first_entity + (rng.zipf(1.4, turns * _ENTITIES_OF_TURN) - 1) % entities
    named_by_fact = first_entity + (rng.zipf(1.4, facts * _ENTITIES_OF_FACT) - 1) % entities
    same = turn[:-1] // _TURNS_OF_SESSION == turn[1:] // _TURNS_OF_SESSION
    edges = [
        ("NEXT", turn[:-1][same], turn[1:][same]),
        ("DERIVED_FROM", fact, turn_of_fact),
        ("HAS_CONCEPT", turn, first_topic + topic_of_turn),
        ("ABOUT_CONCEPT", fact, first_topic + topic_of_turn[turn_of_fact]),
        ("MENTIONS", np.repeat(turn, _ENTITIES_OF_TURN), named),
        ("MENTIONS", np.repeat(fact, _ENTITIES_OF_FACT), named_by_fact),
    ]
    relations = np.concatenate([np.full(len(source), label) for label, source, _ in edges])
    centres = rng.standard_normal((topics, _DIM))
    topic = np.concatenate(
        [topic_of_turn, topic_of_turn[turn_of_fact], np.arange(topics), rng.integers(topics, size=entities)]
    )
    types = [EPISODE] * turns + ["knowledge_node"] * facts + ["concept"] * topics + ["entity"] * entities
    spoken = _START + 7 * 86_400 * (turn // _TURNS_OF_SESSION) + 60 * (turn % _TURNS_OF_SESSION)
    times = np.full(nodes, NO_TIME, dtype=np.int64)
    times[:turns] = spoken
    descriptions = tuple(_words(rng, 18 if row < first_topic else 2) for row in range(nodes))
    return Snapshot(
        space=_SPACE,
        keys=np.arange(nodes, dtype=np.int64),
        ids=tuple(NodeId(f"n{row}") for row in range(nodes)),
        types=np.asarray(types, dtype=np.str_),
        labels=descriptions,
        descriptions=descriptions,
        active=np.ones(nodes, dtype=bool),
        recorded_at=np.zeros(nodes, dtype=np.int64),
        valid_from=times,
        valid_to=np.full(nodes, NO_TIME, dtype=np.int64),
        embeddings=_unit(centres[topic] + rng.standard_normal((nodes, _DIM))),
        source=np.concatenate([source for _, source, _ in edges]),
        target=np.concatenate([target for _, _, target in edges]),
        relations=relations,
        families=relations,
        weights=np.ones(len(relations), dtype=np.float32),
        turn_ids=tuple(TurnId(f"t{row}") for row in range(turns)),
        speakers=("Ann",) * turns,
        session_ids=tuple(f"s{row // _TURNS_OF_SESSION}" for row in range(turns)),
        spoken_at=spoken,
        provenance=np.stack([np.concatenate([turn, fact]), np.concatenate([turn, turn_of_fact])], axis=1),
    )


def _words(rng: np.random.Generator, count: int) -> str:
    return " ".join(f"w{word}" for word in rng.zipf(1.3, count) % _WORDS)


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


if __name__ == "__main__":
    main()
