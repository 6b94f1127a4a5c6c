"""What a turn and a question cost in one space that grows: ``python -m benchmarks.growth [--turns 1000 4000 12000]``.

Turns of the bundled corpora, over and over with other numbers, fill one space to each of the sizes. There, a few turns
are added one by one. After each, v2 and v1 are asked at once, and asked again when nothing is new. All times are of the
processor, in milliseconds, the medians of the rounds. Vectors of texts are hashed words, so that no text encoder runs.

Beside them, the same texts in a matrix of NumPy: adding a row, and the product of the matrix with a question.
"""

from __future__ import annotations

import argparse
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
        t for name in ("threads", "voices", "duets") for c in load_corpus("jsonl", name).conversations for t in c.turns
    ]
    number = 0
    while True:
        for turn in said:
            day, minute = divmod(number, _SESSION)
            text = turn.text if number < len(said) else f"{turn.text} That was in {1_900 + number % 211}."
            yield {
                "space": _SPACE, "session": f"s{day}", "speaker": turn.speaker, "text": text,
                "spoken_at": _BEGIN + timedelta(days=day, minutes=minute), "turn_id": f"t{number}",
            }  # fmt: skip
            number += 1


def cpu_ms(work: Callable[[], object]) -> float:
    """Time of the processor that some work takes."""
    begun = time.process_time()
    work()
    return 1_000 * (time.process_time() - begun)


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
            for size in sorted(sizes):
                while held < size:
                    some = [next(turns) for _ in range(min(_AT_ONCE, size - held))]
                    memory.add_many(some)
                    matrix = np.concatenate([matrix, encoder.encode([turn["text"] for turn in some])])
                    held += len(some)
                    bar.update(len(some))
                for strategy in ("v2", "v1"):  # what was added in bulk is due
                    memory.recall("Who bought a canoe in Porto?", space=_SPACE, strategy=strategy)
                times: dict[str, list[float]] = {}
                for number in range(rounds):
                    turn = next(turns)
                    asked = f"What was said of {' '.join(turn['text'].split()[:6])}?"
                    rest = f"When did {turn['speaker']} talk about number {number}?"
                    work: dict[str, Callable[[], object]] = {"add": partial(memory.add, **turn)}
                    for strategy in ("v2", "v1"):
                        ask = partial(memory.recall, space=_SPACE, strategy=strategy)
                        work[f"{strategy} after an add"], work[f"{strategy} again"] = (
                            partial(ask, asked),
                            partial(ask, rest),
                        )
                    query = encoder.encode([asked])[0]
                    work["numpy add"] = partial(np.append, matrix, encoder.encode([turn["text"]]), 0)
                    work["numpy recall"] = partial(_nearest, matrix, query)
                    for name, each in work.items():
                        times.setdefault(name, []).append(cpu_ms(each))
                    held += 1
                found[size] = {name: float(np.median(values)) for name, values in times.items()}
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
    print(f"{'':22}" + "".join(f"{size:>12,}" for size in found) + f"{'exponent':>10}")
    for name in next(iter(found.values())):
        values = "".join(f"{each[name]:>12.1f}" for each in found.values())
        print(f"{name:22}{values}{growth.get(name, 0):>10.2f}")
    records.write(args, {"turns": {str(size): each for size, each in found.items()}, "exponents": growth})


if __name__ == "__main__":
    main()
