"""Latency of recalls and additions that a real server handles at the same time.

``python -m benchmarks.serving [--clients 200] [--appends 20] [--seconds 30]``: starts ``locigraph serve`` on loopback
over a new memory with the shipped text encoder and checkpoint, then has ``--clients`` clients ask one question after
the other while ``--appends`` turns per second are added. Prints p50, p95 and p99 of both, errors, and the seconds that
operations spent in the server's two threads; the rest of the latency is waiting for a thread. The questions are in the
text cache beforehand; every added turn is new to it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import numpy as np

from benchmarks import records

_THINGS = ("bike", "boat", "house", "garden", "guitar", "camera", "kitchen", "car", "dog", "library")
_DEEDS = ("sold", "bought", "painted", "lost", "found", "repaired", "lent", "borrowed")


def turn(number: int, spaces: int) -> dict[str, str]:
    """A turn to add."""
    thing, deed = _THINGS[number % len(_THINGS)], _DEEDS[number % len(_DEEDS)]
    text = f"I {deed} the {thing} number {number} last week."
    return {"space": f"user{number % spaces}", "session": f"s{number // 50}", "speaker": "Ana", "text": text}


def question(number: int, spaces: int) -> dict[str, object]:
    """A question to ask."""
    text = f"Who {_DEEDS[number % len(_DEEDS)]} the {_THINGS[number % len(_THINGS)]}?"
    return {"space": f"user{number % spaces}", "question": text, "top_k": 10}


@contextmanager
def server(folder: Path, dtype: str) -> Iterator[str]:
    """Run ``locigraph serve`` in a process of its own, and yield its address."""
    words = [sys.executable, "-m", "locigraph", "serve", "--store", str(folder / "memory.sqlite"), "--port", "0"]
    words += ["--requests_per_minute", "1000000", "--encoder.cache", str(folder / "cache.sqlite")]
    words += ["--encoder.dtype", dtype]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as child,
    ):
        assert child.stdout is not None
        try:
            yield child.stdout.readline().split(" at ")[1].split(";")[0]
        finally:
            child.terminate()


async def measure(address: str, options: argparse.Namespace) -> dict[str, object]:
    """Put the server under load, and return the measurements."""
    took: defaultdict[str, list[float]] = defaultdict(list)
    errors: list[str] = []
    # Not httpx, whose pool looks at every connection for each request: with 200 it takes more time than the server.
    async with aiohttp.ClientSession(
        address, connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(300)
    ) as client:

        async def ask(operation: str, fields: object) -> None:
            started = time.perf_counter()
            async with client.post(f"/v1/{operation}", json=fields) as answer:
                text = await answer.text()
            took[operation].append(time.perf_counter() - started)
            if answer.status != 200:
                errors.append(text)

        async def is_ready() -> bool:
            async with client.get("/ready") as answer:
                return answer.status == 200

        while not await is_ready():
            await asyncio.sleep(1)
        turns = [turn(number, options.spaces) for number in range(options.turns)]
        await ask("add_many", {"turns": turns})
        for space in range(options.spaces):  # embeds each space, and puts the questions into the cache
            for number in range(space, 40 + space, options.spaces):
                await ask("recall", question(number, options.spaces))
        assert not errors, errors[0]
        took.clear()
        print(f"measuring for {options.seconds:g} s", file=sys.stderr, flush=True)
        end = time.perf_counter() + options.seconds

        async def recalls(place: int) -> None:
            number = place
            while time.perf_counter() < end:
                await ask("recall", question(number % 40, options.spaces))
                number += options.clients

        async def appends() -> None:
            started, tasks = time.perf_counter(), []
            for number in range(int(options.appends * options.seconds)):
                await asyncio.sleep(max(0.0, started + number / options.appends - time.perf_counter()))
                tasks.append(asyncio.create_task(ask("add", turn(options.turns + number, options.spaces))))
            await asyncio.gather(*tasks)

        jobs: list[Awaitable[None]] = [appends(), *(recalls(place) for place in range(options.clients))]
        await asyncio.gather(*jobs)
        async with client.get("/metrics") as answer:
            metrics = await answer.text()
    return {
        "clients": options.clients, "appends_a_second": options.appends, "seconds": options.seconds,
        "turns": options.turns, "spaces": options.spaces, "cores": os.cpu_count(), "errors": len(errors),
        **{operation: percentiles(values, options.seconds) for operation, values in took.items()},
        "thread_s": {name: total(metrics, f'locigraph_operation_seconds_sum{{operation="{name}"}}') for name in took},
    }  # fmt: skip


def percentiles(seconds: list[float], length: float) -> dict[str, float]:
    """Number of requests, in all and per second, and percentiles of their durations in milliseconds."""
    found = {f"p{share}_ms": round(1_000 * float(np.percentile(seconds, share)), 1) for share in (50, 95, 99)}
    return {"count": len(seconds), "a_second": round(len(seconds) / length, 1), **found}


def total(metrics: str, name: str) -> float:
    """The value of a metric in the text of ``/metrics``."""
    return next(round(float(line.split()[-1]), 1) for line in metrics.splitlines() if line.startswith(name))


def main() -> None:
    """Run the benchmark, and print the measurements as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--clients", type=int, default=200, help="number of clients that ask one question after the other"
    )
    parser.add_argument("--appends", type=float, default=20, help="number of turns added per second")
    parser.add_argument("--seconds", type=float, default=30, help="length of the run in seconds")
    parser.add_argument("--turns", type=int, default=1_000, help="number of turns in the memory at the start")
    parser.add_argument(
        "--spaces", type=int, default=20, help="number of spaces among which turns and questions are divided"
    )
    parser.add_argument("--dtype", default="float32", help="number format of the text encoder: float32 or bfloat16")
    options = records.options_of(parser)
    with tempfile.TemporaryDirectory(prefix="serving-") as folder, server(Path(folder), options.dtype) as address:
        found = asyncio.run(measure(address, options))
    print(json.dumps(found, indent=1))
    records.write(options, found)


if __name__ == "__main__":
    main()
