"""CPU time of ``Memory.add`` per turn, compared with that in a memory that was just opened, in one run.

``python -m benchmarks.add_time [--turns 100] [--before 2700] [--one_space] [--words 300] [--llm]``: turns of the
bundled corpus ``threads`` fill the store, about four nodes each; then a further transcript is added turn by turn, every
fourth one as if the memory had just been opened. Vectors are hashed words, so that no text encoder runs; reading them
from the cache is part of the time. With ``--llm``, a scripted endpoint in a process of its own answers at once, so that
only the work apart from the models is measured. With ``--one_space``, all turns are in one space, and ``--llm`` makes
it the extractor of those before, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.hashed_words import HashedWords
from locigraph import Memory
from locigraph.assembly import opening
from locigraph.assembly.settings import LLMSettings
from locigraph.kg.corpora import load_corpus
from locigraph.kg.store import Store
from locigraph.kg.types import Turn


def main() -> None:
    """Print medians in milliseconds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=100, help="number of turns that are added and timed")
    parser.add_argument("--before", type=int, default=2700, help="number of turns in the store before that")
    parser.add_argument("--one_space", action="store_true", help="put all turns into one space")
    parser.add_argument(
        "--words", type=int, default=0, help="join turns of the transcript until each has this many words; 0 joins none"
    )
    parser.add_argument(
        "--llm", action="store_true", help="consolidate the transcript with a language model (scripted)"
    )
    options = records.options_of(parser)
    with _endpoint() if options.llm else nullcontext("") as url:
        records.write(options, _measured(options, url))


def _measured(options: argparse.Namespace, url: str) -> dict[str, Any]:
    said = [turn for c in load_corpus("jsonl", "threads").conversations for turn in c.turns]
    with tempfile.TemporaryDirectory() as folder:
        opening.text_encoder = lambda settings: HashedWords("hashed words", cache=Path(folder) / "cache.sqlite")
        store = Path(folder) / "memory.sqlite"
        llm = LLMSettings(base_url=url, model="m", cassette=f"{folder}/llm")
        how = {"consolidation": "llm", "llm": llm} if url else {}
        with _opened(store, **(how if options.one_space else {})) as memory:  # a space has only one extractor
            old = said[: options.before]
            memory.add_many([_given(turn, "big" if options.one_space else turn.space, turn.session_id) for turn in old])
        with Store(store, access="read") as graph:
            nodes = sum(graph.node_counts(space).total() for space in graph.spaces())
        new = [
            _given(turn, "big" if options.one_space else "new", "new")
            | {"spoken_at": _LATER + timedelta(minutes=place)}
            for place, turn in enumerate(_joined(said[options.before :], options.words)[: options.turns])
        ]
        times_ms: dict[str, list[float]] = {"kept": [], "anew": []}
        with _opened(store, **how) as memory:
            for place, turn in enumerate(new):
                way = "anew" if place % 4 == 0 and place else "kept"
                if way == "anew":
                    memory._parts._writer = None  # as if the memory had been opened for this turn
                began = time.process_time()
                memory.add(**turn)
                if place:
                    times_ms[way].append(1000 * (time.process_time() - began))
            began = time.process_time()
            memory.add_many([turn | {"space": "together"} for turn in new])
            together = len(new) / (time.process_time() - began)
    kept, anew = (float(np.median(times_ms[way])) for way in ("kept", "anew"))
    spread = {f"add_ms_p{share}": float(np.percentile(times_ms["kept"], share)) for share in (95, 99)}
    shown = f"{nodes} nodes, {len(new)} turns: add {kept:.0f} ms, just opened {anew:.0f} ms, {anew / kept:.1f} times"
    print(f"{shown}; {together:.0f} turns per second when added together")
    return {
        "nodes": nodes, "turns": len(new), "add_ms": kept, **spread, "read_anew_ms": anew,
        "together_turns_a_second": together,
    }  # fmt: skip


def _joined(turns: Sequence[Turn], words: int) -> list[Turn]:
    """Turns of at least ``words`` words (the last may be shorter), joined from consecutive turns; 0 joins none."""
    made: list[Turn] = []
    for turn in turns:
        if made and len(made[-1].text.split()) < words:
            made[-1] = replace(made[-1], text=f"{made[-1].text} {turn.text}")
        else:
            made.append(turn)
    return made


@contextmanager
def _endpoint() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.consolidation", "--serve", "--think_s", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield server.stdout.readline().strip()
        server.stdin.close()  # which ends it


_LATER = datetime(2090, 1, 1, tzinfo=UTC)


def _opened(store: Path, **how: Any) -> Memory:
    return Memory.open(store, checkpoint=None, **how)


def _given(turn: Turn, space: str, session: str) -> dict[str, Any]:
    return {
        "space": space, "session": f"{turn.space}-{session}", "speaker": turn.speaker, "text": turn.text,
        "spoken_at": turn.spoken_at, "turn_id": f"{turn.space}:{turn.turn_id}",
    }  # fmt: skip


if __name__ == "__main__":
    main()
