"""``locigraph recall``: search the memory for what answers a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from locigraph.assembly.settings import (
    DEFAULT,
    QUICK_LLM,
    REMEMBERED,
    EncoderSettings,
    IndexSettings,
    ModelSettings,
)
from locigraph.kg.name_list import Names
from locigraph.retrieval.hit_filters import DEFAULT_FOLD

if TYPE_CHECKING:
    from locigraph.memory.recalled import Recalled


_MOST_OF_SERVER = 1_000  # hits that a server gives at once


def recall(
    question: str,
    *,
    space: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    strategy: str | None = None,
    checkpoint: str | None = DEFAULT,
    queries: str | None = None,
    llm: ModelSettings = QUICK_LLM,
    reranker: str | None = None,
    as_of: str | None = None,
    speaker: Names | None = None,
    fold: float | None = DEFAULT_FOLD,
    include_superseded: bool = False,
    filter: dict[str, Any] | None = None,
    min_confidence: float | None = None,
    top_k: int = 10,
    budget_tokens: int | None = None,
    budget_kinds: dict[str, int] | None = None,
    json: bool = False,
) -> None:
    """Search a space, or all spaces of a user or agent together, for memories that answer a question.

    Shows the score of each signal and the source turns. A server that runs on the store answers, unless index, encoder,
    checkpoint, queries or a reranker other than ``default`` are named. If several of space, user and agent are named,
    all must apply.

    Args:
        question: The question, in natural language.
        space: Name or title of the space; locigraph spaces lists what a store holds. null for all of the user or agent.
        user: Search the spaces of this user together, as one; each memory names its space.
        agent: Search the spaces of this agent together.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with; v2 and the strategies ending in ``-adapted`` use its adapter.
        strategy: One of <recalled>. null takes v2, or v1 with a note if no checkpoint can be used.
        checkpoint: Folder of the checkpoint, for v2; ``default`` for the one that the store remembers, or the shipped
            one; null for none.
        queries: How the question is turned into queries, whose rankings are fused (v2 makes one search for the mean
            of their vectors): <queries>; null for the default of each strategy: rules for v1, the question itself for
            the others.
        llm: Language model that writes the queries; if it fails, rules write them.
        reranker: What reranks the best hits: ``default`` for the shipped reranker, the folder of another (locigraph
            train-reranker), or the Hugging Face name or folder of a cross-encoder; null for none.
        as_of: Use only what was known at this time (ISO 8601; a day alone stands for its beginning, in UTC); null for
            now. v2 leaves out later turns, but the vectors of earlier ones come from the present graph, so that later
            turns have influenced them.
        speaker: Show only memories in the words of this speaker, or of these speakers; null for all.
        fold: Word similarity, above 0 and up to 1, from which two texts of the same speakers count as duplicates and
            are shown as one hit; null folds nothing.
        include_superseded: Whether what was replaced keeps its rank; otherwise what has replaced it is shown first.
        filter: Show only memories whose turns satisfy these conditions on their metadata, such as
            '{"project": {"$ne": "boats"}}', or on $speaker, $session, $turn, $spoken_at and $type; null for no filter.
        min_confidence: Smallest probability, from 0 to 1, that what is searched holds an answer; below it nothing is
            shown but a line that says so. Only v2 knows it; null shows whatever is found.
        top_k: Number of memories to show.
        budget_tokens: Size of a context in tokens: shows the best memories that fit into it, with dates and source
            turns, in chronological order or that of the strategy. null for ``top_k`` memories with their scores.
        budget_kinds: Largest numbers of facts, reflections and episodes in a context, such as '{"facts": 60,
            "reflections": 20, "episodes": 80}'; a kind that is not named has no limit. Limits of the
            strategy itself apply as well.
        json: Whether to print one JSON object, in the server's format, instead of lines.
    """
    from json import dumps

    from locigraph.assembly import opening, options
    from locigraph.assembly.language_models import clients_of, refuse_unasked
    from locigraph.assembly.queries import queries_of
    from locigraph.consolidation.ledger import Ledger
    from locigraph.kg.types import Scope
    from locigraph.memory import Memory
    from locigraph.memory.asked_question import AskedQuestion

    if queries != "llm":
        refuse_unasked(llm, "queries", queries)
    options.check_named(space, Scope(user, agent))
    asked: dict[str, Any] = {
        "question": question, "space": space, "user": user, "agent": agent, "top_k": top_k,
        "budget_tokens": budget_tokens, "budget_kinds": budget_kinds, "as_of": as_of, "strategy": strategy,
        "speaker": speaker, "fold": fold, "include_superseded": include_superseded, "filter": filter,
        "min_confidence": min_confidence, **({} if reranker is None else {"reranker": reranker}),
    }  # fmt: skip
    AskedQuestion(**asked)  # raises before anything is opened
    asked["space"] = opening.space_of(space, store)
    # A server has the parts of its own start; a question that names others cannot be asked there.
    parts_of_its_own = (index, encoder, checkpoint, queries)
    is_plain = parts_of_its_own == (IndexSettings(), REMEMBERED, DEFAULT, None) and reranker in (None, DEFAULT)
    if is_plain and top_k <= _MOST_OF_SERVER and _has_told(store, asked, json=json, with_spaces=space is None):
        return
    ledger = Ledger()
    query_generator = queries_of(queries, clients_of(llm, ledger=ledger))
    with Memory.open(store, index=index, encoder=encoder, checkpoint=checkpoint, access="read") as memory:
        found = memory.recall(**asked, queries=query_generator)
    if json:
        print(dumps(found.as_json()))
    else:
        context = _context_of(found.as_json(), budget_tokens)
        _show(found, context=context, with_spaces=space is None, said=ledger.lines())


def _has_told(store: str, asked: dict[str, Any], *, json: bool, with_spaces: bool) -> bool:
    """Whether a server runs on the store; then it is asked, and its answer printed."""
    from json import dumps

    from locigraph.memory.recalled import Recalled
    from locigraph.serving.running import answer_of_server

    answer = answer_of_server(store, "recall", asked)
    if answer is None:
        return False
    if json:
        print(dumps(answer))
    else:
        context = _context_of(answer, asked["budget_tokens"])
        _show(Recalled.from_json(answer), context=context, with_spaces=with_spaces)
    return True


def _context_of(answer: Mapping[str, Any], budget_tokens: int | None) -> str | None:
    """The context of an answer, with what is left of its budget; None if hits were asked for."""
    if answer["context"] is None:
        return None
    used = f"{answer['context_tokens']} of {budget_tokens} tokens used"
    return f"{answer['context']}\n{used}; memories that did not fit: {answer['left_out']}"


def _show(found: Recalled, *, context: str | None, with_spaces: bool, said: Sequence[str] = ()) -> None:
    """Print the context, or else the hits, and what is to be said about them."""
    from locigraph.scripts.console.terminal import hits_table, printable

    shown = hits_table(found, with_spaces=with_spaces) if context is None else printable(context)
    print("\n".join([shown, *found.notes, *said]))
    timing = found.timing
    # 0 exactly for a strategy that has no vector of the question, such as bm25.
    encoded = f"query encoded in {timing.encode_ms:.0f} ms (including loading the text encoder), "
    likely = "" if found.confidence is None else f"; probability of an answer {found.confidence:.2f}"
    print(f"{found.strategy}: {encoded if timing.encode_ms else ''}searched in {timing.search_ms:.0f} ms{likely}")
