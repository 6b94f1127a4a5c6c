"""How much of the answers stands in the contexts of each strategy.

    locigraph evaluate --corpus.path projects --store data/projects.sqlite --output runs/projects ...
    python -m benchmarks.context_answers --contexts runs/projects/contexts.jsonl.gz --corpus projects

Recall of a context counts a turn as found if an excerpt of it is shown. This counts words instead: for each question
with evidence, the share of the answer's content words, without those of the question, that its context has.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks import records
from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings
from locigraph.kg.language.terms import terms
from locigraph.research.evaluation.contexts import read_contexts
from locigraph.retrieval.metrics import TOKEN_BUDGETS


def main() -> None:
    """Print a row for each strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", required=True, help="contexts.jsonl.gz of an evaluation")
    parser.add_argument("--corpus", required=True, help="its corpus: a bundled name or a file")
    parser.add_argument(
        "--format", choices=["jsonl", "locomo", "longmemeval"], default="jsonl", help="format of --corpus"
    )
    options = records.options_of(parser)

    corpus = opening.read_corpus(CorpusSettings(path=options.corpus, format=options.format))
    wanted = {
        each.question_id: answer
        for each in corpus.questions
        if each.evidence and each.answer and (answer := set(terms(each.answer)) - set(terms(each.text)))
    }
    shares: dict[str, dict[str, float]] = {}
    counted = 0
    for tokens in TOKEN_BUDGETS:
        for strategy, contexts in read_contexts(Path(options.contexts), tokens).items():
            said = [(wanted[name], set(terms(text))) for name, text in contexts.items() if name in wanted]
            counted = len(said)
            shares.setdefault(strategy, {})[str(tokens)] = float(np.mean([len(a & b) / len(a) for a, b in said]))
    print(
        f"{counted:,} questions; share of the words of the answer in a context of " + ", ".join(map(str, TOKEN_BUDGETS))
    )
    for strategy, row in shares.items():
        print(f"  {strategy:24} " + "  ".join(f"{share:.3f}" for share in row.values()))
    records.write(options, {"questions": counted, "shares": shares}, corpora=[corpus])


if __name__ == "__main__":
    main()
