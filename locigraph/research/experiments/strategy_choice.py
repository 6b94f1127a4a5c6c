"""Chooses the strategies to run, checks what they need, and plans which are tested against which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locigraph.assembly.options import names
from locigraph.assembly.strategies import require_adapter
from locigraph.kg.errors import LocigraphError
from locigraph.kg.name_list import Names
from locigraph.research.contenders import CONTENDERS


def chosen(listed: Names, *, checkpoint: str | None, adapter: str | None) -> list[str]:
    """The strategies in a list of names.

    Raises:
        LocigraphError: If one is unknown or lacks what it needs, or the list is empty.
    """
    found = names(listed, CONTENDERS)
    if not found:
        raise LocigraphError(f"strategies is {listed!r}; name at least one of {', '.join(CONTENDERS)}")
    for name in found:
        if CONTENDERS[name].needs_checkpoint and checkpoint is None:
            raise LocigraphError(f"strategy {name!r} needs a checkpoint; name one with --checkpoint")
    for name in found:
        require_adapter(CONTENDERS[name], adapter)
    return found


def comparisons(strategies: Sequence[str], baselines: Names | None) -> list[tuple[str, str]] | None:
    """Which strategy is tested against which.

    Args:
        strategies: All that are run.
        baselines: Their names; those that are not run are ignored, so that a configuration serves any choice of
            strategies. None for the rows that are baselines (if some with the adapter are run, v1 and those with the
            adapter), or for all others if none of these is run.

    Returns:
        Pairs of the first proposed strategy (v2 or a variant of it) and each baseline. Without a proposed strategy,
        pairs of each other strategy and each baseline; or, if no baselines are named, None for the report's own choice.

    Raises:
        UnknownNameError: If a baseline is not a strategy.
        LocigraphError: If none of the baselines is run, or nothing is left to test against them.
    """
    proposed = next((name for name in strategies if CONTENDERS[name].searches_graph_embeddings), None)
    if baselines is None and proposed is None:
        return None
    others = [name for name in strategies if name != proposed]
    if baselines is not None:
        tested = [name for name in names(baselines, CONTENDERS) if name in others]
        if not tested and names(baselines, CONTENDERS):
            raise LocigraphError(
                f"baselines is {baselines!r}, of which none is among the other strategies "
                f"({', '.join(others) or 'none'}); add one to strategies, or name other baselines"
            )
    else:
        rows = [CONTENDERS[name] for name in others if CONTENDERS[name].is_baseline]
        if any(row.needs_adapter for row in rows):  # and v1 without the adapter
            rows = [row for row in rows if row.uses_adapter or row.name == "v1"]
        tested = [row.name for row in rows] or others
    candidates = [name for name in others if name not in tested] if proposed is None else [proposed]
    if tested and not candidates:
        raise LocigraphError(f"baselines is {baselines!r}: no strategy is left to test against them; add one")
    return [(name, baseline) for name in candidates for baseline in tested]


def unused_options(
    strategies: Sequence[str], *, checkpoint: str | None, adapter: str | None, of_training: Mapping[str, object]
) -> list[str]:
    """Notes on options, perhaps from a shared configuration, that the chosen strategies do not use.

    Args:
        strategies: All that are run.
        checkpoint: The given checkpoint; None for none.
        adapter: The text encoder's adapter; None for none.
        of_training: Options, by name, that only training inside folds uses; values that are false are defaults.
    """
    rows = [CONTENDERS[name] for name in strategies]
    said = []
    if checkpoint is not None and not any(row.needs_checkpoint for row in rows):
        said.append("checkpoint was not used, since no strategy that takes one was run")
    if adapter is not None and not any(row.uses_adapter for row in rows):
        said.append("encoder.adapter was not used, since no strategy that uses it was run")
    if not any(row.is_trained for row in rows):
        said += [f"{name} was not used, since no strategy was trained" for name, given in of_training.items() if given]
    return said
