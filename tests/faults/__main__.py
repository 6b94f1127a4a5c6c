"""Runs tries of all kinds and reports how many the system survived: ``python -m tests.faults --help``.

After SIGTERM it finishes the current try and reports the results so far.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.faults import (
    connections,
    cuts,
    damage,
    doubling,
    experiments,
    full_disk,
    inputs,
    private,
    reads,
    residue,
    served,
    servers,
    tenants,
    workbench,
)
from tests.faults.children import preload

#: A generator of tries; a try may return the number of rows that it has read.
Tries = Callable[[int, Path], Iterator[Callable[[], int | None]]]
#: Each kind, with its number in a thousand tries. A try that starts processes takes about a second, others much less.
KINDS: dict[str, tuple[Tries, int]] = {
    "faults": (cuts.tries, 35),
    "models": (cuts.kills_of_models, 5),
    "adds": (cuts.kills_of_adds, 5),
    "late": (cuts.cuts_of_late_turns, 5),
    "experiments": (experiments.tries, 10),
    "disk": (full_disk.tries, 10),
    "serve": (served.tries, 10),
    "damage": (damage.tries, 40),
    "residue": (residue.tries, 20),
    "tenants": (tenants.tries, 120),
    "reads": (reads.tries, 230),
    "inputs": (inputs.tries, 365),
    "time": (doubling.tries, 145),
    "connections": (connections.tries, 12),
    "fairness": (connections.floods, 3),
    "private": (private.tries, 10),
    "servers": (servers.tries, 0),
}
#: Kinds that run only where they are named: they start servers of their own, and a try takes seconds.
NAMED_ONLY = ("servers",)


def main() -> None:
    """Run the tries that the command line asks for; exits with code 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="total number of tries of all kinds")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument(
        "--kinds", nargs="*", type=_kind, default=[(kind, None) for kind in KINDS if kind not in NAMED_ONLY],
        help="kinds to run, each optionally with its own number of tries, such as damage=4",
    )  # fmt: skip
    parser.add_argument("--summary", type=Path, default=None, help="JSON file for the results")
    options = parser.parse_args()
    # Of the code that is loaded below, whatever is committed while the tries run.
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    chosen = {kind for kind, _ in options.kinds}
    if chosen & {"serve", "residue", "connections", "fairness"}:
        served.load()
    if chosen & {"experiments"}:
        experiments.load()
    if chosen & {
        "faults",
        "adds",
        "experiments",
        "serve",
        "damage",
        "residue",
        "tenants",
        "reads",
        "inputs",
        "connections",
        "fairness",
        "private",
        "servers",
    }:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            preload(lambda: workbench.run_each(Path(folder)))
    is_ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_ending.set())
    found = {}
    failures: list[str] = []
    for kind, given in options.kinds:
        make, share = KINDS[kind]
        count = given or max(1, options.count * share // 1_000)
        started, tried, survived, rows = _processor_s(), 0, 0, 0
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            for each in itertools.islice(make(options.seed, Path(folder)), count):
                if is_ending.is_set():
                    break
                tried += 1
                try:
                    rows += each() or 0
                    survived += 1
                except Exception:
                    failures.append(f"{kind}: {traceback.format_exc()}")
                    print(failures[-1], file=sys.stderr)
        found[kind] = {"tries": tried, "survived": survived} | ({"rows": rows} if rows else {})
        read = f", {rows} rows read" if rows else ""
        spent = f"{_processor_s() - started:.0f} s of processor time"
        print(f"{kind}: {survived} of {tried} survived{read} in {spent}", flush=True)
    if options.summary is not None:
        summary = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit.stdout.strip(), "seed": options.seed,
            "tries": sum(each["tries"] for each in found.values()), "failures": len(failures), "kinds": found,
        }  # fmt: skip
        options.summary.parent.mkdir(parents=True, exist_ok=True)
        options.summary.write_text(json.dumps(summary, indent=1) + "\n")
    raise SystemExit(1 if failures else 0)


def _kind(word: str) -> tuple[str, int | None]:
    kind, _, tries = word.partition("=")
    if kind not in KINDS or not (tries or "1").isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not valid; expected KIND or KIND=NUMBER, of {', '.join(KINDS)}")
    return kind, int(tries) if tries else None


def _processor_s() -> float:
    """Processor time of this process and its children, in seconds; it does not depend on other load on the machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
