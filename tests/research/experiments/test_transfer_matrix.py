from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings, EncoderSettings, GraphSettings
from locigraph.consolidation.linking import Linker
from locigraph.kg.errors import LocigraphError
from locigraph.kg.registry import UnknownNameError
from locigraph.kg.store import Store
from locigraph.kg.types import Question, SpaceId
from locigraph.research.contenders import CONTENDERS
from locigraph.research.experiments.transfer_matrix import BASELINES, TransferMatrix
from locigraph.scripts.commands.memory.build import build
from locigraph.scripts.commands.research.transfer import transfer
from tests.fakes_graph import CPU, small_settings
from tests.faults.workbench import FakeCachedEncoder

PUBLISHED = ["gaama-adapted", "assomem-adapted", "magma-adapted", "tempr-adapted", "hipporag-adapted"]


def matrix(
    folder: Path, baselines: str, *, contexts: bool = False, graphs: Mapping[str, GraphSettings] | None = None
) -> TransferMatrix:
    """A matrix, of no graphs unless some are given."""
    return TransferMatrix(
        graphs or {}, EncoderSettings(), small_settings(), CPU, folder,
        baselines=baselines, validation=0, seed=0, contexts=contexts,
    )  # fmt: skip


def test_the_published_strategies_can_be_baselines(tmp_path: Path) -> None:
    assert {"fusion-zero", "v1", "v1-adapted", "dense", "dense-adapted", "bm25", *PUBLISHED} <= set(BASELINES)
    listed = matrix(tmp_path, ",".join(["fusion-zero", *PUBLISHED])).manifest({}, {})["baselines"]
    assert listed == ["fusion-zero", *PUBLISHED]


@pytest.mark.parametrize("name", ["v2", "v2-zero", "assomem-learnt", "fusion", "nobody"])
def test_what_learns_in_folds_is_no_baseline(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=f"baseline '{name}' is not known.*fusion-zero"):
        matrix(tmp_path, name)


def test_a_store_that_cannot_be_read_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    sample = CorpusSettings("sample")
    Store(tmp_path / "a.sqlite").close()
    graphs = {name: GraphSettings(str(tmp_path / f"{name}.sqlite"), sample) for name in ("a", "b")}
    with pytest.raises(LocigraphError, match=r"b.sqlite' does not exist; run locigraph build"):
        transfer(graphs=graphs, train={"row": ["a"]}, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_training_on_no_graph_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(LocigraphError, match=r"train\.row names no graph"):
        transfer(graphs={}, train={"row": []}, encoder=EncoderSettings(adapter="x"), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_table_has_a_difference_to_each_baseline_with_holm_over_all(tmp_path: Path) -> None:
    with matrix(tmp_path, "v1-adapted,gaama-adapted") as made:
        score = {"recall@10": 0.8, "ndcg@10": 0.7}
        found = [
            {"b": name, "metric": metric, "delta": delta, "p": p, "p_holm": 2 * p}
            for name, delta, p in (("v1-adapted", 0.1, 0.02), ("gaama-adapted", -0.05, 0.25))
            for metric in score
        ]
        means = dict.fromkeys(("v2-zero", "v1-adapted", "gaama-adapted"), score)
        cell = {"trained": "a", "tested": "b", "means": means}
        made.cells = [cell | {"comparisons": found}, cell | {"comparisons": []}]
        head, _, *rows = made.table().splitlines()
    columns = "| trained on | tested on | v2-zero | v1-adapted | gaama-adapted |"
    assert head == f"{columns} v2-zero \u2212 v1-adapted | v2-zero \u2212 gaama-adapted |"
    same = "| a | b | .800/.700 | .800/.700 | .800/.700 |"
    assert rows == [f"{same} +.100 (p .020, Holm .040) | -.050 (p .250, Holm .500) |", f"{same}  |  |"]


def test_contexts_have_a_table_of_their_own_with_a_line_for_each_size(tmp_path: Path) -> None:
    recalls = {f"recall@{tokens}tokens": recall for tokens, recall in ((500, 0.5), (1_000, 0.625), (4_000, 1.0))}
    means = dict.fromkeys(("v2-zero", "dense-adapted"), {"recall@10": 0.8, "ndcg@10": 0.7} | recalls)
    with matrix(tmp_path, "dense-adapted", contexts=True) as made:
        made.cells = [{"trained": "a", "tested": "b", "means": means, "comparisons": []}]
        _, packed = made.table().split("\n\nRecall of contexts of so many tokens:\n\n")
    assert packed.splitlines() == [
        "| trained on | tested on | tokens | v2-zero | dense-adapted |",
        "| --- | --- | --- | --- | --- |",
        "| a | b | 500 | .500 | .500 |",
        "| a | b | 1,000 | .625 | .625 |",
        "| a | b | 4,000 | 1.000 | 1.000 |",
    ]


def test_what_takes_what_a_checkpoint_has_learnt_is_a_baseline_unless_it_is_v2(
    tmp_path: Path,
) -> None:
    learnt = {name for name, row in CONTENDERS.items() if row.zero_shot is not None}
    with matrix(tmp_path, "sum") as made:
        proposed = made.table().split(" | ")[2]
    assert learnt - {*BASELINES} == {proposed}


def test_a_graph_of_which_a_checkpoint_has_learnt_a_part_is_not_tested_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [Question(SpaceId(name), name, "?", "c", ()) for name in ("ana", "bo", "cy")]
    graph = SimpleNamespace(corpus=SimpleNamespace(questions=questions))
    monkeypatch.setattr(TransferMatrix, "_graph", lambda self, name: graph)
    with matrix(tmp_path, "v1") as made:
        made.ask("mine", SimpleNamespace(spaces={"bo"}), "g")  # type: ignore[arg-type]
        made.ask("mine", SimpleNamespace(spaces={"ana", "bo", "cy", "di"}), "g")  # type: ignore[arg-type]
        assert made.cells == []
        (note,) = made.notes
        assert note.startswith("mine on g: not tested, since it was trained on 1 of the 3 conversations; name")
        assert made.table().endswith("of that graph: ana, cy.")


def test_a_graph_that_was_never_linked_is_told_where_a_baseline_searches_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: FakeCachedEncoder("fake", cache=tmp_path / "cache"))
    told = ["I sold the blue van to Tom.", "That was because the engine leaked oil."]
    turns = [{"turn_id": f"t{i}", "speaker": "Ana", "text": text} for i, text in enumerate(told)]
    asked = {"question_id": "q", "text": "Why sell it?", "evidence_turn_ids": ["t1"]}
    sessions = [{"session_id": "s", "turns": turns}]
    line = {"conversation_id": "a", "sessions": sessions, "questions": [asked]}
    (tmp_path / "corpus.jsonl").write_text(json.dumps(line) + "\n")
    corpus = CorpusSettings(str(tmp_path / "corpus.jsonl"))
    given = GraphSettings(str(tmp_path / "graph.sqlite"), corpus)
    build(corpus=corpus, store=given.store)

    def notes(baselines: str) -> list[str]:
        with matrix(tmp_path, baselines, graphs={"g": given}) as made:
            made._learning_nothing("g")
            return made.notes

    assert notes("bm25,gaama") == []
    (note,) = notes("bm25,magma,tempr")
    assert note.startswith("g has no link to a cause, along which magma, tempr search; unless locigraph link has")
    with Store(Path(given.store)) as graph:
        Linker(graph).run(SpaceId("a"))
    assert notes("bm25,magma,tempr") == []


@pytest.mark.parametrize("name", ["../x", "/x", ".x", "", "a b", "a/b"])
def test_a_name_that_would_lead_out_of_the_output_folder_is_refused(name: str, tmp_path: Path) -> None:
    with matrix(tmp_path, "v1") as made, pytest.raises(LocigraphError, match="would be part of names of files"):
        made.trained(name, [])
