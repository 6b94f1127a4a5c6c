from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.assembly import batch_jobs, build_job, opening, refresh_job
from locigraph.assembly.batch_jobs import Workers, portions, workers_of
from locigraph.assembly.build_job import BuildJob
from locigraph.assembly.refresh_job import RefreshJob
from locigraph.assembly.settings import EncoderSettings, IndexSettings
from locigraph.consolidation.errors import ConsolidationError
from locigraph.kg.corpora import load_corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.schema import EPISODE
from locigraph.kg.types import ANYBODY
from locigraph.kg.views import View
from locigraph.training.embedding_refresh import ViewWriter
from tests.faults.workbench import AdaptedEncoder
from tests.scripts.batch_tasks import prepared_dying, prepared_failing, prepared_never
from tests.scripts.shared_writer import opened
from tests.scripts.test_shared import Shared, shared

__all__ = ["shared"]  # the fixture

TWO = Workers(2)


@given(st.dictionaries(st.integers(), st.integers(0, 1_000), min_size=1, max_size=60), st.integers(1, 5))
def test_every_item_is_in_one_task_and_no_task_has_much_more_work_than_another(
    sizes: dict[int, int], workers: int
) -> None:
    tasks = portions(sizes, workers)
    assert sorted(item for task in tasks for item in task) == sorted(sizes)
    work = [sum(max(1, sizes[item]) for item in task) for task in tasks]
    # Graham 1969: the longest-processing-time rule leaves no two tasks further apart than the largest item.
    assert max(work) - min(work) <= max(1, *sizes.values(), *work[1:2]) or len(tasks) == len(sizes)
    assert work == sorted(work, reverse=True)


def test_work_is_divided_by_size_and_not_by_number() -> None:
    sizes = {"long": 100, **{f"short{i}": 10 for i in range(10)}}
    assert {len(task) for task in portions(sizes, 1)} <= {1, 2}
    assert portions(sizes, 1)[0] == ["long"]


def doubled(factor: int) -> Callable[[int], int]:
    return lambda task: factor * task


def test_one_worker_is_this_process() -> None:
    begun: list[int] = []

    def prepare() -> Callable[[int], int]:
        begun.append(os.getpid())
        return doubled(2)

    assert list(batch_jobs.run(prepare, [3, 1], Workers())) == [(3, 6), (1, 2)]
    assert begun == [os.getpid()]


@pytest.mark.parametrize(
    ("workers", "store", "uri"),
    [(2, "g.sqlite", "http://h:1"), (2, "postgresql+psycopg://u@h/d", None), (2, "postgresql+psycopg://u@h/d", "i.db")],
)
def test_several_workers_need_servers(workers: int, store: str, uri: str | None) -> None:
    with pytest.raises(LocigraphError, match=r"2 workers cannot share store .*name servers with --store and --index"):
        workers_of(workers, None, store, IndexSettings(uri=uri))
    with pytest.raises(LocigraphError, match="2 workers cannot share"):  # on other machines, which do not see the files
        workers_of(1, "ray://cluster:10001", store, IndexSettings(uri=uri))
    assert workers_of(1, None, store, IndexSettings(uri=uri)).is_this_process


def test_no_number_of_workers_below_one_is_taken() -> None:
    with pytest.raises(LocigraphError, match="workers is 0; expected 1 or more"):
        workers_of(0, None, "g.sqlite", IndexSettings())


def test_language_models_are_asked_by_one_process(tmp_path: Path) -> None:
    job = BuildJob("postgresql+psycopg://u@h/d", EncoderSettings(), "llm", ANYBODY)
    with pytest.raises(LocigraphError, match=r"waits for language models.*use --llm\.concurrency"):
        job.run(load_corpus("jsonl", "sample"), TWO)


def with_fakes(folder: Path, prepare: Callable[[], Callable[..., object]]) -> Callable[..., object]:
    """What ``prepare`` makes, in a worker that has the tests' text encoder."""
    opening.text_encoder = lambda settings: AdaptedEncoder(folder / "cache.sqlite")
    return prepare()


@pytest.mark.servers
def test_a_worker_that_is_killed_loses_nothing_and_an_error_of_a_task_is_raised(tmp_path: Path) -> None:
    done = dict(batch_jobs.run(partial(prepared_dying, tmp_path / "killed"), [*range(8)], TWO))
    assert {task: doubled for task, (_, doubled) in done.items()} == {task: 2 * task for task in range(8)}
    assert len({process for process, _ in done.values()}) >= 2
    assert os.getpid() not in {process for process, _ in done.values()}
    with pytest.raises(ConsolidationError, match="task 0 cannot be done"):
        list(batch_jobs.run(prepared_failing, [0], TWO))


@pytest.mark.servers
def test_an_error_that_ends_the_preparation_of_a_worker_is_raised_as_it_is() -> None:
    with pytest.raises(ConsolidationError, match="nothing can be prepared"):
        list(batch_jobs.run(prepared_never, [0], TWO))


@pytest.mark.servers
def test_two_workers_build_and_refresh_what_one_process_does(shared: Shared, tmp_path: Path) -> None:
    job = BuildJob(shared.store, EncoderSettings(), "rules", ANYBODY)
    corpus = load_corpus("jsonl", "sample")
    tasks = portions({each.space: len(each.turns) for each in corpus.conversations}, 2)
    assert len(tasks) == len(corpus.conversations)
    original = batch_jobs.run

    def faked(
        prepare: Callable[[], Callable[..., object]], given: Sequence[object], workers: Workers
    ) -> Iterator[object]:
        return original(partial(with_fakes, shared.folder, prepare), given, workers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_jobs, "run", faked)
        assert job.run(corpus, TWO) == {}
        with opened(shared.folder, shared.store, shared.uri) as memory:
            memory.flush()  # one process refreshes
            live, graph = memory._parts.require_live(), memory._graph
            before = {space: live.verify([space]) for space in graph.spaces()}
            writer = RefreshJob(
                shared.store, IndexSettings(uri=shared.uri), EncoderSettings(), str(shared.folder / "checkpoint")
            ).writer(graph.counts_of_type(EPISODE), TWO)
            assert writer is not None
            counting = _Counting(writer)
            graph.list_changed(graph.spaces()[:1])
            memory._parts.index().clear("emb_.*", graph.identity())
            done = live.refresh(writer=counting)
            assert done.turns == done.written == sum(len(each.turns) for each in corpus.conversations)
            assert counting.views == {View(space) for space in graph.spaces()}
            assert {space: live.verify([space]) for space in graph.spaces()} == before
            assert all(each.is_clean for found in before.values() for each in found)


class _Counting:
    """A writer of views that notes them."""

    def __init__(self, writer: ViewWriter) -> None:
        self._writer = writer
        self.views: set[View] = set()

    def __call__(self, name: str, views: Sequence[View]) -> Iterator[tuple[View, int]]:
        for view, rows in self._writer(name, views):
            self.views.add(view)
            yield view, rows


def test_the_parts_of_both_jobs_can_be_sent_to_a_worker() -> None:
    import pickle

    index, encoder = IndexSettings(uri="http://h:1"), EncoderSettings()
    for made in (
        partial(build_job._prepared, BuildJob("s", encoder, "rules", ANYBODY)),
        partial(refresh_job._prepared, RefreshJob("s", index, encoder, "c"), "emb_1"),
        load_corpus("jsonl", "sample"),
        View(load_corpus("jsonl", "sample").conversations[0].space),
    ):
        assert pickle.loads(pickle.dumps(made)) is not None
