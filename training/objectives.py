"""The losses of the self-supervised stage: one table.

Each looks at a space whose answer-giving edges are hidden. What is learnt is the same that ranking uses: the weights of
relations and edges, and with ``hgt`` the typed attention.
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
    """What a loss may use.

    Attributes:
        encoder: The graph encoder.
        rank: Scaled scores of questions against turn vectors, [questions, turns].
        generator: Decides what is hidden and drawn; lives on the CPU.
    """

    encoder: GraphEncoder
    rank: Callable[[Tensor, TurnVectors], Tensor]
    generator: torch.Generator

    def random(self, *shape: int, like: Tensor) -> Tensor:
        """Uniform numbers in [0, 1) on the device of a tensor."""
        return torch.rand(*shape, generator=self.generator).to(like.device)


@dataclass(frozen=True)
class Loss:
    """A self-supervised loss.

    Attributes:
        name: The name by which users choose it.
        compute: Gives the loss, or None for a space that it does not apply to.
        description: One sentence for help texts.
        asks: Whether it needs pseudo-questions.
    """

    name: str
    compute: Callable[[Scorer, SpaceExample], Tensor | None]
    description: str
    asks: bool = False


def pseudo_question_loss(scorer: Scorer, example: SpaceExample) -> Tensor | None:
    """Contrast of text and node: pseudo-questions against the turns they came from.

    All fact and event edges of a random half of the turns are hidden, and only that half is ranked. Were only the
    asked facts' edges hidden, a turn that still has facts could not be the answer, and just that would be learnt.
    """
    if example.pseudo is None:
        return None
    inputs = example.inputs
    answers = [relation.is_answer for relation in scorer.encoder.relations]
    telling = torch.tensor(answers, dtype=torch.bool, device=inputs.source.device)
    has_facts = torch.zeros(inputs.num_turns, dtype=torch.bool, device=inputs.source.device)
    has_facts[inputs.target[telling[inputs.relation]]] = True
    chosen = has_facts & (scorer.random(inputs.num_turns, like=inputs.text) < 0.5)
    asked = (example.pseudo_positive & chosen).any(1)
    if int(asked.sum()) < 1 or int(chosen.sum()) < 2:
        return None
    hidden = inputs.with_edges(~(telling[inputs.relation] & chosen[inputs.target]))
    logits = scorer.rank(example.pseudo, scorer.encoder(hidden))
    return multi_positive_loss(logits[asked][:, chosen], example.pseudo_positive[asked][:, chosen])


def link_prediction_loss(scorer: Scorer, example: SpaceExample) -> Tensor | None:
    """Typed link prediction: hidden edges against non-edges from the same node to other turns.

    A pair's score is its edge logit (with ``hgt`` the attention score) plus the inner product of the neighbour's text
    with the turn's encoded text block. Every edge from the node of a hidden edge to its turn is hidden with it.
    """
    inputs = example.inputs
    edges, turns = len(inputs.source), inputs.num_turns
    chosen = scorer.random(edges, like=inputs.text) < _SUPERVISION_SHARE
    if turns < 2 or int(chosen.sum()) < 1:
        return None
    pairs = inputs.source * turns + inputs.target
    message = inputs.with_edges(~torch.isin(pairs, pairs[chosen]))
    supervision = inputs.with_edges(chosen)
    drawn = torch.randint(turns, (len(supervision.target),), generator=scorer.generator).to(inputs.target.device)
    is_edge = torch.isin(supervision.source * turns + drawn, pairs) | (supervision.source == drawn)
    vectors = scorer.encoder(message)
    traits = scorer.encoder.traits(message)

    def score(pairs: GraphInputs) -> Tensor:
        logits = scorer.encoder.edge_logits(pairs, traits).mean(1)
        scores: Tensor = logits + (inputs.text[pairs.source] * vectors.text[pairs.target]).sum(1)
        return scores

    negative = score(replace(supervision, target=drawn))[~is_edge]
    return link_loss(score(supervision), negative) if len(negative) else None


def two_views_loss(scorer: Scorer, example: SpaceExample) -> Tensor | None:
    """Contrast of two views (NT-Xent): a turn's text block with some edges left out, against the same with others."""
    inputs = example.inputs
    if inputs.num_turns < 2:  # a single turn has no other to differ from
        return None
    views = []
    for _ in range(2):
        kept = scorer.random(len(inputs.source), like=inputs.text) >= _VIEW_DROP
        views.append(F.normalize(scorer.encoder(inputs.with_edges(kept)).text, dim=1))
    return nt_xent(views[0], views[1])


LOSSES: Table[Loss] = Table(
    "loss",
    [
        Loss("link", link_prediction_loss, "typed link prediction on hidden edges"),
        Loss(
            "pseudo_questions",
            pseudo_question_loss,
            "questions made of facts against the turns they came from",
            asks=True,
        ),
        Loss("views", two_views_loss, "agreement of two views of the graph with different edges left out"),
    ],
)


def require_known_names(settings: Settings) -> None:
    """Refuse settings that name an encoder, a loss or a relation that there is not, before any work.

    Raises:
        UnknownNameError: If it is an encoder or a loss; lists those that are known.
        GraphError: If it is a relation.
    """
    GRAPH_ENCODERS[settings.model.encoder]
    network_relations(settings.model.excluded_relations)
    for loss in settings.training.pretrain_losses:
        LOSSES[loss]
