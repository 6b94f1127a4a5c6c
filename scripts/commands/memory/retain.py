"""``locigraph retain``: how long a space keeps its turns."""

from __future__ import annotations


def retain(*, space: str, days: float | None = 0, yes: bool = False, store: str = "data/graph.sqlite") -> None:
    """Let the turns of a space expire some days after they were spoken: those stored, and those added later.

    Turns without a time count from now, or from when they are added. A turn that was added with an earlier expiry keeps
    that, and nothing is put off by a longer time. Forgetting the whole space, or its last turn, forgets this, too.
    Needs no index, so a server may run on the store.

    Args:
        space: Name or title of the space; locigraph spaces lists what a store holds, and how long turns are kept.
        days: Number of days, such as 90 or .5, which must be given; null keeps turns that are added later for ever.
        yes: Confirms that stored turns expire at once, which are then erased.
        store: The graph.
    """
    from datetime import UTC, datetime

    from locigraph.assembly import opening, options
    from locigraph.kg.counts import counted
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.types import SpaceId
    from locigraph.scripts.console.terminal import printable

    if days == 0:  # a parameter without a default would be null where it is not given, and lift a retention
        raise LocigraphError("days is 0 or missing; give a number, such as --days 90, or --days null for ever")
    keep = options.keep_of(days)
    name = opening.space_of(space, store)
    assert name is not None
    with opening.existing_store(store, access="write") as graph:
        graph.require_space(SpaceId(name))
        if keep is not None and not yes:
            now = datetime.now(UTC)
            spoken = [turn.spoken_at for turn in graph.turns(SpaceId(name)) if turn.spoken_at is not None]
            if count := sum(at + keep <= now for at in spoken):
                raise LocigraphError(
                    f"space {name!r}: {counted(count, 'turn')} of {len(spoken):,} would expire at once and be erased "
                    "permanently; to confirm, add --yes"
                )
        earlier = graph.set_retention(SpaceId(name), keep)
    kept = "for ever" if days is None else f"for {days:g} days"
    cure = "; a server of the store, or locigraph forget --expired, erases what has expired" if earlier else ""
    print(printable(f"{name} keeps its turns {kept}; {counted(earlier, 'stored turn')} expire earlier now{cure}"))
