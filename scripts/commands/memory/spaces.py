"""``locigraph spaces``: what a memory holds, space by space."""

from __future__ import annotations


def spaces(*, store: str = "data/graph.sqlite", json: bool = False) -> None:
    """List the spaces of a memory: title, user, agent, numbers of turns, facts and events, days.

    Args:
        store: The graph.
        json: Whether to print JSON, one object for each space, instead of a table.
    """
    from datetime import timedelta
    from json import dumps
    from typing import Any

    from locigraph.assembly.opening import existing_store
    from locigraph.kg.counts import counted
    from locigraph.kg.types import TurnState
    from locigraph.scripts.console.terminal import printable

    with existing_store(store) as graph:
        rows, titles, retentions = list[dict[str, Any]](), graph.titles(), graph.retentions()
        for space, scope in graph.scopes().items():
            turns, states, nodes = graph.turns(space), graph.turn_counts(space), graph.node_counts(space)
            dates = sorted(turn.spoken_at for turn in turns if turn.spoken_at is not None)
            rows.append(
                {
                    "space": space,
                    "title": titles.get(space),
                    "user": scope.user,
                    "agent": scope.agent,
                    "turns": len(turns),
                    "pending": states[TurnState.PENDING],
                    "failed": states[TurnState.FAILED],
                    "facts": nodes["knowledge_node"],
                    "events": nodes["event_node"],
                    "first": dates[0].date().isoformat() if dates else None,
                    "last": dates[-1].date().isoformat() if dates else None,
                    "days_kept": retentions[space] / timedelta(days=1) if space in retentions else None,
                }
            )
    if json:
        print("\n".join(dumps(row) for row in rows))
        return
    for row in rows:
        held, facts, events = (counted(row[f"{what}s"], what) for what in ("turn", "fact", "event"))
        waiting = "".join(f", {row[state]} {state}" for state in ("pending", "failed") if row[state])
        whose = "".join(f"  {field} {row[field]}" for field in ("user", "agent") if row[field])
        title = f"  {row['title']!r}" if row["title"] else ""
        days = f"  {row['first']} to {row['last']}" if row["first"] else ""
        kept = "" if row["days_kept"] is None else f"  kept for {row['days_kept']:g} days"
        print(printable(f"{row['space']}{title}{whose}  {held}{waiting}  {facts}  {events}{days}{kept}"))
    if not rows:
        print("the memory is empty")
