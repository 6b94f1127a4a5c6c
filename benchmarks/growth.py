"""What a turn and a question cost in one space that grows: ``python -m benchmarks.growth [--turns 1000 4000 12000]``.

Turns of the bundled corpora, over and over with other numbers, fill one space to each of the sizes. There, a few turns
are added one by one. After each, v2 and v1 are asked at once, without a filter or with one that one in a hundred turns
satisfies, in turn; then again when nothing is new, also with a filter that half of the turns satisfy. At last a turn is
added that is older than half of the others, and both are asked. All times are of the processor, in milliseconds, the
medians of the rounds. Vectors of texts are hashed words, so that no text encoder runs.

Beside them, the same texts in a matrix of NumPy (adding a row, and the product of the matrix with a question), and in
LanceDB where that is installed (``pip install lancedb``; its table is optimised before each size).
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks import records
from benchmarks.hashed_words import DIM, HashedWords
from locigraph import Memory
from locigraph.assembly import opening
from locigraph.kg.corpora import load_corpus
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.training.checkpoint import load_checkpoint

_CHECKPOINT = Path("checkpoints/default")
_SPACE = "long"
_SESSION = 20  # turns
_AT_ONCE = 500  # turns that are added together while the space is filled
#: None, and those that half of the turns and one in a hundred satisfy.
_FILTERS: dict[str, dict[str, Any] | None] = {
    "again": None, "of half": {"number": {"$lt": 50}}, "of 1 in 100": {"number": 7},
}  # fmt: skip
_QUIET_S = 0.05
_BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


@cache
def _text_encoder() -> str:
    return load_checkpoint(_CHECKPOINT).text_encoder


class PosingWords(HashedWords):
    """Hashed words that pass for the text encoder of the shipped checkpoint, so that v2 can use them."""

    @property
    def model_id(self) -> str:
        """ID of that text encoder."""
        return _text_encoder()

    def without_adapter(self) -> CachedTextEncoder:
        """Itself."""
        return self


def talk() -> Iterator[dict[str, Any]]:
    """Turns without end, in sessions, each at its own time."""
    said = [
        t
        for name in ("threads", "voices", "duets")
        for c in load_corpus("jsonl", name).conversations
        for t in c.turns
        if t.text
    ]
    number = 0
    while True:
        for turn in said:
            day, minute = divmod(number, _SESSION)
            text = turn.text if number < len(said) else f"{turn.text} That was in {1_900 + number % 211}."
            yield {
                "space": _SPACE, "session": f"s{day}", "speaker": turn.speaker, "text": text,
                "spoken_at": _BEGIN + timedelta(days=day, minutes=minute), "turn_id": f"t{number}",
                "metadata": {"number": number % 100},
            }  # fmt: skip
            number += 1


class LanceTable:
    """The same turns in a table of LanceDB, searched without an index of its own, which is exact."""

    def __init__(self, folder: Path) -> None:
        import lancedb

        self._database = lancedb.connect(folder / "lance")
        self._table: Any = None

    def add(self, turns: Sequence[dict[str, Any]], vectors: NDArray[np.float32]) -> None:
        """Add turns with their vectors."""
        rows = [
            {"id": turn["turn_id"], "text": turn["text"], "vector": vector}
            for turn, vector in zip(turns, vectors, strict=True)
        ]
        if self._table is None:
            self._table = self._database.create_table("turns", rows)
        else:
            self._table.add(rows)

    def optimise(self) -> None:
        """Merge the small files that additions leave."""
        self._table.optimize()

    def recall(self, query: NDArray[np.float32]) -> list[dict[str, Any]]:
        """The ten nearest turns."""
        found: list[dict[str, Any]] = self._table.search(query).limit(10).to_list()
        return found


def cpu_ms(work: Callable[[], object]) -> float:
    """Time of the processor that some work takes, and of threads that go on after it: of NumPy, of indexes."""
    begun = time.process_time()
    work()
    while True:
        used = time.process_time()
        time.sleep(_QUIET_S)
        if time.process_time() - used < _QUIET_S / 50:
            return 1_000 * (used - begun)


def grown(sizes: Sequence[int], *, rounds: int) -> dict[int, dict[str, float]]:
    """Medians at each size, and the memory of the process."""
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="locigraph-growth-") as folder:
        opening.text_encoder = lambda settings: PosingWords("hashed words", cache=Path(folder) / "cache.sqlite")
        turns, held, matrix = talk(), 0, np.zeros((0, DIM), dtype=np.float32)
        with (
            Memory.open(Path(folder) / "memory.sqlite", checkpoint=str(_CHECKPOINT)) as memory,
            tqdm(total=max(sizes), unit="turn") as bar,
        ):
            encoder = PosingWords("hashed words", cache=Path(folder) / "other.sqlite")
            beside = LanceTable(Path(folder)) if importlib.util.find_spec("lancedb") else None
            for size in sorted(sizes):
                while held < size:
                    some = [next(turns) for _ in range(min(_AT_ONCE, size - held))]
                    memory.add_many(some)
                    vectors = encoder.encode([turn["text"] for turn in some])
                    matrix = np.concatenate([matrix, vectors])
                    if beside is not None:
                        beside.add(some, vectors)
                    held += len(some)
                    bar.update(len(some))
                for strategy in ("v2", "v1"):  # what was added in bulk is due
                    memory.recall("Who bought a canoe in Porto?", space=_SPACE, strategy=strategy)
                if beside is not None:
                    beside.optimise()
                times: dict[str, list[float]] = {}
                for number in range(rounds):
                    turn = next(turns)
                    asked = f"What was said of {' '.join(turn['text'].split()[:6])}?"
                    rest = f"When did {turn['speaker']} talk about number {number}?"
                    work: dict[str, Callable[[], object]] = {"add": partial(memory.add, **turn)}
                    for strategy in ("v2", "v1"):
                        ask = partial(memory.recall, space=_SPACE, strategy=strategy)
                        if number % 2:
                            work[f"{strategy} of 1 in 100 after an add"] = partial(ask, asked, filter={"number": 7})
                        else:
                            work[f"{strategy} after an add"] = partial(ask, asked)
                        # The filters in turn with none, with other words, so that no vector is in a cache.
                        for name, condition in _FILTERS.items():
                            work[f"{strategy} {name}"] = partial(ask, f"{rest} And {name}?", filter=condition)
                    late = turn | {
                        "turn_id": f"late{held}", "session": f"late{held}",
                        "spoken_at": _BEGIN + timedelta(days=held // (2 * _SESSION), hours=1),
                    }  # fmt: skip
                    work["late add"] = partial(memory.add, **late)
                    for strategy in ("v2", "v1"):
                        work[f"{strategy} after a late add"] = partial(
                            memory.recall, f"Who talked about number {number}?", space=_SPACE, strategy=strategy
                        )
                    query = encoder.encode([asked])[0]
                    work["numpy add"] = partial(np.append, matrix, encoder.encode([turn["text"]]), 0)
                    work["numpy recall"] = partial(_nearest, matrix, query)
                    if beside is not None:
                        work["lancedb add"] = partial(beside.add, [turn], encoder.encode([turn["text"]]))
                        work["lancedb recall"] = partial(beside.recall, query)
                    for name, each in work.items():
                        times.setdefault(name, []).append(cpu_ms(each))
                    held += 1
                found[size] = {name: float(np.median(times[name])) for name in sorted(times)}
                found[size]["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return found


def _nearest(matrix: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argsort(-(matrix @ query))[:10]


def exponents(found: dict[int, dict[str, float]]) -> dict[str, float]:
    """Exponent of growth of each cost from the smallest size to the largest."""
    first, last = min(found), max(found)
    ratio = math.log(last / first)
    return {
        name: math.log(max(found[last][name], 1e-3) / max(value, 1e-3)) / ratio for name, value in found[first].items()
    }


def main() -> None:
    """Print a table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[1_000, 4_000, 12_000], help="sizes of the space")
    parser.add_argument("--rounds", type=int, default=12, help="turns that are added one by one at each size")
    args = records.options_of(parser)
    found = grown(args.turns, rounds=args.rounds)
    growth = exponents(found) if len(found) > 1 else {}
    print(f"{'':30}" + "".join(f"{size:>12,}" for size in found) + f"{'exponent':>10}")
    for name in next(iter(found.values())):
        values = "".join(f"{each[name]:>12.1f}" for each in found.values())
        print(f"{name:30}{values}{growth.get(name, 0):>10.2f}")
    records.write(args, {"turns": {str(size): each for size, each in found.items()}, "exponents": growth})


if __name__ == "__main__":
    main()
