"""Similarity of two corpora, one that is learnt from and one that is tested.

    python -m benchmarks.overlap --learnt threads --tested locomo10.json --format locomo

Prints the cosine of tested questions to their nearest learnt question (text encoder without adapter), the speakers that
occur in both corpora, and the word sequences that occur in turns of both.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks import records
from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.kg.corpora import Corpus
from locigraph.kg.language.tokens import words


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--learnt",
        default="threads",
        help="corpus that is learnt from, in the project's JSONL format: a bundled name or a file",
    )
    parser.add_argument("--tested", required=True, help="corpus that is tested: a bundled name or a file")
    parser.add_argument(
        "--format", choices=["jsonl", "locomo", "longmemeval"], default="jsonl", help="format of --tested"
    )
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    parser.add_argument("--length", type=int, default=8, help="length of the word sequences that are compared")
    parser.add_argument(
        "--show", type=int, default=5, help="number of nearest pairs, and of shared sequences, to print"
    )
    options = records.options_of(parser)

    learnt = opening.read_corpus(CorpusSettings(path=options.learnt))
    tested = opening.read_corpus(CorpusSettings(path=options.tested, format=options.format))
    encoder = opening.text_encoder(EncoderSettings(cache=options.cache))
    cosine = (
        encoder.encode([q.text for q in tested.questions], progress="tested questions")
        @ encoder.encode([q.text for q in learnt.questions], progress="learnt questions").T
    )
    nearest = cosine.max(axis=1)
    print(f"cosine of {len(nearest)} tested questions to the nearest of {len(learnt.questions)} learnt ones:")
    median, high, most = np.quantile(nearest, [0.5, 0.95, 1]).tolist()
    print(f"  median {median:.3f}, 95th percentile {high:.3f}, maximum {most:.3f}")
    for row in np.argsort(-nearest)[: options.show].tolist():
        pair = tested.questions[row].text, learnt.questions[int(cosine[row].argmax())].text
        print(f"  {nearest[row]:.3f}  {pair[0]}  |  {pair[1]}")
    speakers = sorted(_speakers(learnt) & _speakers(tested))
    print(f"speakers that occur in both: {', '.join(speakers) or 'none'}")
    sequences = [_sequences(corpus, options.length) for corpus in (tested, learnt)]
    both = sequences[0] & sequences[1]
    print(f"sequences of {options.length} words that occur in both: {len(both)} of {len(sequences[0])} tested ones")
    for words_ in sorted(both)[: options.show]:
        print(f"  {' '.join(words_)}")
    measured = {
        "questions": {"tested": len(tested.questions), "learnt": len(learnt.questions)},
        "cosine_to_nearest": {"median": median, "percentile_95": high, "most": most},
        "speakers_of_both": speakers,
        "sequences": {"tested": len(sequences[0]), "of_both": len(both)},
    }
    records.write(options, measured, corpora=[learnt, tested], text_encoder=encoder.model_id)


def _speakers(corpus: Corpus) -> set[str]:
    return {turn.speaker for conversation in corpus.conversations for turn in conversation.turns}


def _sequences(corpus: Corpus, length: int) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for conversation in corpus.conversations:
        for turn in conversation.turns:
            spoken = words(turn.text)
            found.update(tuple(spoken[i : i + length]) for i in range(len(spoken) - length + 1))
    return found


if __name__ == "__main__":
    main()
