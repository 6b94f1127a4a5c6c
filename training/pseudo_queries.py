"""Training queries that need no labels: what the graph already says, asked about the turns that said it.

Three kinds, each with a switch in ``StageConfig`` of the same name:

- ``fact_questions``: question-shaped rewrites of facts and events, by rules or by an LLM;
- ``facts``: facts and events as they are. Statements teach less, since the queries of use are questions;
- ``spans``: a piece of a turn's words asks for the turn, which is shown without them.

Source:
    Spans: the inverse cloze task of Lee, Chang and Toutanova 2019, "Latent Retrieval for Weakly Supervised Open Domain
    Question Answering", arXiv:1906.00300.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from locigraph.gnn.hetero import METADATA, GraphInputs, inputs_of, to_hetero
from locigraph.gnn.lexical import ContextHash, LexicalSketch, stable_hash
from locigraph.gnn.query import QueryBatch, query_batch
from locigraph.kg.snapshot import Snapshot
from locigraph.training.protocols import Embed, QuestionWriter

Kind = Literal["fact_questions", "facts", "spans"]
KINDS: tuple[Kind, ...] = ("fact_questions", "facts", "spans")

# A shorter turn is left whole: neither its half nor its rest would say what it is about.
_LEAST_WORDS = 8
_DATE_SUFFIX = re.compile(r"\s*\([^()]*\d{4}\)\s*$")
_PREFIX = re.compile(r"^(\w+): ")
# Subject, a past or present verb, the rest.
_STATEMENT = re.compile(
    r"^(?P<who>[A-Z][\w'’-]+(?: and [A-Z][\w'’-]+)?) (?P<verb>is|was|are|were|has|had|will|would|can|said"
    r"|\w+s|\w+ed|went|made|took|got|bought|saw|met|found|gave|felt|started|told|won|lost|left) (?P<rest>.+)$"
)
_AUXILIARY = frozenset({"is", "was", "are", "were", "has", "had", "will", "would", "can"})


@dataclass(frozen=True, eq=False)
class PseudoQueries:
    """Queries of one kind about a space.

    Attributes:
        queries: Encoded.
        positive: Which turns each came from, bool [queries, turns].
        masked: For spans the graph whose turns lack the words that ask for them; None for the other kinds, whose
            edges give the answer away instead.
    """

    queries: QueryBatch
    positive: Tensor
    masked: GraphInputs | None = None

    def to(self, device: torch.device | str) -> PseudoQueries:
        """The same on a device."""
        masked = None if self.masked is None else self.masked.to(device)
        return PseudoQueries(self.queries.to(device), self.positive.to(device), masked)


def make_pseudo_queries(
    kinds: Collection[Kind],
    snapshot: Snapshot,
    candidate_of: Mapping[str, int],
    *,
    sketch: LexicalSketch,
    context: ContextHash,
    embed: Embed,
    writer: QuestionWriter,
) -> dict[Kind, PseudoQueries]:
    """Queries about a space, by kind; a kind of which the space gives none is left out.

    Args:
        kinds: To make.
        snapshot: The space, with embeddings.
        candidate_of: Position of each turn among the turns to be ranked.
        sketch: Lexical sketch.
        context: Hash of speakers and dates.
        embed: Text embeddings, rows of length 1.
        writer: Of ``fact_questions``.
    """
    made: dict[Kind, PseudoQueries] = {}

    def add(kind: Kind, found: Sequence[tuple[str, Sequence[int]]], masked: GraphInputs | None = None) -> None:
        if not found:
            return
        texts = [text for text, _ in found]
        positive = torch.zeros(len(found), len(candidate_of), dtype=torch.bool)
        for query, (_, turns) in enumerate(found):
            positive[query, list(turns)] = True
        made[kind] = PseudoQueries(query_batch(texts, embed(texts), sketch, context), positive, masked)

    sourced = []
    for row in snapshot.active_rows(("knowledge_node", "event_node")).tolist():
        turns = [candidate_of[turn] for turn in snapshot.turns_of[row] if turn in candidate_of]
        if turns:
            sourced.append((snapshot.descriptions[row], turns))
    if "facts" in kinds:
        add("facts", sourced)
    if "fact_questions" in kinds:
        written = writer.write([statement for statement, _ in sourced])
        asked = [(text, turns) for texts, (_, turns) in zip(written, sourced, strict=True) for text in texts]
        add("fact_questions", asked)
    if "spans" in kinds:
        spans, masked = _masked(snapshot, embed)
        asked = [(span, [candidate_of[turn]]) for turn, span in spans.items() if turn in candidate_of]
        add("spans", asked, inputs_of(to_hetero(masked, sketch, context), METADATA))
    return made


class RuleQuestions:
    """The embedded writer: two questions for a statement whose shape the rules know."""

    name = "rules"

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        """See ``QuestionWriter``."""
        return [pseudo_questions(statement) for statement in statements]


RULES = RuleQuestions()


def pseudo_questions(statement: str) -> list[str]:
    """Questions that a statement answers, most specific first; empty when it has no shape that the rules know.

    >>> pseudo_questions("Ann bought a red canoe (7 May 2023)")
    ['What did Ann say about bought a red canoe?', 'When did Ann mention a red canoe?']
    """
    text = _DATE_SUFFIX.sub("", statement).strip().rstrip(".!")
    text = _PREFIX.sub(r"\1 said ", text)
    match = _STATEMENT.match(text)
    if match is None:
        return []
    who, verb, rest = match["who"], match["verb"], match["rest"]
    if verb == "said":
        return [f"What did {who} say about {rest}?", f"When did {who} mention {rest}?"]
    if verb in _AUXILIARY:
        return [f"{_WHAT[verb]} {who} {rest}?", f"What do we know about {who} and {rest}?"]
    return [f"What did {who} say about {verb} {rest}?", f"When did {who} mention {rest}?"]


_WHAT = {
    "is": "Why is", "was": "When was", "are": "Why are", "were": "When were", "has": "What has", "had": "When had",
    "will": "When will", "would": "What would", "can": "What can",
}  # fmt: skip


def cut_span(text: str) -> tuple[str, str] | None:
    """(half of a text's words, the rest), the half in one piece from a place that the text decides; None if too short.

    >>> cut_span("Ann: I bought a red canoe at the lake")
    ('red canoe at the', 'Ann: I bought a lake')
    """
    prefix = _PREFIX.match(text)
    speaker = prefix.group() if prefix else ""
    words = text[len(speaker) :].split()
    if len(words) < _LEAST_WORDS:
        return None
    length = len(words) // 2
    first = stable_hash(text) % (len(words) - length + 1)
    return " ".join(words[first : first + length]), speaker + " ".join(words[:first] + words[first + length :])


def _masked(snapshot: Snapshot, embed: Embed) -> tuple[dict[str, str], Snapshot]:
    """A span by turn, and the snapshot whose turns lack theirs."""
    spans: dict[str, str] = {}
    descriptions = list(snapshot.descriptions)
    rows = []
    for row in snapshot.active_rows(("episode",)).tolist():
        cut = cut_span(descriptions[row])
        if cut is not None:
            spans[snapshot.turns_of[row][0]], descriptions[row] = cut
            rows.append(row)
    embeddings = snapshot.embeddings.copy()
    if rows:
        embeddings[rows] = embed([descriptions[row] for row in rows])
    return spans, dataclasses.replace(snapshot, descriptions=tuple(descriptions), embeddings=embeddings)
