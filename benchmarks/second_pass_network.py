"""What categories, reflections, parts of events, causes and sessions add to v2, as further relations of its network.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store locomo.sqlite
    python -m benchmarks.second_pass_network --store locomo.sqlite --corpus locomo10.json --rows reflection cause
    locigraph build --config configs/build/sample_llm.yaml
    python -m benchmarks.second_pass_network --store data/sample_llm.sqlite --corpus sample --format jsonl \
        --conversations harbor --learnt_store voices.sqlite --rows sub_event cause --start .15 .1

The second passes of ``--passes`` run on a copy of the store, by rules; ``link`` finds causes by their cue phrases.
``--passes`` without a name takes the store as it is, for example with the reflections of ``locigraph reflect
--llm.model NAME``. Only language models find parts of events, so these come from a cassette. The graph links
reflections to facts, and parts to events, but neither to turns; so an edge is added to the snapshot from each of them
to the turns from which the fact or event was derived. By the row ``session`` a turn takes in all others of its session.
Each row is tried by itself; ``category+reflection`` tries two together. The weights of the new relations start at 0, or
at ``--start``; if the training graphs hold no such edge, these initial weights are what is tested. One seed, exact
search. With ``--learnt_store`` (and ``--learnt_corpus``, a bundled corpus) the network learns from another corpus, of
which nothing is held back, as the shipped checkpoint does; otherwise it learns in folds.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks import records
from benchmarks.second_pass import PASSES, compared, recall_and_ndcg, shown
from locigraph.assembly import graphs, opening
from locigraph.assembly.settings import DEFAULT_DTYPE, CorpusSettings, EncoderSettings
from locigraph.consolidation.classification import category_types
from locigraph.gnn.relations import RELATIONS, NetworkRelation
from locigraph.kg.corpora import Corpus
from locigraph.kg.schema import EPISODE, searchable_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.research.experiments.fold_task import Asker, fold_trainer
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.training.config import Settings, TrainerConfig, TrainingConfig
from locigraph.training.folds import FoldTrainer, plan_folds
from locigraph.training.leaks import Fold

# Family of the edges between the turns of a session, which no graph holds.
_SESSION = "SESSION"
#: Types of the nodes that causal edges connect, among those that the network uses.
_CAUSAL = (EPISODE, "event_node", "knowledge_node")


@dataclass(frozen=True)
class Row:
    """A kind of edge whose source becomes a neighbour of the turns from which its target was derived.

    Attributes:
        label: Label of the edges.
        sources: Types of their source nodes.
        relations: The relations of the network by which turns take in these neighbours.
        is_mutual: Whether the target also becomes a neighbour of the turns of the source, by relations of the family
            ``INTO_...``.
    """

    label: str
    sources: Sequence[str]
    relations: Sequence[NetworkRelation]
    is_mutual: bool = False

    @property
    def back(self) -> str:
        """Family of the edges from the target to the turns of the source."""
        return f"INTO_{self.label}"


ROWS = {
    "reflection": Row(
        "DERIVED_FROM_FACT", ["reflection"], [NetworkRelation("reflection", "knowledge_node", "DERIVED_FROM_FACT")]
    ),
    "category": Row(
        "CONTAINS", list(category_types().values()), [NetworkRelation("category", "concept", "CONTAINS")]
    ),
    "sub_event": Row(
        "CONTAINS",
        ["event_node"],
        [NetworkRelation("whole", "event_node", "CONTAINS"), NetworkRelation("part", "event_node", "INTO_CONTAINS")],
        is_mutual=True,
    ),
    "cause": Row(
        "CAUSES",
        searchable_types(),
        [
            *(NetworkRelation(f"cause_{kind}", kind, "CAUSES") for kind in _CAUSAL),
            *(NetworkRelation(f"effect_{kind}", kind, "INTO_CAUSES") for kind in _CAUSAL),
        ],
        is_mutual=True,
    ),
    "session": Row(_SESSION, (), [NetworkRelation("session", EPISODE, _SESSION)]),
}  # fmt: skip


def with_turns(seen: Snapshot) -> Snapshot:
    """The snapshot with added edges to turns: from one end of each row's edges to the turns of the other end."""
    turns: dict[int, list[int]] = {}
    for node, turn in seen.provenance.tolist():
        turns.setdefault(node, []).append(int(seen.episode_rows[turn]))
    added: list[tuple[str, int, int]] = []
    for row in ROWS.values():
        edges = (seen.relations == row.label) & np.isin(seen.source, seen.active_rows(row.sources))
        ends = zip(seen.source[edges].tolist(), seen.target[edges].tolist(), strict=True)
        pairs = {(row.label, source, target) for source, target in ends}
        if row.is_mutual:
            pairs |= {(row.back, target, source) for _, source, target in pairs}
        added += sorted(
            {
                (family, node, episode)
                for family, node, other in pairs
                for episode in turns.get(other, [])
                if episode != node
            }
        )
    added += _within_sessions(seen)
    source, target = (np.array([edge[at] for edge in added], dtype=np.int64) for at in (1, 2))
    labels = np.array([edge[0] for edge in added], dtype=np.str_)
    return replace(
        seen,
        source=np.append(seen.source, source),
        target=np.append(seen.target, target),
        relations=np.append(seen.relations, labels),
        families=np.append(seen.families, labels),
        weights=np.append(seen.weights, np.ones(len(labels), dtype=np.float32)),
    )


def _within_sessions(seen: Snapshot) -> list[tuple[str, int, int]]:
    """Edges between any two turns of a session, in both directions."""
    sessions: dict[str, list[int]] = {}
    for session, row in zip(seen.session_ids, seen.episode_rows.tolist(), strict=True):
        if row >= 0:
            sessions.setdefault(session, []).append(row)
    return [(_SESSION, *ends) for rows in sessions.values() for ends in permutations(rows, 2)]


@dataclass(frozen=True)
class Passed:
    """A corpus whose graphs were processed by second passes, with edges to turns."""

    corpus: Corpus
    views: Views
    trainer: FoldTrainer

    @property
    def questions(self) -> Sequence[Question]:
        """The questions of the corpus."""
        return self.corpus.questions


@contextmanager
def passed(store: str, corpus: CorpusSettings, encoder: CachedTextEncoder, passes: Sequence[str]) -> Iterator[Passed]:
    """Run second passes on a copy of a built store, and yield the result."""
    read = opening.read_corpus(corpus)
    encoder.encode([question.text for question in read.questions], progress="encode questions")
    with tempfile.TemporaryDirectory() as copied, Store(shutil.copy(store, f"{copied}/g.sqlite")) as graph:
        for space in tqdm([c.space for c in read.conversations], desc="second passes", unit="space"):
            for name in passes:
                PASSES[name](graph, encoder.without_adapter(), space)
        graphs.embed_all([c.space for c in read.conversations], graph, encoder)
        views = Views(
            lambda space, as_of: with_turns(graph.snapshot(space, as_of=as_of, embedding_model=encoder.model_id)),
            graph.last_spoken(),
        )
        trainer = fold_trainer(read, views, TrainerConfig(csv_log=False), encoder, seed=0)
        yield Passed(read, views, trainer)


def main() -> None:
    """Print recall@10 and nDCG@10 without and with each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="graph of the tested corpus; the passes run on a copy of it")
    parser.add_argument("--corpus", required=True, help="corpus that is tested: a bundled name or a file")
    parser.add_argument("--format", default="locomo", help="format of the corpus")
    parser.add_argument("--conversations", nargs="*", help="conversations of --corpus; all by default")
    parser.add_argument("--folds", type=int, default=5, help="number of folds; not used with --learnt_store")
    parser.add_argument("--validation", type=int, default=2, help="number of validation conversations in each fold")
    parser.add_argument(
        "--learnt_store", help="graph of another corpus to learn from; without it, training uses folds of --corpus"
    )
    parser.add_argument("--learnt_corpus", default="voices", help="bundled corpus of --learnt_store")
    parser.add_argument("--learnt_conversations", nargs="*", help="conversations of --learnt_corpus; all by default")
    parser.add_argument(
        "--epochs", type=int, default=3, help="number of epochs with --learnt_store; there is no early stopping"
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        type=_rows,
        default=[(name,) for name in ROWS],
        help=f"rows to try: {', '.join(ROWS)}; a+b tries two together",
    )
    parser.add_argument(
        "--passes",
        nargs="*",
        choices=list(PASSES),
        default=list(PASSES),
        help="second passes to run; none: the store as it is",
    )
    parser.add_argument(
        "--start",
        type=float,
        nargs=2,
        default=[0.0, 0.0],
        help="initial weights of the rows, for the text and lexical blocks",
    )
    parser.add_argument("--adapter", default="checkpoints/text", help="folder of the text encoder's adapter")
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    parser.add_argument(
        "--dtype", default=DEFAULT_DTYPE, help="number format of the text encoder; not used for --learnt_store"
    )
    options = records.options_of(parser)
    encoder = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache, dtype=options.dtype))
    with ExitStack() as held:
        corpus = CorpusSettings(options.corpus, options.format, conversations=options.conversations)
        asked = held.enter_context(passed(options.store, corpus, encoder, options.passes))
        if options.learnt_store is None:
            learnt, settings = asked, Settings()
            folds = list(plan_folds(asked.questions, folds=options.folds, validation=options.validation, seed=0))
        else:
            other = CorpusSettings(options.learnt_corpus, conversations=options.learnt_conversations)
            usual = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache))
            learnt = held.enter_context(passed(options.learnt_store, other, usual, options.passes))
            settings = Settings(training=TrainingConfig(epochs=options.epochs, pretrain_epochs=0))
            spaces, tested = ({q.space for q in each.questions} for each in (learnt, asked))
            folds = [Fold(0, tuple(sorted(spaces)), (), tuple(sorted(tested)))]
        found = compare(asked, learnt, folds, settings, options.rows, encoder, start=options.start)
    corpora = [asked.corpus] if learnt is asked else [asked.corpus, learnt.corpus]
    records.write(options, {"rows": found}, corpora=corpora, text_encoder=encoder.model_id)


def _rows(names: str) -> tuple[str, ...]:
    """Names of rows that are tried together, from a text that joins them by plus signs."""
    found = tuple(names.split("+"))
    unknown = [name for name in found if name not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not a row; expected one or more of {', '.join(ROWS)}")
    return found


def compare(
    asked: Passed,
    learnt: Passed,
    folds: Sequence[Fold],
    settings: Settings,
    tried: Sequence[Sequence[str]],
    encoder: CachedTextEncoder,
    *,
    start: Sequence[float],
) -> list[dict[str, Any]]:
    """Train without and with further rows, fold by fold; prints the means over the folds so far.

    Args:
        asked: The corpus that is tested.
        learnt: The corpus that is learnt from.
        folds: Folds of the conversations of both.
        settings: Settings of the trainings.
        tried: Names of the rows of each training that has some.
        encoder: Text encoder.
        start: Weights of the rows before training, for the text and lexical blocks.

    Returns:
        The means over all folds, without rows and with each choice of them.
    """
    variants: dict[str, Sequence[str]] = {"without": (), **{" and ".join(rows): rows for rows in tried}}
    done: list[Question] = []
    scores: dict[str, list[list[float]]] = {name: [] for name in variants}
    found: list[dict[str, Any]] = []
    for fold in folds:
        tested = [question for question in asked.questions if question.space in fold.test]
        done += tested
        for name, rows in variants.items():
            with ExitStack() as added, tempfile.TemporaryDirectory() as folder:
                for relation in (each for row in rows for each in ROWS[row].relations):
                    RELATIONS.add(replace(relation, start=(start[0], start[1], None)))
                    added.callback(RELATIONS.remove, relation.name)
                made = learnt.trainer.train(fold, settings, folder=Path(folder), seed=0, name=f"{name}, {fold.index}")
                rankings = Asker(tested, encoder, asked.views).checkpoint(made, tested, name=name).rankings
                scores[name] += [recall_and_ndcg(rankings[q.question_id], q.evidence) for q in tested]
        whole = {name: np.array(values) for name, values in scores.items()}
        found = [
            {"rows": list(rows), **compared(done, whole[name], whole["without"] if rows else None)}
            for name, rows in variants.items()
        ]
        for name, row in zip(variants, found, strict=True):
            print(f"{fold.index + 1} folds, {'with ' if row['rows'] else ''}{name}: {shown(row)}", flush=True)
    return found


if __name__ == "__main__":
    main()
