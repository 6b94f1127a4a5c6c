"""``python -m tests.scripts.shared_writer FOLDER STORE INDEX SPACE NAME COUNT``: a process that adds turns, and asks.

It prints each turn that is acknowledged, so that whoever kills it knows what must not be lost.
"""

from __future__ import annotations

import sys
from pathlib import Path

from locigraph.assembly import opening
from locigraph.assembly.settings import EncoderSettings, IndexSettings
from locigraph.memory import Memory
from tests.faults.workbench import AdaptedEncoder


def opened(folder: Path, store: str, index: str) -> Memory:
    """The memory on these servers, over a fake text encoder and the checkpoint in the folder."""
    opening.text_encoder = lambda settings: AdaptedEncoder(folder / "cache.sqlite")
    return Memory.open(
        store, index=IndexSettings(uri=index), encoder=EncoderSettings(), checkpoint=str(folder / "checkpoint")
    )


def main(folder: str, store: str, index: str, space: str, name: str, count: str) -> None:
    """Add turns of one speaker, and find each of them at once."""
    with opened(Path(folder), store, index) as memory:
        for number in range(int(count)):
            said = f"I am {name} and my lucky number is {number}."
            turn = memory.add(space=space, session=name, speaker=name, text=said, turn_id=f"{name}{number}")
            print(turn, flush=True)
            if number % 3 == 0:
                hits = memory.recall(f"{name} lucky number {number}", space=space, top_k=200)
                assert hits.strategy == "v2", hits.notes
                assert turn in {each for hit in hits for each in hit.turn_ids}, f"{turn} was not found"


if __name__ == "__main__":
    main(*sys.argv[1:])
