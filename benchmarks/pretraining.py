"""Benefit of the self-supervised stage if only few conversations (0, 1, 2 or 4) have questions to learn from.

``python -m benchmarks.pretraining --corpus locomo10.json --format locomo --store graph.sqlite``, on a built graph. In
each of five folds the graph encoder learns from the questions of that many training conversations, with and without
the self-supervised stage over all of them; two conversations are held out for early stopping. With 0 conversations,
only the self-supervised stage is trained, or nothing at all. The differences that the stage makes have a sign-flip test
over conversations.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks import records
from benchmarks.second_pass import Scores, compared, recall_and_ndcg, shown
from locigraph.assembly import graphs, opening, provenance
from locigraph.kg.types import SpaceId
from locigraph.research.evaluation.asking import joined_runs
from locigraph.research.experiments.fold_task import Asker
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
    rows = []
    with opening.existing_store(options.store) as store:
        views = graphs.views_of(store, encoder)
        for count in options.conversations:
            without: Scores | None = None
            for pretrain_epochs in (0, TrainingConfig().pretrain_epochs):
                training = TrainingConfig(pretrain_epochs=pretrain_epochs, epochs=20 if count else 0)
                runs = []
                for fold in plan_folds(corpus.questions, folds=5, validation=2, seed=0):
                    learnt = set(fold.train[:count])
                    # All training conversations have their graphs, but only some of them have questions.
                    known = [q for q in corpus.questions if q.space in {*learnt, *fold.validation, *fold.test}]
                    trainer = FoldTrainer(
                        known,
                        views,
                        TrainerConfig(csv_log=False),
                        encoder=encoder,
                        details=provenance.manifest(0),
                    )
                    name = f"{count}-{pretrain_epochs}"
                    folder = Path(options.runs) / name / f"fold-{fold.index}"
                    made = trainer.train(fold, Settings(training=training), folder=folder, seed=0, name=name)
                    tested = [q for q in corpus.questions if SpaceId(q.space) in fold.test]
                    runs.append(Asker(tested, encoder, views).checkpoint(made, tested, name=name))
                rankings = joined_runs(runs).rankings
                asked = [question for question in corpus.questions if question.question_id in rankings]
                scores = np.array([recall_and_ndcg(rankings[q.question_id], q.evidence) for q in asked])
                row = compared(asked, scores, without)
                without = scores
                rows.append({"conversations": count, "pretrain_epochs": pretrain_epochs, **row})
                print(f"{count} conversations, {pretrain_epochs} epochs of pre-training: {shown(row)}", flush=True)
    records.write(options, {"rows": rows}, corpora=[corpus], text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()
