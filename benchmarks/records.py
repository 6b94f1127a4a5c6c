"""Records of benchmarks: what was measured, with the commit, versions and options that led to it, as a JSON file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from locigraph.assembly import opening, provenance
from locigraph.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.kg.corpora import Corpus
from locigraph.kg.files import replace_file
from locigraph.kg.types import Question, Turn
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.metrics import score_ranking
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder

#: Options that only say where files are, and do not affect the results.
_PLACES = {"store", "output", "cache", "keep", "runs", "stores", "tested", "tested_stores", "contexts"}


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Add the options of a corpus with questions, its graph, and the text encoder with which that was built."""
    parser.add_argument("--corpus", default="threads", help="corpus with the questions: a bundled name or a file")
    parser.add_argument(
        "--format", choices=["jsonl", "locomo", "longmemeval"], default="jsonl", help="format of the corpus"
    )
    parser.add_argument("--store", required=True, help="graph of the corpus")
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="number format of the text encoder with which the graph was built",
    )
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    parser.add_argument("--adapter", help="folder of the adapter with which the graph was built")


def opened(options: argparse.Namespace, *, conversations: list[str] | None = None) -> tuple[Corpus, CachedTextEncoder]:
    """The corpus and the text encoder that the options name.

    Args:
        options: ``corpus``, ``format``, ``adapter`` and ``cache``, as ``add_corpus`` adds them, and ``dtype`` where a
            benchmark has it.
        conversations: Those to read; None for all.
    """
    named = CorpusSettings(options.corpus, options.format, conversations=conversations)
    dtype = getattr(options, "dtype", None)
    encoder = EncoderSettings(adapter=options.adapter, cache=options.cache, dtype=dtype)
    return opening.read_corpus(named), opening.text_encoder(encoder)


def scores(
    retriever: Retriever, questions: Sequence[Question], *, depth: int = 50, title: str | None = None
) -> list[dict[str, float]]:
    """The metrics of ``score_ranking`` for each question, asked at its own time.

    Args:
        retriever: What is asked.
        questions: Questions with evidence.
        depth: Number of hits that are asked for; their first 50 turns are scored.
        title: Shown on a progress bar; None shows none.
    """
    found = []
    for question in tqdm(questions, desc=title, unit="question", leave=False, disable=title is None):
        hits = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=depth).hits
        found.append(score_ranking(turns_of_hits(hits, top_k=50), set(question.evidence)))
    return found


def turns_to_add(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Turns as ``Memory.add_many`` takes them."""
    names = ("space", "speaker", "text", "spoken_at", "turn_id", "image_caption")
    return [{name: getattr(turn, name) for name in names} | {"session": turn.session_id} for turn in turns]


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of a benchmark and ``--output``; if ``arguments`` is None, those of the command line."""
    parser.add_argument("--output", type=Path, help="JSON file for the results; without it they are only printed")
    options = parser.parse_args(arguments)
    provenance.source_commit()  # cached now, since the source tree may change while a benchmark runs
    return options


def write(
    options: argparse.Namespace,
    measured: Mapping[str, Any],
    *,
    corpora: Sequence[Corpus] = (),
    text_encoder: str | None = None,
    seed: int = 0,
) -> None:
    """Write the results, and what they were measured on, to the file of ``--output``, if it is given.

    Args:
        options: Options, from ``options_of``.
        measured: The results.
        corpora: The corpora that were read.
        text_encoder: ID of the text encoder; None if texts are not encoded, or by the default text encoder.
        seed: Random seed of the benchmark.
    """
    if options.output is None:
        return
    manifest = provenance.manifest(
        seed,
        options={
            name: Path(value).name if name == "corpus" else value
            for name, value in vars(options).items()
            if name not in _PLACES
        },
        corpora=[corpus.source for corpus in corpora],
        text_encoder=text_encoder,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(options.output, json.dumps({**measured, "manifest": manifest}, indent=1) + "\n")
    print(f"results: {options.output}")
