"""Synthetic spaces of any size, of the shape that the extractor by rules gives real ones: for measurements only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.schema import EPISODE
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import NodeId, Question, SpaceId, TurnId

# Nodes for each turn in the bundled sample, built by rules: 1.04 facts, .2 events, 2.4 topics.
_FACTS, _TOPICS = 1.0, 2.0
#: Nodes of a synthetic space for each of its turns.
NODES_A_TURN = 1 + _FACTS + _TOPICS
_SESSION = 20  # turns
_WORDS = np.array([f"word{i}" for i in range(4_000)])
_DAY = 86_400


def synthetic_space(number: int, *, turns: int, dim: int) -> tuple[Snapshot, list[Question]]:
    """A space of random words and vectors, and a question for every tenth turn, which repeats some of its words.

    Args:
        number: Names the space, and seeds its words.
        turns: Number of its turns; it has ``NODES_A_TURN`` times as many nodes.
        dim: Width of the text embeddings.
    """
    draw, space = np.random.default_rng(number), SpaceId(f"synthetic{number}")
    facts, topics = int(turns * _FACTS), int(turns * _TOPICS)
    count = turns + facts + topics
    chances = 1 / np.arange(1, len(_WORDS) + 1)  # Zipf

    def words(size: int) -> list[str]:
        return [str(word) for word in draw.choice(_WORDS, size, p=chances / chances.sum())]

    said = [" ".join(words(size)) for size in draw.integers(4, 30, turns)]
    fact_of = draw.integers(0, turns, facts)
    topic_of = draw.integers(0, turns, topics)
    texts = [f"Ann: {text}" for text in said]
    texts += [" ".join(said[turn].split()[:8]) for turn in fact_of]
    texts += [" ".join(words(2)) for _ in range(topics)]
    vectors = draw.normal(size=(count, dim)).astype(np.float32)
    vectors[turns : turns + facts] += vectors[fact_of]  # a fact is near its turn
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.arange(count)
    edges = [
        (rows[1:turns] - 1, "NEXT", rows[1:turns]),
        (rows[turns : turns + facts], "DERIVED_FROM", fact_of),
        (topic_of, "HAS_CONCEPT", rows[turns + facts :]),
    ]
    sources = np.concatenate([source for source, _, _ in edges]).astype(np.int64)
    targets = np.concatenate([target for _, _, target in edges]).astype(np.int64)
    labels = np.concatenate([np.full(len(source), label) for source, label, _ in edges])
    spoken: NDArray[np.int64] = 1_700_000_000 + _DAY * (np.arange(turns) // _SESSION)
    turn_ids = tuple(TurnId(f"t{i}") for i in range(turns))
    provenance = np.stack([rows[: turns + facts], np.concatenate([np.arange(turns), fact_of])], axis=1)
    snapshot = Snapshot(
        space=space,
        keys=(rows + 1 + number * 10_000_000).astype(np.int64),
        ids=tuple(NodeId(f"n{i}") for i in range(count)),
        types=np.array([EPISODE] * turns + ["knowledge_node"] * facts + ["concept"] * topics),
        labels=tuple(texts),
        descriptions=tuple(texts),
        active=np.ones(count, dtype=bool),
        recorded_at=np.concatenate([spoken, spoken[fact_of], spoken[topic_of]]),
        valid_from=np.full(count, NO_TIME),
        valid_to=np.full(count, NO_TIME),
        embeddings=vectors,
        source=sources,
        target=targets,
        relations=labels,
        families=labels,
        weights=np.ones(len(sources), dtype=np.float32),
        turn_ids=turn_ids,
        speakers=tuple(("Ann", "Ben")[i % 2] for i in range(turns)),
        session_ids=tuple(f"s{i // _SESSION}" for i in range(turns)),
        spoken_at=spoken,
        provenance=provenance.astype(np.int64),
    )
    asked = [
        Question(space, f"{space}-q{turn}", f"What of {' '.join(said[turn].split()[:4])}?", "1", (turn_ids[turn],))
        for turn in range(0, turns, 10)
    ]
    return snapshot, asked
