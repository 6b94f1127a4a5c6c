"""``locigraph forget``: erase turns and all that was derived from them."""

from __future__ import annotations

from collections.abc import Sequence

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings
from locigraph.kg.name_list import Names, names_in


def forget(
    *,
    space: str | None = None,
    turns: Names | None = None,
    user: str | None = None,
    agent: str | None = None,
    expired: bool = False,
    yes: bool = False,
    restore: bool = False,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
) -> None:
    """Erase turns and the nodes derived from them, a space, or all spaces of a user or agent, and rebuild the index.

    Forgotten turns stay forgotten: a later build with their file skips them. They are erased from the store first,
    whatever state the index is in. Can be interrupted and run again. A server that runs on the store erases them,
    unless index, encoder or checkpoint are named; what has expired it erases by itself, every ten minutes.

    Args:
        space: Name or title of the space; locigraph spaces lists what a store holds. null for all spaces of the user or
            agent.
        turns: IDs of turns of the space; null for all its turns, which needs --yes.
        user: Erase all spaces of this user, all or none; needs --yes.
        agent: Erase all spaces of this agent; with a user, those that belong to both.
        expired: Whether to erase, in all spaces, the turns that were added to be kept until a time that has passed.
        yes: Confirms erasing whole spaces; required, since there is no prompt.
        restore: Whether to allow forgotten turns of one space again instead: they are not recovered, but the next build
            of their file adds them.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        checkpoint: Checkpoint of the graph embeddings; ``default`` for the one that the store remembers, or the shipped
            one; null leaves them to a later refresh.
    """
    from typing import Any

    from locigraph.assembly import opening, options
    from locigraph.kg.counts import counted
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.types import Scope
    from locigraph.memory import Memory
    from locigraph.scripts.console.terminal import printable
    from locigraph.serving.running import answer_of_server

    scope = Scope(user, agent)
    if expired:
        if space is not None or turns is not None or scope or restore:
            raise LocigraphError("--expired erases turns of all spaces whose time has come; name nothing else with it")
        with Memory.open(store, index=index, encoder=encoder, checkpoint=checkpoint, access="write") as memory:
            print(f"{counted(memory.forget_expired(), 'turn')} erased, whose time had come")
        return
    options.check_named(space, scope)
    if restore and (space is None or scope):
        raise LocigraphError(
            "--restore works on one space, since an erased space no longer belongs to a user or agent; name it with "
            "--space"
        )
    space = opening.space_of(space, store)
    if turns is None and not (yes or restore):
        what, cure = (scope, "--yes") if scope else (f"space {space!r}", "--yes, or name --turns")
        raise LocigraphError(f"{what}: everything would be erased permanently; to confirm, add {cure}")
    named = None if turns is None else names_in(turns)
    if restore:
        assert space is not None
        _restore(store, space, named)
        return
    asked: dict[str, Any] = {
        "space": space, "turn_ids": named, "whole_space": named is None and not scope, "user": user, "agent": agent,
    }  # fmt: skip
    is_plain = (index, encoder, checkpoint) == (IndexSettings(), REMEMBERED, DEFAULT)
    answer = answer_of_server(store, "forget", asked) if is_plain else None
    if answer is not None:
        erased = answer["erased"]
    else:
        with Memory.open(store, index=index, encoder=encoder, checkpoint=checkpoint, access="write") as memory:
            erased = memory.forget(**asked)
    none = f"{space or scope}: there were no nodes to erase; already forgotten, or not consolidated yet"
    print(printable(f"{counted(erased, 'node')} of {space or scope} erased" if erased else none))


def _restore(store: str, space: str, turns: Sequence[str] | None) -> None:
    """Allow forgotten turns of a space again; of all turns if none is named."""
    from locigraph.assembly import opening
    from locigraph.kg.counts import counted
    from locigraph.kg.errors import LocigraphError, shortened
    from locigraph.kg.types import SpaceId, TurnId
    from locigraph.scripts.console.terminal import printable

    with opening.existing_store(store, access="write") as graph:  # needs no index, so a server may run beside it
        count = graph.restore(SpaceId(space), None if turns is None else [TurnId(each) for each in turns])
    if not count:
        what = "no turn" if turns is None else f"none of the turns {shortened(turns)}"
        raise LocigraphError(f"space {space!r}: {what} was forgotten, so there is nothing to restore")
    said = f"{counted(count, 'forgotten turn')} of {space} can be added again; run locigraph build with their file"
    print(printable(said))
