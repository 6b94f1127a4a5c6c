"""Which strategies are run, what they need, and what is tested against what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locigraph.kg.errors import LocigraphError
from locigraph.scripts.assembly.options import names
from locigraph.scripts.assembly.strategies import STRATEGIES


def chosen(listed: str, *, checkpoint: str | None, adapter: str | None) -> list[str]:
    """The strategies of a list of names.

    Raises:
        LocigraphError: If one is not known or lacks what it needs, or there is none.
    """
    found = names(listed, STRATEGIES)
    if not found:
        raise LocigraphError(f"strategies is {listed!r}; name at least one of {', '.join(STRATEGIES)}")
    for name in found:
        if STRATEGIES[name].needs_checkpoint and checkpoint is None:
            raise LocigraphError(f"strategy {name!r} needs a checkpoint; name one with --checkpoint")
    require_adapter(found, adapter)
    return found


def require_adapter(strategies: Sequence[str], adapter: str | None) -> None:
    """Refuse strategies that need an adapter where there is none; graph networks and fusions can do without.

    Raises:
        LocigraphError: Names the first.
    """
    for row in map(STRATEGIES.__getitem__, strategies):
        if adapter is None and row.needs_adapter:
            raise LocigraphError(f"strategy {row.name!r} needs an adapter; name one with --encoder.adapter")


def comparisons(strategies: Sequence[str], baselines: str | None) -> list[tuple[str, str]] | None:
    """Which strategy is tested against which.

    Args:
        strategies: All that are run.
        baselines: Names separated by commas, of which those that are run count, so that a configuration serves any
            choice of strategies. None for the rows that are baselines (where some with the adapter are run, v1 and
            those with the adapter), or for all others where none of these is run.

    Returns:
        The first proposed strategy (v2 and its variants) and each of the baselines. Without one, all others and each of
        the baselines, or None where none are named: the report's own choice.

    Raises:
        UnknownNameError: If a baseline is no strategy.
        LocigraphError: If none of the baselines is run, or nothing is left to test against them.
    """
    proposed = next((name for name in strategies if STRATEGIES[name].is_proposed), None)
    if baselines is None and proposed is None:
        return None
    others = [name for name in strategies if name != proposed]
    if baselines is not None:
        tested = [name for name in names(baselines, STRATEGIES) if name in others]
        if not tested and names(baselines, STRATEGIES):
            raise LocigraphError(
                f"baselines is {baselines!r}, of which none is among the other strategies "
                f"({', '.join(others) or 'none'}); add one to strategies, or name other baselines"
            )
    else:
        rows = [STRATEGIES[name] for name in others if STRATEGIES[name].is_baseline]
        if any(row.needs_adapter for row in rows):  # v1 as it is besides
            rows = [row for row in rows if row.uses_adapter or row.name == "v1"]
        tested = [row.name for row in rows] or others
    candidates = [name for name in others if name not in tested] if proposed is None else [proposed]
    if tested and not candidates:
        raise LocigraphError(f"baselines is {baselines!r}: no strategy is left to test against them; add one")
    return [(name, baseline) for name in candidates for baseline in tested]


def unused_options(
    strategies: Sequence[str], *, checkpoint: str | None, adapter: str | None, of_training: Mapping[str, object]
) -> list[str]:
    """Notes on options, perhaps of a shared configuration, that a choice of strategies leaves without use.

    Args:
        strategies: All that are run.
        checkpoint: The given checkpoint; None for none.
        adapter: The text encoder's adapter; None for none.
        of_training: Options by name that only training inside folds uses; false where they have their default.
    """
    rows = [STRATEGIES[name] for name in strategies]
    said = []
    if checkpoint is not None and not any(row.needs_checkpoint for row in rows):
        said.append("checkpoint was not used, since no strategy that takes one was run")
    if adapter is not None and not any(row.uses_adapter for row in rows):
        said.append("encoder.adapter was not used, since no strategy that uses it was run")
    if not any(row.is_trained for row in rows):
        said += [f"{name} was not used, since no strategy was trained" for name, given in of_training.items() if given]
    return said
