"""Builds graphs from conversations, and their views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from locigraph.consolidation.extractors import EXTRACTORS, Clients
from locigraph.consolidation.ledger import Spent
from locigraph.consolidation.pipeline import Consolidator, claim_space, refuse_other_extractor
from locigraph.consolidation.protocols import Accounted, Extractor
from locigraph.kg.corpora import Corpus
from locigraph.kg.language import redaction
from locigraph.kg.store import Store, TurnFailure
from locigraph.kg.types import SpaceId, TurnId, TurnState
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.build_context import HybridContext
from locigraph.training.snapshots import Views


def extractor_for(consolidation: str, corpus: Corpus, clients: Clients) -> Extractor:
    """The architect and scribe of a name; ``clients`` makes the clients of their language models."""
    return EXTRACTORS[consolidation].build(corpus, clients)


def build_graph(
    corpus: Corpus, extractor: Extractor, store: Store, encoder: CachedTextEncoder
) -> dict[SpaceId, list[TurnFailure]]:
    """Conversations into graph; what an earlier run did is passed over.

    What becomes of a turn is decided by the text encoder without its adapter: graphs stay the same whatever retrieval
    has learnt. Nodes get vectors of both.

    Returns:
        Failed turns by space, of spaces that have some.
    """
    for conversation in corpus.conversations:
        refuse_other_extractor(store, conversation.space, extractor)
    store.append_turns([turn for conversation in corpus.conversations for turn in conversation.turns])  # all or none
    for conversation in corpus.conversations:
        claim_space(store, conversation.space, extractor)
    if isinstance(extractor, Accounted):
        extractor.ledger.bind(store, [conversation.space for conversation in corpus.conversations])
    turns = [turn for c in corpus.conversations for turn in store.turns(c.space, state=TurnState.PENDING)]
    if turns:
        # One large batch now instead of a small one per turn.
        texts = [turn.utterance for turn in turns]
        plain = encoder.without_adapter()
        plain.encode([*texts, *extractor.expected_texts(turns)], progress="encode")
        with tqdm(desc="consolidate", total=len(turns), unit="turn") as bar:
            for conversation in corpus.conversations:
                # A context of its own: what it holds of a conversation is of no use to the next.
                with closing(HybridContext(store, plain)) as context:
                    consolidator = Consolidator(store, extractor, plain, context)
                    consolidator.run(conversation.space, on_turn=lambda: _advance(bar))
    for each in dict.fromkeys([encoder.without_adapter(), encoder]):
        embed_all([conversation.space for conversation in corpus.conversations], store, each)
    return {c.space: failed for c in corpus.conversations if (failed := store.failures(c.space))}


def redacted(corpus: Corpus) -> Corpus:
    """The corpus with recognised secrets replaced in all that is said and shown."""
    conversations = []
    for conversation in corpus.conversations:
        turns = tuple(
            replace(
                t,
                text=redaction.redacted(t.text),
                image_caption=t.image_caption and redaction.redacted(t.image_caption),
            )
            for t in conversation.turns
        )
        conversations.append(replace(conversation, turns=turns))
    return replace(corpus, conversations=tuple(conversations))


def foreseen(corpus: Corpus, extractor: Extractor, store: str) -> str:
    """What a build would cost, in words, without what the store holds already; nothing is asked or written."""
    done: set[tuple[SpaceId, TurnId]] = set()
    if "://" in store or Path(store).is_file():
        with Store(store, access="read") as graph:
            for space in set(graph.spaces()) & {conversation.space for conversation in corpus.conversations}:
                waiting = {turn.turn_id for turn in graph.turns(space, state=TurnState.PENDING)}
                done |= {(space, turn.turn_id) for turn in graph.turns(space) if turn.turn_id not in waiting}
    pending = [[t for t in c.turns if (t.space, t.turn_id) not in done] for c in corpus.conversations]
    total = Spent()
    if isinstance(extractor, Accounted):
        total = sum((extractor.estimate(turns) for turns in pending), total)
    return (
        f"dry run: {sum(map(len, pending))} turns to consolidate by {extractor.name}, about {total}; nothing was asked"
    )


def embed_all(spaces: Iterable[SpaceId], store: Store, encoder: CachedTextEncoder) -> None:
    """Vectors for nodes that have none of this encoder, such as those of a graph that another one has built."""
    lacking = {space: found for space in spaces if (found := store.unembedded(space, encoder.model_id))}
    # One large batch now instead of a small one per space.
    texts = [each.text for found in lacking.values() for each in found]
    vectors = encoder.encode(texts, progress="embed" if lacking else None)
    start = 0
    for space, found in lacking.items():
        rows = vectors[start : start + len(found)]
        start += len(found)
        # The index holds no vectors of adapters (see indexer_of).
        store.put_embeddings(space, encoder.model_id, found, rows, to_indexes=encoder.adapter is None)


def _advance(bar: tqdm[Any]) -> None:
    bar.update()


def views_of(graph: Store, corpus: Corpus, encoder: CachedTextEncoder | None) -> Views:
    """Snapshots of a corpus' spaces, with an encoder's embeddings, or without any."""
    model = None if encoder is None else encoder.model_id
    return Views.of_corpus(lambda space, as_of: graph.snapshot(space, as_of=as_of, embedding_model=model), corpus)


@contextmanager
def built_views(corpus: Corpus, extractor: Extractor, encoder: CachedTextEncoder, store: str) -> Iterator[Views]:
    """What trainings inside folds need: the graphs of a corpus, built where they are not yet, and encoded questions."""
    with Store(store) as graph:
        build_graph(corpus, extractor, graph, encoder)
        encoder.encode([q.text for q in corpus.questions], progress="encode questions")
        yield views_of(graph, corpus, encoder)
