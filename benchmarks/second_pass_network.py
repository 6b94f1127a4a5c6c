"""What categories and reflections are worth to v2: rows of the network's table of relations, trained in folds.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store locomo.sqlite
    python -m benchmarks.second_pass_network --store locomo.sqlite --corpus locomo10.json --rows reflection category

A copy of the store is classified and reflected upon. A turn takes in the reflections and categories of what was drawn
from it: the graph joins these to facts, so an edge from each to the turn is added to the snapshot. The weights of the
new relations start at 0. Five folds, one seed, exact search. With ``--learnt_store`` (and ``--learnt_corpus``, a
bundled corpus) the network learns from another corpus, of which nothing is held back, as the shipped checkpoint does.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.second_pass import PASSES, shown
from locigraph.consolidation.classification import category_types
from locigraph.gnn.relations import RELATIONS, NetworkRelation
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.retrieval.evaluation import Fold, score_ranking
from locigraph.retrieval.protocols import TextEncoder
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.assembly import graphs, opening
from locigraph.scripts.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.scripts.experiments import learning
from locigraph.training.comparison import rank_exactly
from locigraph.training.config import Settings, TrainerConfig, TrainingConfig
from locigraph.training.folds import FoldTrainer, plan_folds

ROWS = {
    "reflection": NetworkRelation("reflection", "knowledge_node", "DERIVED_FROM_FACT"),
    "category": NetworkRelation("category", "concept", "CONTAINS"),
}


def with_turns(seen: Snapshot) -> Snapshot:
    """The snapshot with edges from reflections and categories to the turns that their facts come from."""
    source, target, labels = [], [], []
    turns: dict[int, list[int]] = {}
    for node, turn in seen.provenance.tolist():
        turns.setdefault(node, []).append(int(seen.episode_rows[turn]))
    for label, types in (("DERIVED_FROM_FACT", ["reflection"]), ("CONTAINS", list(category_types().values()))):
        ends = (seen.relations == label) & np.isin(seen.source, seen.active_rows(types))
        pairs = {
            (node, episode)
            for node, fact in zip(seen.source[ends].tolist(), seen.target[ends].tolist(), strict=True)
            if not seen.labels[node].startswith("other ")
            for episode in turns.get(fact, [])
        }
        for node, episode in sorted(pairs):
            source.append(node)
            target.append(episode)
            labels.append(label)

    return replace(
        seen,
        source=np.append(seen.source, np.array(source, dtype=np.int64)),
        target=np.append(seen.target, np.array(target, dtype=np.int64)),
        relations=np.append(seen.relations, np.array(labels, dtype=np.str_)),
        families=np.append(seen.families, np.array(labels, dtype=np.str_)),
        weights=np.append(seen.weights, np.ones(len(labels), dtype=np.float32)),
    )


@dataclass(frozen=True)
class Passed:
    """A corpus whose graphs the second passes have gone over, with edges to turns."""

    questions: Sequence[Question]
    views: Views
    trainer: FoldTrainer


@contextmanager
def passed(store: str, corpus: CorpusSettings, encoder: CachedTextEncoder) -> Iterator[Passed]:
    """A copy of a built store, classified and reflected upon."""
    read = opening.read_corpus(corpus)
    encoder.encode([question.text for question in read.questions], progress="encode questions")
    with tempfile.TemporaryDirectory() as copied, Store(shutil.copy(store, f"{copied}/g.sqlite")) as graph:
        for space in tqdm(graph.spaces(), desc="second passes", unit="space"):
            for each in PASSES.values():
                each(graph, encoder.without_adapter(), space)
        graphs.embed_all(graph.spaces(), graph, encoder)
        views = Views.of_corpus(
            lambda space, as_of: with_turns(graph.snapshot(space, as_of=as_of, embedding_model=encoder.model_id)), read
        )
        trainer = learning.fold_trainer(read, views, TrainerConfig(csv_log=False), encoder, seed=0)
        yield Passed(read.questions, views, trainer)


def main() -> None:
    """Print recall@10 and nDCG@10 without and with the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--format", default="locomo")
    parser.add_argument("--learnt_store", help="built store of a corpus to learn from; without it, folds of the corpus")
    parser.add_argument("--learnt_corpus", default="voices")
    parser.add_argument("--learnt_conversations", nargs="*", help="of that corpus; all by default")
    parser.add_argument("--epochs", type=int, default=3, help="of a training on another corpus, which nothing stops")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--adapter", default="checkpoints/text")
    parser.add_argument("--cache")
    parser.add_argument("--dtype", default=EncoderSettings().dtype, help="of the text encoder; not for --learnt_store")
    options = parser.parse_args()
    encoder = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache, dtype=options.dtype))
    with ExitStack() as held:
        asked = held.enter_context(passed(options.store, CorpusSettings(options.corpus, options.format), encoder))
        if options.learnt_store is None:
            learnt, settings = asked, Settings()
            folds = list(plan_folds(asked.questions, folds=5, validation=2, seed=0))
        else:
            other = CorpusSettings(options.learnt_corpus, conversations=options.learnt_conversations)
            usual = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache))
            learnt = held.enter_context(passed(options.learnt_store, other, usual))
            settings = Settings(training=TrainingConfig(epochs=options.epochs, pretrain_epochs=0))
            spaces, tested = ({q.space for q in each.questions} for each in (learnt, asked))
            folds = [Fold(0, tuple(sorted(spaces)), (), tuple(sorted(tested)))]
        compare(asked, learnt, folds, settings, options.rows, encoder)


def compare(
    asked: Passed, learnt: Passed, folds: Sequence[Fold], settings: Settings, rows: Sequence[str], encoder: TextEncoder
) -> None:
    """Train without and with the rows, fold by fold, and print the means over the folds so far."""
    done: list[Question] = []
    scores: dict[str, list[list[float]]] = {"without": [], "with": []}
    for fold in folds:
        tested = [question for question in asked.questions if question.space in fold.test]
        done += tested
        for name, held in scores.items():
            with ExitStack() as added, tempfile.TemporaryDirectory() as folder:
                for row in rows if name == "with" else []:
                    RELATIONS.add(ROWS[row])
                    added.callback(RELATIONS.remove, row)
                made = learnt.trainer.train(fold, settings, folder=Path(folder), seed=0, name=f"{name}, {fold.index}")
                found = rank_exactly(made, tested, asked.views, encoder.encode, name=name).rankings
                held += [recall_and_ndcg(found[q.question_id], q.evidence) for q in tested]
        whole = {name: np.array(values) for name, values in scores.items()}
        print(f"{fold.index + 1} folds without: {shown(done, whole['without'], None)}")
        print(f"with {' and '.join(rows)}: {shown(done, whole['with'], whole['without'])}", flush=True)


def recall_and_ndcg(ranking: Sequence[str], evidence: Sequence[str]) -> list[float]:
    """recall@10 and nDCG@10."""
    scores = score_ranking(ranking, set(evidence))
    return [scores["recall@10"], scores["ndcg@10"]]


if __name__ == "__main__":
    main()
