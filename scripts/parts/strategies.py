"""Retrieval strategies by name: which there are, what each needs, and which are tested against which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locigraph.kg.errors import LocigraphError
from locigraph.scripts.parts.options import names

#: All that ``evaluate`` can run.
STRATEGIES = (
    "v1", "v1-k60", "v1-adapted", "v2", "v2-zero", "sum", "sum-adapted", "dense", "dense-adapted", "bm25",
)  # fmt: skip
#: Strategies that need a checkpoint.
TRAINED = ("v2", "v2-zero")
#: Strategies that search the vector index.
WITH_INDEX = ("v1", "v1-k60", "dense", *TRAINED)
#: Strategies with the text encoder's adapter, by those without; their vectors are searched in memory, exactly.
ADAPTED = {f"{name}-adapted": name for name in ("v1", "sum", "dense")}


def require_adapter(strategies: Sequence[str], adapter: str | None) -> None:
    """Refuse strategies of ``ADAPTED`` without an adapter.

    Raises:
        LocigraphError: Names the first.
    """
    wrong = [name for name in strategies if name in ADAPTED]
    if adapter is None and wrong:
        raise LocigraphError(f"strategy {wrong[0]!r} needs an adapter; name one with --encoder.adapter")


def chosen(listed: str, *, checkpoint: str | None, adapter: str | None) -> list[str]:
    """Strategies of a list of names.

    Raises:
        LocigraphError: If one is not known or lacks what it needs, or there is none.
    """
    found = names(listed, STRATEGIES, "strategy")
    if not found:
        raise LocigraphError(f"strategies is {listed!r}; name at least one of {', '.join(STRATEGIES)}")
    if checkpoint is None and "v2-zero" in found:
        raise LocigraphError("strategy 'v2-zero' needs a checkpoint; name one with --checkpoint")
    require_adapter(found, adapter)
    return found


def comparisons(strategies: Sequence[str], baselines: str | None) -> list[tuple[str, str]] | None:
    """Which strategy is tested against which.

    Args:
        strategies: All that are run.
        baselines: Names separated by commas; None for v1 and sum (of which with the adapter what is run), or for all
            others where none of these is run.

    Returns:
        v2 (v2-zero without it) and each of the baselines. Without both, all others and each of the baselines, or None
        where none are named: the report's own choice.

    Raises:
        LocigraphError: If a baseline is not among the strategies, or nothing is left to test against them.
    """
    claimant = next((name for name in ("v2", "v2-zero") if name in strategies), None)
    if baselines is None and claimant is None:
        return None
    others = [name for name in strategies if name != claimant]
    if baselines is not None:
        tested = names(baselines, others, "baseline")
    else:
        # Where v2's text encoder is adapted, so must be what it is tested against; v1 as it is besides.
        usual = ("v1", "v1-adapted", "sum-adapted") if any(name in ADAPTED for name in others) else ("v1", "sum")
        tested = [name for name in others if name in usual] or others
    claimants = [name for name in others if name not in tested] if claimant is None else [claimant]
    if tested and not claimants:
        raise LocigraphError(f"baselines is {baselines!r}: no strategy is left to test against them; add one")
    return [(name, baseline) for name in claimants for baseline in tested]


def unused_options(
    strategies: Sequence[str], *, checkpoint: str | None, adapter: str | None, only_v2: Mapping[str, object]
) -> list[str]:
    """Notes on options, perhaps of a shared configuration, that a choice of strategies leaves without use.

    Args:
        strategies: All that are run.
        checkpoint: Of v2-zero; None for none.
        adapter: Of the text encoder; None for none.
        only_v2: Options by name that only v2 uses; false where they have their default.
    """
    said = []
    if checkpoint is not None and "v2-zero" not in strategies:
        said.append("checkpoint was not used, since v2-zero was not run")
    if adapter is not None and not any(name in ADAPTED or name in TRAINED for name in strategies):
        said.append("encoder.adapter was not used, since no strategy that uses it was run")
    if "v2" not in strategies:
        said += [f"{name} was not used, since v2 was not run" for name, given in only_v2.items() if given]
    return said
