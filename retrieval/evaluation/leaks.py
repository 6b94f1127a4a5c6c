"""Splits by conversation, and checks that nothing of a test conversation reaches training.

Questions about one conversation share its graph and its facts, so a split by question would let a model see
the answers to its test questions. Folds are therefore made of whole conversations, and every conversation is
tested exactly once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from locigraph.kg.counts import counted
from locigraph.kg.language.seen_texts import SeenTexts, is_distinctive, wording
from locigraph.retrieval.evaluation.errors import EvaluationError, LeakError


@dataclass(frozen=True, slots=True)
class Fold:
    """One division of the conversations into three parts; a conversation is named by its space.

    ``validation`` decides on early stopping and hyper-parameters, so it must not overlap with ``test`` either.
    """

    index: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]


def check_folds(folds: Sequence[Fold], *, spaces: Iterable[str] | None = None) -> None:
    """Refuse folds that leak or that do not test every conversation once.

    Args:
        folds: Folds of one cross-validation.
        spaces: All conversations that must be tested; None for those that the folds mention.

    Raises:
        LeakError: If a conversation is in two parts of a fold, or is not tested exactly once. Names the conversation.
    """
    for fold in folds:
        for first, second in (("test", "train"), ("validation", "train"), ("test", "validation")):
            shared = sorted(set(getattr(fold, first)) & set(getattr(fold, second)))
            if shared:
                raise LeakError(
                    f"fold {fold.index}: conversation {shared[0]!r} is in {first} and in {second}"
                    f"{_others(shared)}; make the folds with make_folds"
                )
    tested = Counter(space for fold in folds for space in fold.test)
    expected = set(spaces or ()).union(*((*fold.train, *fold.validation) for fold in folds))
    repeated = sorted(space for space, times in tested.items() if times > 1)
    if repeated:
        raise LeakError(
            f"conversation {repeated[0]!r} is tested {tested[repeated[0]]} times{_others(repeated)}; "
            "each conversation must be in the test part of one fold only"
        )
    missing = sorted(expected - set(tested))
    if missing:
        raise LeakError(
            f"no fold tests conversation {missing[0]!r}{_others(missing)}; each conversation must be in the test part "
            "of one fold, since results over some conversations do not hold for the whole corpus"
        )


def make_folds(
    spaces: Sequence[str],
    *,
    folds: int,
    validation: int,
    seed: int,
    weights: Mapping[str, float] | None = None,
) -> tuple[Fold, ...]:
    """Divide conversations into folds that test each of them once; leave-one-out if ``folds`` is their number.

    The sizes of the test parts differ by at most one conversation. With weights, the heaviest remaining
    conversations are dealt one to each fold, the heaviest to the lightest fold. A fold's validation part comes
    from the test parts of the next folds, so that conversations are used for validation about equally often.

    Args:
        spaces: Names of the conversations; their order does not matter.
        folds: Number of folds, from 2 to the number of conversations.
        validation: Number of conversations in each validation part; 0 for none.
        seed: Random seed; decides which conversations come together.
        weights: Size of each conversation, such as its number of questions; None treats all alike.

    Returns:
        Folds in the order of their index, each part sorted. The same arguments give the same folds.

    Raises:
        EvaluationError: If a conversation is named twice or has no weight, ``folds`` is out of range, or a
            fold would have no conversation left to train on.
    """
    repeated = sorted(space for space, times in Counter(spaces).items() if times > 1)
    if repeated:
        raise EvaluationError(f"conversation {repeated[0]!r} is listed more than once{_others(repeated)}")
    if not 2 <= folds <= len(spaces):
        raise EvaluationError(
            f"folds is {folds} for {counted(len(spaces), 'conversation')}; expected 2 to {len(spaces)}, since every "
            "fold tests at least one conversation and trains on others"
        )
    if weights is not None:
        unweighted = sorted(set(spaces) - set(weights))
        if unweighted:
            raise EvaluationError(f"conversation {unweighted[0]!r} has no weight{_others(unweighted)}")
    largest_test = -(-len(spaces) // folds)
    if validation < 0 or len(spaces) - largest_test - validation < 1:
        raise EvaluationError(
            f"validation is {validation}: of {counted(len(spaces), 'conversation')} a fold tests {largest_test}, "
            f"so it must be from 0 to {max(0, len(spaces) - largest_test - 1)} to leave one to train on"
        )
    tests = _deal(spaces, folds, seed, weights)
    return tuple(_fold(index, tests, validation) for index in range(folds))


def check_text_leak(train_questions: Iterable[str], test_questions: Iterable[str]) -> None:
    """Refuse test questions that have the same wording as a training question.

    Texts are compared without case, punctuation and spacing, and after Unicode normalisation (NFKC).

    Raises:
        LeakError: If a test question's text is among the training ones; names the question.
    """
    seen = {wording(text) for text in train_questions}
    leaked = [text for text in test_questions if wording(text) in seen]
    if leaked:
        raise LeakError(
            f"test question {leaked[0]!r} is also a training question{_others(leaked)}; "
            "remove it from training or from the test"
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
    held = {space: SeenTexts(filter(is_distinctive, turns.values())) for space, turns in texts.items()}
    found = set()
    for fold in folds:
        learnt = SeenTexts.union(held.get(space, SeenTexts()) for space in (*fold.train, *fold.validation))
        tested = {question: asked for question, asked in evidence.items() if asked[0] in fold.test}
        found |= {*seen_evidence(learnt, tested, texts)}
    return [question for question in evidence if question in found]


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


def _deal(spaces: Sequence[str], folds: int, seed: int, weights: Mapping[str, float] | None) -> list[list[str]]:
    """The test part of each fold, in the order in which its conversations were dealt."""
    order = sorted(spaces)
    random.Random(seed).shuffle(order)
    size = {space: 1.0 if weights is None else float(weights[space]) for space in order}
    order.sort(key=lambda space: -size[space])  # stable, so the seed decides among equals
    tests: list[list[str]] = [[] for _ in range(folds)]
    for start in range(0, len(order), folds):
        loads = [sum(size[space] for space in test) for test in tests]
        lightest_first = sorted(range(folds), key=lambda index: (loads[index], index))
        for index, space in zip(lightest_first, order[start : start + folds], strict=False):
            tests[index].append(space)
    return tests


def _fold(index: int, tests: Sequence[Sequence[str]], validation: int) -> Fold:
    others = []
    for step in range(1, len(tests)):
        group = tests[(index + step) % len(tests)]  # heaviest first
        start = index % len(group) if group else 0  # otherwise only the heaviest would ever be used for validation
        others += [*group[start:], *group[:start]]
    return Fold(
        index=index,
        train=tuple(sorted(others[validation:])),
        validation=tuple(sorted(others[:validation])),
        test=tuple(sorted(tests[index])),
    )


def _others(found: Sequence[str]) -> str:
    return f" ({len(found) - 1} more)" if len(found) > 1 else ""
