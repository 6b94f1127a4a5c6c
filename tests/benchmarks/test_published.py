from __future__ import annotations

import pytest

from benchmarks.published import main

_SMALL = ["--nodes", "60"]


def test_it_fails_if_a_strategy_takes_longer_than_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*_SMALL, "--at_most_ms", "0"])
    assert str(ended.value).startswith("gaama takes ")
    assert str(ended.value).endswith(" ms at 60 nodes: more than the 0 ms of --at_most_ms")
    table = capsys.readouterr().out
    main([*_SMALL, "--at_most_ms", "600000"])
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        line.split()[:2] for line in table.splitlines()
    ]
