"""Throughput of ``--consolidation llm`` with many conversations at a time, compared with one after another.

``python -m benchmarks.consolidation [--conversations 16] [--turns 12]``: a scripted endpoint in a process of its own
answers every request after 200 ms, like a model that computes; the text encoder is a hashed bag of words. This measures
how well the waiting times overlap, with all the work of a build between the requests.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from benchmarks import records
from locigraph.assembly.graphs import GraphWriter
from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.extractors.language_model import LLMExtractor
from locigraph.consolidation.ledger import Ledger
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.kg.corpora import load_corpus
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, Turn
from tests.consolidation.stub_server import Stub, extracted, stub_server
from tests.fakes import FakeEncoder


def main() -> None:
    """Print turns per second of both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--conversations", type=int, default=16, help="number of conversations to consolidate at the same time"
    )
    parser.add_argument("--turns", type=int, default=12, help="number of turns in each conversation")
    parser.add_argument("--think_s", type=float, default=0.2, help="seconds after which the endpoint answers")
    parser.add_argument(
        "--serve", action="store_true", help="run the endpoint only (the benchmark starts it by itself)"
    )
    options = records.options_of(parser)
    if options.serve:
        _serve(options.think_s)
        return
    command = [sys.executable, "-m", "benchmarks.consolidation", "--serve", "--think_s", str(options.think_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        url = server.stdout.readline().strip()
        one = _turns_a_second(_turns(1, options.turns), url, 1)
        many = _turns_a_second(_turns(options.conversations, options.turns), url, options.conversations)
        server.stdin.close()  # which ends it
    print(f"{'conversations at a time':<26}{'turns/s':>9}{'CPU ms/turn':>13}{'ratio':>8}")
    rows = []
    for count, (rate, cpu) in ((1, one), (options.conversations, many)):
        print(f"{count:<26}{rate:>9.2f}{1e3 * cpu:>13.1f}{rate / one[0]:>8.2f}")
        rows.append(
            {"conversations": count, "turns_a_second": rate, "cpu_ms_a_turn": 1e3 * cpu, "ratio": rate / one[0]}
        )
    records.write(options, {"rows": rows})


def _turns(conversations: int, count: int) -> list[Turn]:
    """The first turns of the sample's conversations, which are repeated under other names if there are too few."""
    held = load_corpus("jsonl", "sample").conversations
    found = []
    for number in range(conversations):
        space = SpaceId(f"c{number}")
        found += [replace(turn, space=space) for turn in held[number % len(held)].turns[:count]]
    return found


def _turns_a_second(turns: Sequence[Turn], url: str, concurrency: int) -> tuple[float, float]:
    """Turns consolidated per second, and CPU seconds per turn."""
    with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/graph.sqlite") as store:
        endpoint = Endpoint(url, "m", concurrency=concurrency)
        cassette, ledger = Cassette(Path(folder) / "replies.sqlite", "record"), Ledger()
        extractor = LLMExtractor(*(ChatClient(endpoint, cassette, ledger) for _ in range(2)))
        begun, cpu = time.perf_counter(), time.process_time()
        writer = GraphWriter(store, extractor, cast(Any, FakeEncoder(384)))
        writer.add(turns)
        return len(turns) / (time.perf_counter() - begun), (time.process_time() - cpu) / len(turns)


def _serve(think_s: float) -> None:
    def answer(request: dict[str, Any]) -> Any:
        time.sleep(think_s)
        return extracted(request)

    with stub_server(Stub(answer)) as stub:
        print(stub.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
