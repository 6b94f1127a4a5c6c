"""Divisions into folds, and checks that nothing of a test conversation reaches training.

Questions about one conversation share its graph and its facts, so a split by question would let a model see
the answers to its test questions. Folds are therefore made of whole conversations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from locigraph.kg.language.seen_texts import SeenTexts, is_distinctive, wording
from locigraph.training.errors import LeakError


@dataclass(frozen=True, slots=True)
class Fold:
    """One division of the conversations into three parts; a conversation is named by its space.

    ``validation`` decides on early stopping and hyper-parameters, so it must not overlap with ``test`` either.
    """

    index: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]


def check_text_leak(train_questions: Iterable[str], test_questions: Iterable[str]) -> None:
    """Refuse test questions that have the same wording as a training question.

    Texts are compared without case, punctuation and spacing, and after Unicode normalisation (NFKC).

    Raises:
        LeakError: If a test question's text is among the training ones; names the question.
    """
    seen = {wording(text) for text in train_questions}
    leaked = [text for text in test_questions if wording(text) in seen]
    if leaked:
        others = f" ({len(leaked) - 1} more)" if len(leaked) > 1 else ""
        raise LeakError(
            f"test question {leaked[0]!r} is also a training question{others}; remove it from training or from the test"
        )


def copied_evidence(
    folds: Sequence[Fold],
    evidence: Mapping[str, tuple[str, Sequence[str]]],
    texts: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Questions with evidence that is, word for word, in a training conversation of their fold.

    This happens in corpora that put the same sessions into several conversations; IDs do not show it.

    Args:
        folds: Folds of the comparison.
        evidence: Question ID -> (space, turn IDs).
        texts: Space -> turn ID -> text. Turns of fewer than eight words are ignored, since they are alike by chance.

    Returns:
        IDs of the questions, in the order of ``evidence``.
    """
    seen_of = {space: SeenTexts(filter(is_distinctive, turns.values())) for space, turns in texts.items()}
    copied = set()
    for fold in folds:
        learnt = SeenTexts.union(seen_of.get(space, SeenTexts()) for space in (*fold.train, *fold.validation))
        tested = {question: (space, turns) for question, (space, turns) in evidence.items() if space in fold.test}
        copied |= {*seen_evidence(learnt, tested, texts)}
    return [question for question in evidence if question in copied]


def seen_evidence(
    learnt: SeenTexts, evidence: Mapping[str, tuple[str, Sequence[str]]], texts: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Questions with evidence that is, word for word, among training texts.

    Args:
        learnt: The training texts.
        evidence: As in ``copied_evidence``.
        texts: As in ``copied_evidence``.
    """
    return [
        question
        for question, (space, turns) in evidence.items()
        if any(
            is_distinctive(text) and text in learnt for text in (texts.get(space, {}).get(turn, "") for turn in turns)
        )
    ]
