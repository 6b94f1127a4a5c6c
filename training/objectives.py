"""The losses of the self-supervised stage, and their table.

Each loss encodes a space with some of its edges hidden. The losses train the parameters that ranking uses: the weights
of relations and edges and, with ``hgt``, the typed attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor

from locigraph.gnn.encoders import GRAPH_ENCODERS, GraphEncoder, TurnVectors
from locigraph.gnn.features import GraphInputs
from locigraph.gnn.losses import link_loss, multi_positive_loss, nt_xent
from locigraph.gnn.relations import network_relations
from locigraph.kg.registry import Table
from locigraph.training.config import Settings
from locigraph.training.examples import SpaceExample

_SUPERVISION_SHARE = 0.2
_VIEW_DROP = 0.2


@dataclass(frozen=True)
class Scorer:
    """The functions and the random generator that a loss may use.

    Attributes:
        encoder: The graph encoder.
        rank: Computes scaled scores of questions against turn vectors, [questions, turns].
        generator: Random generator, on the CPU, that decides which edges are hidden and which pairs are sampled.
    """

    encoder: GraphEncoder
    rank: Callable[[Tensor, TurnVectors], Tensor]
    generator: torch.Generator

    def random(self, count: int) -> Tensor:
        """Uniform random numbers in [0, 1), on the CPU, where the structure of a graph is."""
        return torch.rand(count, generator=self.generator)


@dataclass(frozen=True)
class Loss:
    """A self-supervised loss.

    Attributes:
        name: The name by which users choose it.
        compute: Returns the loss, or None for a space that it does not apply to.
        description: One sentence for help texts.
        asks: Whether it needs pseudo-questions.
    """

    name: str
    compute: Callable[[Scorer, SpaceExample], Tensor | None]
    description: str
    asks: bool = False


def pseudo_question_loss(scorer: Scorer, example: SpaceExample) -> Tensor | None:
    """Contrastive loss of pseudo-questions against the turns they came from.

    Of the turns with facts or events, a random half has all these edges hidden, and only that half is ranked. If only
    the edges of the facts in question were hidden, the model would merely learn that no turn with facts is an answer.
    """
    if example.pseudo is None:
        return None
    inputs = example.inputs
    answers = [relation.is_answer for relation in scorer.encoder.relations]
    telling = torch.tensor(answers, dtype=torch.bool)
    has_facts = torch.zeros(inputs.num_turns, dtype=torch.bool)
    has_facts[inputs.target[telling[inputs.relation]]] = True
    chosen = has_facts & (scorer.random(inputs.num_turns) < 0.5)
    is_asked = (example.pseudo_positive & chosen).any(1)
    if int(is_asked.sum()) < 1 or int(chosen.sum()) < 2:
        return None
    hidden = inputs.with_edges(~(telling[inputs.relation] & chosen[inputs.target]))
    rows, columns = (inputs.on_device(each.nonzero().squeeze(1)) for each in (is_asked, chosen))
    ranked = scorer.rank(example.pseudo[rows], scorer.encoder(hidden).of(columns))
    return multi_positive_loss(example.corrected(ranked, columns), example.pseudo_positive[is_asked][:, chosen])


def link_prediction_loss(scorer: Scorer, example: SpaceExample) -> Tensor | None:
    """Typed link prediction: hidden edges against non-edges from the same node to other turns.

    A pair's score is its edge logit (with ``hgt`` the attention score) plus the inner product of the neighbour's text
    with the turn's encoded text block. Hiding an edge also hides all other edges from the same node to the same turn.
    """
    inputs = example.inputs
    edges, turns = len(inputs.source), inputs.num_turns
    chosen = scorer.random(edges) < _SUPERVISION_SHARE
    if turns < 2 or int(chosen.sum()) < 1:
        return None
    pairs = inputs.source * turns + inputs.target
    message = inputs.with_edges(~torch.isin(pairs, pairs[chosen]))
    supervision = inputs.with_edges(chosen)
    drawn = torch.randint(turns, (len(supervision.target),), generator=scorer.generator)
    is_edge = torch.isin(supervision.source * turns + drawn, pairs) | (supervision.source == drawn)
    vectors = scorer.encoder(message)
    traits = scorer.encoder.traits(message)

    def score(pairs: GraphInputs) -> Tensor:
        logits = scorer.encoder.edge_logits(pairs, traits).mean(1)
        source, target, _ = pairs.ends
        scores: Tensor = logits + (inputs.text[source] * vectors.text[target]).sum(1)
        return scores

    non_edges = (~is_edge).nonzero().squeeze(1)
    if not len(non_edges):
        return None
    negative = score(replace(supervision, target=drawn))[inputs.on_device(non_edges)]
    return link_loss(score(supervision), negative)


def two_views_loss(scorer: Scorer, example: SpaceExample) -> Tensor | None:
    """Contrastive loss (NT-Xent) of a turn's text block in two views of the graph with different edges left out."""
    inputs = example.inputs
    if inputs.num_turns < 2:  # a single turn has no negatives
        return None
    views = []
    for _ in range(2):
        kept = scorer.random(len(inputs.source)) >= _VIEW_DROP
        views.append(F.normalize(scorer.encoder(inputs.with_edges(kept)).text, dim=1))
    return nt_xent(views[0], views[1])


LOSSES: Table[Loss] = Table(
    "loss",
    [
        Loss("link", link_prediction_loss, "typed link prediction on hidden edges"),
        Loss(
            "pseudo_questions",
            pseudo_question_loss,
            "questions made from facts against the turns they came from",
            asks=True,
        ),
        Loss("views", two_views_loss, "agreement of two views of the graph with different edges left out"),
    ],
)


def require_known_names(settings: Settings) -> None:
    """Refuse settings that name an unknown encoder, loss or relation, before any work is done.

    Raises:
        UnknownNameError: If an encoder or a loss is unknown; lists the known ones.
        GraphError: If a relation is unknown.
    """
    GRAPH_ENCODERS[settings.model.encoder]
    network_relations(settings.model.excluded_relations)
    for loss in settings.training.pretrain_losses:
        LOSSES[loss]
