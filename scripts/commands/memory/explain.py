"""``locigraph explain``: why v2 found what it found."""

from __future__ import annotations

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings
from locigraph.kg.name_list import Names, names_in

_MOST_OF_SERVER = 50  # turns that a server explains at once


def explain(
    question: str,
    *,
    space: str,
    store: str = "data/graph.sqlite",
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str = DEFAULT,
    as_of: str | None = None,
    top_k: int = 3,
    turns: Names | None = None,
    influences: int = 3,
    json: bool = False,
) -> None:
    """Decompose the scores of the best turns: own meaning and words, neighbours by relation, speaker, date.

    The effect of each neighbour is measured by deleting its edge and computing the score again. A server that runs on
    the store answers, unless encoder or checkpoint are named.

    Args:
        question: The question, in natural language.
        space: Name or title of the space; locigraph spaces lists what a store holds.
        store: The graph.
        encoder: Text encoder the graph was built with.
        checkpoint: Folder of the checkpoint; ``default`` for the one that the store remembers, or the shipped one.
        as_of: Use only what was known at this time (ISO 8601); null for now.
        top_k: Number of turns to explain.
        turns: IDs of turns to explain instead of the best.
        influences: Number of neighbours to show for each turn.
        json: Whether to print one JSON object, in the server's format, instead of lines.
    """
    from dataclasses import asdict, replace
    from json import dumps
    from typing import Any

    from locigraph.assembly import opening, options
    from locigraph.kg.errors import LocigraphError
    from locigraph.memory import Memory
    from locigraph.scripts.console.terminal import explanation_table
    from locigraph.serving.running import answer_of_server
    from locigraph.training.explained import Explanation

    options.check_question(question)
    if top_k < 1 or influences < 0:
        raise LocigraphError(f"top_k is {top_k} and influences is {influences}; expected at least 1 and at least 0")
    options.time_of(as_of)
    named = None if turns is None else names_in(turns)
    space = opening.space_of(space, store) or space
    asked: dict[str, Any] = {"question": question, "space": space, "top_k": top_k, "as_of": as_of, "turn_ids": named}
    is_plain = (encoder, checkpoint) == (REMEMBERED, DEFAULT) and max(top_k, len(named or ())) <= _MOST_OF_SERVER
    answer = answer_of_server(store, "explain", asked) if is_plain else None
    if answer is not None:
        found, missing = [Explanation.from_json(turn) for turn in answer["turns"]], answer["notes"]
    else:
        with Memory.open(store, encoder=encoder, checkpoint=checkpoint, access="read") as memory:
            found, missing = memory.explain(**asked), memory.notes(space)
    if json:
        shown = [asdict(replace(turn, influences=turn.influences[:influences])) for turn in found]
        print(dumps({"turns": shown, "notes": missing}))
        return
    print("\n".join([explanation_table(found, influences=influences), *missing]))
