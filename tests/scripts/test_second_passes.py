"""The commands that pass over a graph again, as a user meets them."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from locigraph.assembly.settings import DEFAULT, REMEMBERED, IndexSettings
from locigraph.consolidation.errors import LanguageModelError, LimitReachedError
from locigraph.consolidation.merging import Merged
from locigraph.kg.counts import counted
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.errors import LocigraphError, UnknownNodeError, UnknownSpaceError, UnknownTurnError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, TurnId
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.commands.memory import second_passes
from locigraph.scripts.commands.memory.second_passes import Stopped, Target
from tests.consolidation.endpoints import endpoint
from tests.consolidation.stub_server import Stub, concluded, stub_server
from tests.fakes import FakeEncoder
from tests.fakes_graph import small_checkpoint
from tests.fakes_models import tiny_text_encoder
from tests.kg.dumps import dump
from tests.test_cli import assert_one_line_and_code_2, beginnings, run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with a graph, and the options that name it; it remembers its text encoder."""
    from locigraph.scripts import cli

    folder = tmp_path_factory.mktemp("built")
    (folder / "chat.jsonl").write_text(beginnings(1)[0] + "\n")
    options = ["--store", str(folder / "g.sqlite"), "--encoder.cache", str(folder / "cache.sqlite")]
    model = tiny_text_encoder(folder / "tiny")
    cli.main(["build", "--corpus.path", str(folder / "chat.jsonl"), "--encoder.model", model, *options])
    return folder, options


def unclassified(path: Path) -> int:
    with Store(path) as store:
        space = SpaceId("harbor")
        under = {edge.target for edge in store.relations(space) if edge.label == "CONTAINS"}
        facts = {node.id for node in store.nodes(space, types=["event_node", "knowledge_node"])}
        assert facts
        return len(facts - under)


def test_once_classifies_everything_and_a_second_time_changes_nothing(
    built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, options = built
    code, out, error = run(capsys, "classify", "--once", *options)
    assert code == 0, error
    assert "nodes classified" in out
    assert unclassified(folder / "g.sqlite") == 0
    before = dump(folder / "g.sqlite")
    code, out, error = run(capsys, "classify", *options, "--once")
    assert (code, "0 nodes classified, new categories: 0" in out) == (0, True), error
    assert dump(folder / "g.sqlite") == before


@pytest.fixture
def thinking(tmp_path: Path) -> Iterator[list[str]]:
    """The options of a model that draws one reflection from all facts."""
    with stub_server(Stub(concluded)) as stub:
        yield ["--llm.base_url", stub.url, "--llm.model", "m", "--llm.cassette", str(tmp_path / "c.sqlite")]


def test_reflections_are_found_by_v1_at_once_and_from_the_index_once_they_are_there(
    built: tuple[Path, list[str]], thinking: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(built[0], tmp_path / "own"))  # the other tests need facts to ask about
    options = ["--store", str(folder / "g.sqlite"), "--encoder.cache", str(folder / "cache.sqlite")]
    with MilvusIndex(str(folder / "g.index.db")):  # as in a server, which brings the index up to date itself
        code, out, error = run(capsys, "reflect", "--once", *thinking, *options)
    assert code == 0, error
    assert "another process has the index open" in out
    with Store(folder / "g.sqlite") as store:
        made = store.nodes(SpaceId("harbor"), types=["reflection"])
    assert made
    assert f"{counted(len(made), 'reflection')} made" in out
    words = ["recall", made[0].description, "--space", "harbor", "--strategy", "v1", *options]
    code, out, error = run(capsys, *words)
    assert (code, " reflection " in out) == (0, True), error
    assert "searched without the index" in out
    assert "run locigraph verify, which writes what is due" in out
    code, out, error = run(capsys, "reflect", "--once", *thinking, *options)  # changes nothing, but writes what is due
    assert (code, "0 reflections made" in out) == (0, True), error
    before = dump(folder / "g.sqlite")
    code, out, error = run(capsys, *words)
    assert (code, " reflection " in out) == (0, True), error
    assert "searched without" not in out
    code, out, error = run(capsys, "reflect", "--once", *thinking, *options)
    assert (code, "0 reflections made" in out) == (0, True), error
    assert dump(folder / "g.sqlite") == before


@pytest.mark.long
def test_after_each_second_pass_the_indexes_are_up_to_date_and_v2_answers(
    built: tuple[Path, list[str]], thinking: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, options = built
    here = ["--store", str(tmp_path / "g.sqlite"), *options[2:]]
    text_encoder = CachedTextEncoder(str(folder / "tiny"), cache=folder / "cache.sqlite").model_id
    small_checkpoint(text_encoder=text_encoder, text_dim=16).save(tmp_path / "small")
    learnt = ["--encoder.model", str(folder / "tiny"), "--checkpoint", str(tmp_path / "small")]
    run(capsys, "build", "--corpus.path", str(folder / "chat.jsonl"), *here, *learnt)
    for command in ("link", "classify", "reflect", "resolve"):
        with Store(tmp_path / "g.sqlite") as store:
            before = store.revision(SpaceId("harbor"))
        code, out, error = run(capsys, command, *here, *(thinking if command == "reflect" else ()))
        assert code == 0, error
        with Store(tmp_path / "g.sqlite") as store:
            assert (store.outbox_size(), store.changed_spaces()) == (0, {})
            has_changed = store.revision(SpaceId("harbor")) > before
            assert has_changed == (command != "resolve")  # which finds nothing to merge
        code, out, error = run(capsys, "recall", "Who sold a boat?", "--space", "harbor", *here)
        assert (code, "v2: query encoded in" in out) == (0, True), error
        assert "v1 answered" not in out


def test_links_by_rules_are_made_once(built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    folder, options = built
    with Store(folder / "g.sqlite") as store:
        held = len(store.relations(SpaceId("harbor")))
    code, out, error = run(capsys, "link", "--once", *options)
    assert code == 0, error
    with Store(folder / "g.sqlite") as store:
        made = len(store.relations(SpaceId("harbor"))) - held
    assert made
    assert f"{counted(made, 'link')} to causes and 0 to entities added\n" in out
    code, out, error = run(capsys, "link", "--once", *options)
    assert (code, "0 links to causes and 0 to entities added" in out) == (0, True), error


def test_an_evaluation_asks_of_a_graph_that_is_linked_by_rules(
    built: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = built
    words = {
        "--corpus.path": folder / "chat.jsonl", "--strategies": "bm25", "--contexts": "false", "--output": tmp_path,
        "--encoder.model": folder / "tiny", "--encoder.cache": folder / "cache.sqlite",
    }  # fmt: skip
    code, _, error = run(capsys, "evaluate", *(str(word) for pair in words.items() for word in pair))
    assert code == 0, error
    with Store(tmp_path / "graph.sqlite") as store:
        assert "CAUSES" in store.used_labels(SpaceId("harbor"))


@pytest.mark.parametrize("command", ["classify", "link", "reflect", "resolve"])
def test_a_second_process_of_the_same_command_is_refused(
    command: str, built: tuple[Path, list[str]], thinking: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, options = built
    with (folder / f"g.sqlite.{command}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, error = run(capsys, command, "--once", *options, *(thinking if command == "reflect" else ()))
    assert_one_line_and_code_2(code, error, f"another process is running {command} on store")


def test_without_a_model_nothing_can_be_concluded(
    built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = run(capsys, "reflect", *built[1])
    assert code == 0, error
    assert "no language model is named" in out
    assert "0 reflections made, 0 reworded, 0 archived" in out


@pytest.mark.parametrize("words", [["--once", "--interval", "3"], ["--interval", "0"]])
def test_once_and_an_interval_exclude_each_other(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys, "classify", *words)
    assert_one_line_and_code_2(code, error, "give either --once or --interval with seconds above 0")


@pytest.mark.long
def test_sigterm_ends_the_service_cleanly(
    built: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, options = built
    assert run(capsys, "classify", "--once", *options)[0] == 0
    command = [sys.executable, "-m", "locigraph", "classify", "--interval", "0.1", *options]
    output = tmp_path / "output"
    with output.open("w") as file:
        service = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, "PYTHONPATH": str(ROOT)})
        lock = folder / "g.sqlite.classify.lock"
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and not is_held(lock):
            time.sleep(0.1)
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0, output.read_text()
    assert "Traceback" not in output.read_text()
    assert unclassified(folder / "g.sqlite") == 0


def test_a_pass_with_a_language_model_says_what_it_used(
    built: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with endpoint(lambda messages: (200, '{"insights": []}')) as (url, seen):
        model = ["--llm.base_url", url, "--llm.model", "m", "--llm.cassette", str(tmp_path / "c.sqlite")]
        store = shutil.copy(built[0] / "g.sqlite", tmp_path)  # the other tests need facts to ask about
        code, out, error = run(capsys, "reflect", "--once", "--llm.input_price", "1", *model, "--store", str(store))
    assert code == 0, error
    assert f"reflection: {counted(len(seen), 'call')}, " in out
    assert "cost 0." in out


@pytest.mark.parametrize("command", ["link", "reflect"])
def test_sigterm_ends_a_service_that_waits_for_an_endpoint_at_once(
    command: str, built: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(messages: list[dict[str, str]]) -> tuple[int, str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return 503, "overloaded"

    with endpoint(unavailable) as (url, seen):
        model = ["--llm.base_url", url, "--llm.model", "m", "--llm.cassette", str(tmp_path / "c.sqlite")]
        model += ["--llm.deadline_s", "20"]  # up to which a service that was not told would go on
        code, out, error = run(capsys, command, "--interval", "0.1", *model, *built[1])
    assert code == 0, error
    assert "overloaded" not in out
    assert len(seen) == 1


def target(built: tuple[Path, list[str]]) -> Target:
    return Target(built[1][1], IndexSettings(), REMEMBERED, DEFAULT)


def is_held(lock: Path) -> bool:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@pytest.mark.parametrize("error", [UnknownNodeError, UnknownTurnError, UnknownSpaceError])
def test_what_is_forgotten_meanwhile_has_the_space_processed_again(
    error: type[LocigraphError], built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    passes = []

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: Stopped) -> Merged:
        passes.append(space)
        if len(passes) == 1:
            raise UnknownSpaceError(space, []) if error is UnknownSpaceError else error("t1")
        return Merged()

    second_passes.run("resolve", target(built), Merged(), work, once=True, interval=None)
    assert len(passes) == 2


def test_what_a_pass_has_done_before_an_outage_is_brought_into_the_indexes(
    built: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    updates, passes = [], []

    def updated(target: Target) -> None:
        updates.append(target)

    monkeypatch.setattr(Target, "update", updated)

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: Stopped) -> Merged:
        passes.append(space)
        if len(passes) == 1:
            raise LanguageModelError("no answer")  # after a part of the space was done
        raise LimitReachedError("stopped by max_tokens")

    with pytest.raises(LimitReachedError):
        second_passes.run("reflect", target(built), Merged(), work, once=False, interval=0.01)
    assert len(updates) == 2


def test_a_service_passes_over_spaces_that_stand_as_it_has_left_them(built: tuple[Path, list[str]]) -> None:
    worked, passed, changes = list[SpaceId](), dict[SpaceId, int](), list[TurnId]()

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: Stopped) -> Merged:
        worked.append(space)
        if changes:
            graph.forget(space, [changes.pop()])
        return Merged()

    with Store(built[1][1]) as graph:
        (space,) = graph.spaces()

        def worked_after_a_pass() -> int:
            second_passes._one_pass(graph, FakeEncoder(), Merged(), work, lambda: False, passed)
            return len(worked)

        assert [worked_after_a_pass(), worked_after_a_pass()] == [1, 1]
        changes.append(graph.turns(space)[0].turn_id)
        graph.forget(space, [graph.turns(space)[1].turn_id])
        # What changes during a pass is looked at by the next one.
        assert [worked_after_a_pass(), worked_after_a_pass(), worked_after_a_pass()] == [2, 3, 3]


def test_an_outage_ends_one_pass_of_a_service_and_not_the_service(
    built: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = []

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: Stopped) -> Merged:
        passes.append(space)
        if len(passes) == 1:
            raise LanguageModelError("no answer")
        if len(passes) == 2:
            raise LimitReachedError("stopped by max_tokens")
        raise AssertionError("a limit ends the service")

    with pytest.raises(LimitReachedError):
        second_passes.run("reflect", target(built), Merged(), work, once=False, interval=0.01)
    assert "no answer; trying again in 0.01 s" in capsys.readouterr().out
    passes.clear()
    with pytest.raises(LanguageModelError, match="no answer"):
        second_passes.run("reflect", target(built), Merged(), work, once=True, interval=None)
