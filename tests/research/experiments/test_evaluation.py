from __future__ import annotations

import importlib
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from locigraph.assembly import defaults, learning, opening
from locigraph.assembly.settings import REMEMBERED, CorpusSettings, EncoderSettings, GraphSettings
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.scripts.commands.memory.build import build
from locigraph.scripts.commands.memory.recall import recall
from locigraph.scripts.commands.research.demo import demo
from locigraph.scripts.commands.research.evaluate import evaluate
from locigraph.scripts.commands.research.transfer import transfer
from tests.faults.workbench import FakeCachedEncoder, conversation

TWO = CorpusSettings("sample", conversations=["harbor", "ward"])


def written(path: Path, told: dict[str, str]) -> CorpusSettings:
    """Write a corpus of a conversation for each name, with a question about its first turn, which is given."""
    lines = [
        conversation(space, [text, "How nice!"])
        | {"questions": [{"question_id": "q", "text": f"What did {space} say?", "evidence_turn_ids": ["t0"]}]}
        for space, text in told.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return CorpusSettings(str(path))


def test_the_store_of_an_evaluation_is_asked_with_the_number_format_that_its_index_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def encoder(settings: EncoderSettings) -> FakeCachedEncoder:
        return FakeCachedEncoder("fake", cache=tmp_path / "cache.sqlite", dtype=settings.dtype or "float32")

    monkeypatch.setattr(opening, "text_encoder", encoder)
    store = str(tmp_path / "g.sqlite")

    corpus = written(
        tmp_path / "corpus.jsonl", {"harbor": "I signed up for the Ridgeback.", "ward": "The two cats were asleep."}
    )

    def run(given: EncoderSettings) -> None:
        evaluate(
            corpus=corpus, strategies="v1", encoder=given, store=store, output=str(tmp_path / "out"), contexts=False
        )

    run(EncoderSettings(dtype="bfloat16"))
    capsys.readouterr()
    recall("Who signed up for the Ridgeback?", space="harbor", strategy="v1", store=store)
    assert "turns t0 " in capsys.readouterr().out
    with pytest.raises(IndexMismatchError, match="has version 'fake@bfloat16' but 'fake' is needed"):
        run(EncoderSettings())
    with Store(store, access="read") as graph:
        assert defaults.encoder_settings(REMEMBERED, graph).dtype == "bfloat16"


def test_the_graph_of_other_recorded_extractions_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        opening, "text_encoder", lambda settings: FakeCachedEncoder("fake", cache=tmp_path / "cache.sqlite")
    )
    corpus = written(tmp_path / "corpus.jsonl", {"harbor": "I signed up for the Ridgeback.", "ward": "Two cats slept."})
    facts = tmp_path / "facts.jsonl"

    def run(fact: str) -> None:
        lines = [
            {"conversation_id": name, "facts": [{"text": fact, "turn_ids": ["t0"]}]} for name in ("harbor", "ward")
        ]
        facts.write_text("".join(json.dumps(line) + "\n" for line in lines))
        evaluate(
            corpus=replace(corpus, extractions=str(facts)), consolidation="recorded", strategies="v1",
            output=str(tmp_path / "out"), contexts=False,
        )  # fmt: skip

    for _ in range(2):
        run("Tomas cycles.")
    with pytest.raises(LocigraphError, match="out holds results of other recorded extractions"):
        run("Tomas swims.")


def test_evidence_that_is_copied_into_a_further_corpus_to_learn_from_is_left_out_of_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: FakeCachedEncoder("fake", cache=tmp_path / "c"))
    copied = "My aunt sold her green camper van and lent me twelve thousand"

    own = written(
        tmp_path / "own.jsonl", {"harbor": copied, "ward": "The two cats of the ward were asleep all day again"}
    )
    other = written(tmp_path / "other.jsonl", {"copy": copied})
    build(corpus=other, store=str(tmp_path / "other.sqlite"))
    evaluate(
        corpus=own,
        strategies="fusion,bm25",
        folds=2,
        validation=0,
        also=[GraphSettings(str(tmp_path / "other.sqlite"), other)],
        output=str(tmp_path / "out"),
        contexts=False,
    )
    assert json.loads((tmp_path / "out" / "results.json").read_text())["left_out"] == ["harbor:q"]
    assert "the means include 1 question that the training has seen" in capsys.readouterr().out


def test_a_store_of_other_words_than_the_corpus_is_neither_trained_on_nor_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: FakeCachedEncoder("fake", cache=tmp_path / "c"))
    told = {"harbor": "My aunt sold her green camper van", "ward": "The two cats were asleep all day again"}
    build(corpus=written(tmp_path / "own.jsonl", told), store=str(tmp_path / "own.sqlite"))
    other = written(tmp_path / "other.jsonl", told | {"ward": "The two dogs were awake all night again"})
    store = str(tmp_path / "own.sqlite")
    with (
        pytest.raises(LocigraphError, match="'ward' has 1 turn with other words than in the corpus"),
        learning.training_sets(other_read := opening.read_corpus(other), store, None, None, validation=0),
    ):
        raise AssertionError(f"{other_read} was trained on")
    with pytest.raises(LocigraphError, match="'ward' has 1 turn with other words than in the corpus"):
        transfer(
            graphs={"b": GraphSettings(store, other)}, train={"row": ["b"]}, validation=0, output=str(tmp_path / "out"),
            encoder=EncoderSettings(adapter="named"),
        )  # fmt: skip


def test_the_demo_names_a_command_that_a_shell_reads_whatever_its_folder_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The package's attribute of this name is the function.
    monkeypatch.setattr(
        importlib.import_module("locigraph.scripts.commands.research.evaluate"), "evaluate", lambda **options: None
    )
    demo(corpus=TWO, output="my runs", encoder=EncoderSettings(cache="a cache.sqlite"))
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert command[:2] == ["locigraph", "recall"]
    assert command[3:] == ["--space", "harbor", "--store", "my runs/graph.sqlite", "--encoder.cache", "a cache.sqlite"]
