"""Tests of a process that is forked while a memory is open, as servers that load before they fork do."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts.serving.servers import environment

_FORKS = """
import os, sys
from locigraph import EncoderSettings, LocigraphError, Memory

place = sys.argv[1]
turn = dict(space="ana", session="s1", speaker="Ana")
memory = Memory.open(place + "/m.sqlite", encoder=EncoderSettings(cache=place + "/c.sqlite"))
memory.add(**turn, text="I sold the blue bike to Tom.")
memory.recall("Who bought the bike?", space="ana")
child = os.fork()
if not child:
    for use in (lambda: memory.recall("Who?", space="ana"), lambda: memory.add(**turn, text="Hm."), memory.spaces):
        try:
            use()
        except LocigraphError as error:
            print(error, flush=True)
    memory.close()
    sys.exit(0)  # runs what is to be done at the end of a process, which os._exit would not
assert os.waitpid(child, 0)[1] == 0
memory.add(**turn, text="Tom paid 20 euros.")
print(memory.recall("How much did Tom pay?", space="ana")[0].text)
memory.close()
"""


@pytest.mark.long
def test_a_forked_process_is_told_that_the_memory_is_not_its_own_and_leaves_it_to_its_parent(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _FORKS, str(tmp_path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120, env=environment())
    *told, found = done.stdout.splitlines()
    assert found == "Ana: Tom paid 20 euros.", done.stderr
    assert len(told) == 3
    for line in told:
        assert "from which this process was forked; open it after forking" in line
