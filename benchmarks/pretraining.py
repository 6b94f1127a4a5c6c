"""Benefit of the self-supervised stage if only few conversations (0, 1, 2 or 4) have questions to learn from.

``python -m benchmarks.pretraining --corpus locomo10.json --format locomo --store graph.sqlite``, on a built graph. In
each of five folds the graph encoder learns from the questions of that many training conversations, with and without
the self-supervised stage over all of them; two conversations are held out for early stopping. With 0 conversations,
only the self-supervised stage is trained, or nothing at all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import records
from locigraph.kg.types import SpaceId
from locigraph.retrieval.evaluation.asking import joined_runs
from locigraph.retrieval.evaluation.metrics import evidence_recall, ndcg
from locigraph.scripts.assembly import graphs, opening
from locigraph.scripts.experiments import provenance
from locigraph.training.comparison import run_checkpoint
from locigraph.training.config import Settings, TrainerConfig, TrainingConfig
from locigraph.training.folds import FoldTrainer, plan_folds


def main() -> None:
    """Train and print a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="corpus to learn from and to test on: a bundled name or a file")
    parser.add_argument("--format", default="locomo", help="format of the corpus")
    parser.add_argument("--store", required=True, help="graph of the corpus")
    parser.add_argument("--adapter", default="checkpoints/text", help="folder of the text encoder's adapter")
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    parser.add_argument("--runs", default="runs/pretraining", help="folder in which the trainings are stored")
    parser.add_argument(
        "--conversations",
        type=int,
        nargs="+",
        default=[0, 1, 2, 4],
        help="numbers of training conversations with questions to try",
    )
    options = records.options_of(parser)
    corpus, encoder = records.opened(options)
    gold = {q.question_id: set(map(str, q.evidence)) for q in corpus.questions}
    rows = []
    with opening.existing_store(options.store) as store:
        views = graphs.views_of(store, encoder)
        for count in options.conversations:
            for pretrain_epochs in (0, TrainingConfig().pretrain_epochs):
                training = TrainingConfig(pretrain_epochs=pretrain_epochs, epochs=20 if count else 0)
                runs = []
                for fold in plan_folds(corpus.questions, folds=5, validation=2, seed=0):
                    learnt = set(fold.train[:count])
                    # All training conversations have their graphs, but only some of them have questions.
                    asked = [q for q in corpus.questions if q.space in {*learnt, *fold.validation, *fold.test}]
                    trainer = FoldTrainer(
                        asked,
                        views,
                        TrainerConfig(csv_log=False),
                        encoder=encoder,
                        details=provenance.manifest(0),
                    )
                    name = f"{count}-{pretrain_epochs}"
                    folder = Path(options.runs) / name / f"fold-{fold.index}"
                    made = trainer.train(fold, Settings(training=training), folder=folder, seed=0, name=name)
                    tested = [q for q in corpus.questions if SpaceId(q.space) in fold.test]
                    runs.append(run_checkpoint(made, tested, views=views, encoder=encoder, name=name))
                found = {key: list(map(str, ranking)) for key, ranking in joined_runs(runs).rankings.items()}
                recall = sum(evidence_recall(found[key], gold[key], 10) for key in found) / len(found)
                gain = sum(ndcg(found[key], gold[key], 10) for key in found) / len(found)
                rows.append(
                    {"conversations": count, "pretrain_epochs": pretrain_epochs, "recall@10": recall, "ndcg@10": gain}
                )
                print(
                    f"{count} conversations, {pretrain_epochs} epochs of pre-training: {recall:.3f} / {gain:.3f}",
                    flush=True,
                )
    records.write(options, {"rows": rows}, corpora=[corpus], text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()
