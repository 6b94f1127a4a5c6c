from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest
import yaml

from locigraph.assembly import strategies
from locigraph.assembly.search_parts import SearchParts
from locigraph.assembly.strategies import STRATEGIES, Strategy, made, recalled, require_adapter, strategy_named
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.research.contenders import CONTENDERS, Contender, made_of
from locigraph.research.experiments.strategy_choice import chosen, comparisons, unused_options
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Result, Retriever, SnapshotLoader
from locigraph.retrieval.stopwatch import Stopwatch
from locigraph.retrieval.strategies.weighted_sum import FusionRetriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts import cli
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, make_snapshot, small_checkpoint

ROOT = Path(__file__).parents[2]


class Nothing(Retriever):
    """A toy strategy that never finds anything."""

    name = "nothing"

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        return Result((), Stopwatch().timing())


@contextmanager
def toy_row() -> Iterator[None]:
    def make(parts: SearchParts, strategy: Strategy) -> Retriever:
        return Nothing()

    CONTENDERS.add(Contender("nothing", "finds nothing", make, is_baseline=True))
    try:
        yield
    finally:
        CONTENDERS.remove("nothing")


def test_a_strategy_is_added_with_one_row(tmp_path: Path) -> None:
    with toy_row():
        assert chosen("v1,nothing", checkpoint=None, adapter=None) == ["v1", "nothing"]
        assert comparisons(["v2", "nothing"], None) == [("v2", "nothing")]
        encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite")
        with Store(tmp_path / "graph.sqlite") as store, SearchParts(store, encoder, spaces=[]) as parts:
            assert made_of(parts, ["nothing"])["nothing"].retrieve("Who?", SpaceId("x")).hits == ()
    with pytest.raises(LocigraphError, match="strategy 'nothing' is not known"):
        chosen("nothing", checkpoint=None, adapter=None)


class Entry:
    """An entry point of an installed package."""

    value = "other.package:ROWS"

    def __init__(self, found: Callable[[], Sequence[Strategy]]) -> None:
        self.load = found


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Entry]]:
    found: list[Entry] = []
    monkeypatch.setattr(strategies, "entry_points", lambda *, group: found if group == "locigraph.strategies" else [])
    strategies._of_other_packages.cache_clear()
    yield found
    strategies._of_other_packages.cache_clear()


def test_an_installed_package_adds_strategies_to_recall(entries: list[Entry]) -> None:
    entries.append(Entry(lambda: [Strategy("nothing", "finds nothing", lambda parts, row: Nothing())]))
    assert [*recalled()] == [*STRATEGIES, "nothing"]
    assert strategy_named("nothing").description == "finds nothing"


def missing() -> Sequence[Strategy]:
    raise ModuleNotFoundError("No module named 'other'")


def broken() -> Sequence[Strategy]:
    raise ZeroDivisionError("of its own")


def taken() -> Sequence[Strategy]:
    return [STRATEGIES["v1"]]


@pytest.mark.parametrize(
    ("load", "said"), [(missing, "'other'"), (broken, "of its own"), (taken, "two rows named 'v1'")]
)
def test_a_package_whose_strategies_cannot_be_used_is_named_where_they_are_needed(
    entries: list[Entry], load: Callable[[], Sequence[Strategy]], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entries.append(Entry(load))
    assert strategy_named("v2") is STRATEGIES["v2"]
    with pytest.raises(LocigraphError, match=rf"the strategies of 'other.package:ROWS' cannot be loaded \(.*{said}"):
        strategy_named("nothing")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["spaces", "--help"])
    assert "--store" in capsys.readouterr().out


def test_without_any_package_that_adds_strategies_the_cure_is_said(entries: list[Entry]) -> None:
    with pytest.raises(LocigraphError, match=r"'magma' is not known; known: v1, .*if the package is installed"):
        strategy_named("magma")


def test_an_unknown_strategy_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(
        LocigraphError,
        match=r"'nonsense' is not known.*known: v1, v1-adapted, v1-time, v1-time-adapted, v1-weighted-adapted, v1-k60",
    ):
        chosen("nonsense", checkpoint=None, adapter=None)


def test_what_needs_a_checkpoint_or_an_adapter_is_refused_without() -> None:
    with pytest.raises(LocigraphError, match="'v2-zero' needs a checkpoint"):
        chosen("v1,v2-zero", checkpoint=None, adapter="a")
    with pytest.raises(LocigraphError, match="'sum-adapted' needs an adapter"):
        require_adapter(CONTENDERS["sum-adapted"], None)
    with pytest.raises(LocigraphError, match="'assomem-learnt-adapted' needs an adapter"):
        require_adapter(CONTENDERS["assomem-learnt-adapted"], None)
    for name in ("v1", "v2", "v2-mixing"):  # a graph network can learn on the text encoder as it is
        require_adapter(CONTENDERS[name], None)


def test_v2_is_tested_against_v1_and_sum_unless_told_otherwise() -> None:
    assert comparisons(["v1", "v2", "v2-zero", "sum", "dense"], None) == [("v2", "v1"), ("v2", "sum")]
    assert comparisons(["v2", "dense", "bm25"], None) == [("v2", "dense"), ("v2", "bm25")]
    assert comparisons(["v1", "v2-zero"], None) == [("v2-zero", "v1")]
    assert comparisons(["v1", "v2", "dense"], "dense") == [("v2", "dense")]


def test_without_v2_all_others_are_tested_against_the_named_baselines() -> None:
    assert comparisons(["v1", "sum", "dense"], "sum") == [("v1", "sum"), ("dense", "sum")]
    assert comparisons(["v1", "dense"], None) is None  # the report's choice
    with pytest.raises(LocigraphError, match="no strategy is left"):
        comparisons(["v1", "sum"], "v1,sum")


def test_of_the_named_baselines_those_that_are_run_count() -> None:
    assert comparisons(["v1", "v2", "dense"], "fusion,dense,v1") == [("v2", "dense"), ("v2", "v1")]
    with pytest.raises(LocigraphError, match=r"baselines is 'sum'.*\(v1\)"):
        comparisons(["v1", "v2"], "sum")
    with pytest.raises(LocigraphError, match="nearest is 'dense'"):
        comparisons(["v1", "v2"], "dens")


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "evaluate").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_s_baselines_fit_what_others_judge_the_shipped_pair_by(path: Path) -> None:
    baselines = yaml.safe_load(path.read_text())["baselines"]
    pairs = comparisons(["v1", "v1-adapted", "v2-zero", "fusion-zero"], baselines)
    assert pairs is not None
    assert {("v2-zero", "v1"), ("v2-zero", "v1-adapted")} <= {*pairs}


def test_with_an_adapter_v2_is_tested_against_baselines_with_it() -> None:
    run = ["v1", "v1-adapted", "v2", "sum", "sum-adapted", "dense"]
    assert comparisons(run, None) == [("v2", name) for name in ("v1", "v1-adapted", "sum-adapted")]


def test_a_fusion_does_not_take_the_place_of_baselines_without_the_adapter() -> None:
    assert comparisons(["v2", "v1", "sum", "fusion"], None) == [("v2", name) for name in ("v1", "sum", "fusion")]


def test_an_adapter_that_no_strategy_uses_is_noted() -> None:
    said = ["encoder.adapter was not used, since no strategy that uses it was run"]
    assert unused_options(["v1", "sum"], checkpoint=None, adapter="a", of_training={}) == said
    for used in ("v2", "v2-zero", "dense-adapted"):
        assert unused_options(["v1", used], checkpoint=None, adapter="a", of_training={}) == []


def test_options_left_without_use_are_noted() -> None:
    given = {"writer": "y", "seeds": True, "also": None}
    assert unused_options(["v1", "v2", "v2-zero"], checkpoint="x", adapter=None, of_training=given) == []
    assert unused_options(["v1", "v2"], checkpoint="x", adapter=None, of_training=given) == [
        "checkpoint was not used, since no strategy that takes one was run"
    ]
    assert unused_options(["v1", "v2-zero"], checkpoint="x", adapter=None, of_training=given) == [
        "writer was not used, since no strategy was trained",
        "seeds was not used, since no strategy was trained",
    ]


@pytest.mark.parametrize("name", ["gaama", "assomem", "magma", "tempr", "hipporag", "dense"])
def test_published_strategies_run_with_either_text_encoder_and_are_offered_by_recall(name: str) -> None:
    plain, adapted = CONTENDERS[name], CONTENDERS[f"{name}-adapted"]
    assert {plain.name, adapted.name} <= {*recalled()}
    assert (plain.uses_adapter, adapted.uses_adapter) == (False, True)
    assert not plain.searches_graph_embeddings
    assert not plain.is_baseline  # unless they are named as baselines


@pytest.mark.parametrize("name", ["gaama", "assomem", "magma", "tempr", "hipporag", "sum"])
def test_strategies_over_snapshots_are_built_without_an_index(name: str, tmp_path: Path) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite")
    with Store(tmp_path / "graph.sqlite") as store, SearchParts(store, encoder, spaces=[]) as parts:
        assert made_of(parts, [name])[name].name == name


def test_the_fusion_of_a_checkpoint_is_offered_by_recall_and_needs_the_checkpoint(tmp_path: Path) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite")
    assert "fusion-zero" in recalled()
    with Store(tmp_path / "graph.sqlite") as store:
        with SearchParts(store, encoder, spaces=[], checkpoint=small_checkpoint) as parts:
            retriever = made(parts, STRATEGIES["fusion-zero"])
            assert isinstance(retriever, FusionRetriever)
            assert retriever.name == "fusion-zero"
            assert made_of(parts, ["fusion-zero"]) == {}  # evaluations ask it with their own checkpoint
        with SearchParts(store, encoder, spaces=[]) as parts, pytest.raises(LocigraphError, match="with --checkpoint"):
            made(parts, STRATEGIES["fusion-zero"])


class OneSpace(SearchParts):
    """Parts over a space that is in memory, whichever is asked for."""

    def encoder_of(self, strategy: Strategy) -> CachedTextEncoder:
        return cast(CachedTextEncoder, FakeEncoder(TEXT_DIM))

    def snapshots(self, strategy: Strategy) -> SnapshotLoader:
        snapshot = make_snapshot(make_turns(["I bought a canoe"]))
        return lambda space, as_of: snapshot


def test_the_searches_of_tempr_have_threads_that_end_with_the_parts(tmp_path: Path) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite")

    def searching() -> int:
        return sum(thread.name.startswith("tempr") for thread in threading.enumerate())

    with Store(tmp_path / "graph.sqlite") as store, OneSpace(store, encoder, spaces=[]) as parts:
        assert made_of(parts, ["tempr"])["tempr"].retrieve("a canoe", SPACE).hits
        assert searching() > 0
    assert searching() == 0
