"""``locigraph profile``: what a memory holds about one person."""

from __future__ import annotations

from locigraph.assembly.settings import ModelSettings


def profile_person(
    *,
    space: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    speaker: str | None = None,
    store: str = "data/graph.sqlite",
    budget_tokens: int = 1_000,
    llm: ModelSettings = ModelSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
    json: bool = False,
) -> None:
    """Show what is known about a person: the facts that hold now and the events, by category, with days and sources.

    Args:
        space: Name or title of the space; null for all of the user or agent.
        user: The spaces of this user together.
        agent: The spaces of this agent together.
        speaker: The person, as named in the turns; null for the one about whom most is known.
        store: The graph.
        budget_tokens: Size of the text in tokens; what was stated last goes first.
        llm: Language model that joins the statements of a category to fewer sentences; without one they are shown as
            they are. It is asked only for what has changed since the last time.
        max_tokens: Limit on the tokens that the model reads and writes now; at the limit the command stops with exit
            code 3.
        max_cost: The same limit for the cost, in the currency of the prices.
        json: Whether to print one JSON object, in the server's format, instead of lines.
    """
    from json import dumps

    from locigraph.assembly.opening import space_of
    from locigraph.memory import Memory
    from locigraph.scripts.console.terminal import printable

    with Memory.open(store, access="read", llm=llm, max_tokens=max_tokens, max_cost=max_cost) as memory:
        found = memory.profile(
            space=space_of(space, store),
            user=user,
            agent=agent,
            speaker=speaker,
            budget_tokens=budget_tokens,
            worded=bool(llm.model or llm.base_url),
        )
    if json:
        print(dumps(found.as_json()))
        return
    print(printable(str(found)) if found else "nothing is known about anybody in these spaces")
    if found.left_out:
        print(f"{found.left_out} more did not fit; a larger --budget_tokens shows them")
