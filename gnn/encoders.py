"""The network: graph encoders, which encode each turn of a graph as one vector, their table, and the query encoder.

A vector is the concatenation ``text | lexical | context | bias``. Each of the first three, the content blocks, is a
weighted sum of the turn's own features and those of its neighbours, without a learnt projection (but ``hgtconv`` adds
to the text block):

    block(t) = own(t) * x(t)  +  sum over relations r and neighbours s of  weight_r(s, t) * x(s)

so the vector of a turn also carries the words and the meaning of its facts and of neighbouring turns. Encoders differ
in ``weight_r(s, t)``. It starts from a hand-set weight of each relation, its prior, which works without
training; and it depends on an edge logit, a learnt function of the edge that is 0 before training:

    mixing:  (prior_r + logit) / n,
             logit = features(s, t) @ theta_r
    hgt:     2 prior_r exp(logit / tau) / (n + sum of exp(logit / tau) over r's neighbours of t),
             logit = features(s, t) @ theta_r + (K e(s)) W_r (Q e(t)) / sqrt(d)

where e is the text embedding, whatever the block, and n the number of t's neighbours by r. The n in hgt's denominator
stands for n additional zero neighbours with logit 0. They allow a turn to take nothing from a relation; without them, a
single neighbour would always get full attention. ``hgtconv`` adds the published layer to ``mixing``, as a control of
these deviations. Before training, all encoders take the mean over each relation's neighbours and multiply it by the
relation's prior.

Source:
    Hu et al. 2020, "Heterogeneous Graph Transformer", arXiv:2003.01332, eq. 3 to 5: typed keys and queries, a matrix
    and a prior for each relation. Deviations: the values are the content blocks themselves, with one attention head per
    block; the softmax runs over the neighbours by one relation, so that the prior sets the weight of the relation, and
    over zero neighbours (as ``add_zero_attn`` of ``torch.nn.MultiheadAttention``); edge features add to the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from numpy.typing import NDArray
from torch import Tensor, nn

from locigraph.gnn.errors import GraphError
from locigraph.gnn.features import TRAITS, GraphInputs, node_types
from locigraph.gnn.hetero_data import to_hetero_data
from locigraph.gnn.relations import BLOCKS, network_relations
from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.registry import Table
from locigraph.kg.schema import EPISODE

_OWN = (0.5, 0.5)
_NUM_TRAITS = len(TRAITS) + 2  # two more: whether the node has facts, and the log of their number
#: Features of an edge: similarity, same speaker, time between the ends, traits of source and of target.
EDGE_FEATURES = 3 + 2 * _NUM_TRAITS
# Roughly the mean similarity of neighbours; it is subtracted to centre the feature.
_MEAN_SIMILARITY = 0.3
# Divides the attention logits. Without it, attention would learn too slowly at the learning rate that suits ``mixing``.
_TEMPERATURE = 0.1
# Compensates for the scaling down of the documents' sketches, which carry the IDF.
_LEXICAL_START = 5.0
_SPEAKER_START, _DATE_START = 0.1, 0.1
_HGTCONV_HEADS = 4


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of a graph encoder.

    Attributes:
        text_dim: Width of the description embeddings.
        hashed: Makes the features of words, speakers and dates.
        attention_dim: Width of the keys and queries of each attention head; only ``hgt`` uses it.
        excluded_relations: Names of relations, or of relation families, that the encoder leaves out.
    """

    text_dim: int
    hashed: HashedFeatures
    attention_dim: int
    excluded_relations: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TurnVectors:
    """The vectors of all turns, block by block, and the weights of the sums that produced them.

    Attributes:
        text, lexical, context, bias: The blocks, each [turns, width of the block].
        own: Weight of each turn's own features in each content block, [turns, 3].
        edge: Weight of each edge's neighbour in each content block, [edges, 3].
    """

    text: Tensor
    lexical: Tensor
    context: Tensor
    bias: Tensor
    own: Tensor
    edge: Tensor

    def of(self, turns: Tensor) -> TurnVectors:
        """Those of some turns, given by their indices; the weights of the edges are those of all."""
        names = ("text", "lexical", "context", "bias", "own")
        return replace(self, **{name: getattr(self, name)[turns] for name in names})

    def joined(self) -> Tensor:
        """The blocks concatenated, as they are stored in the index, [turns, vector_dim]."""
        return torch.cat([self.text, self.lexical, self.context, self.bias], dim=1)


class GraphEncoder(nn.Module):
    """Base class of the graph encoders: holds the relations' priors, and computes edge features and weighted sums.

    Attributes:
        name: The name by which users choose the encoder.
        description: For help texts and reports.
        is_weighted_sum: Whether vectors are the sums that ``TurnVectors.own`` and ``edge`` weigh, and nothing more.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    is_weighted_sum: ClassVar[bool] = True
    block_mask: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.relations = network_relations(config.excluded_relations)
        self.own = nn.Parameter(torch.tensor(_OWN))
        self.own_traits = nn.Parameter(torch.zeros(_NUM_TRAITS, len(_OWN)))
        self.bias_traits = nn.Parameter(torch.zeros(_NUM_TRAITS, 1))
        rows = [[math.nan if weight is None else weight for weight in row.start] for row in self.relations]
        start = torch.tensor(rows).reshape(len(rows), len(BLOCKS))
        self.prior = nn.Parameter(start.nan_to_num())
        # Which blocks each relation passes on, [relations, 3]. The table determines it, so it is not saved.
        self.register_buffer("block_mask", (~start.isnan()).float(), persistent=False)
        self.edge_features = nn.Parameter(torch.zeros(len(rows), EDGE_FEATURES, len(BLOCKS)))

    def single_weights(self) -> list[nn.Parameter]:
        """The parameters that have a learning rate of their own, since each number weighs a whole block."""
        return [self.own, self.prior, self.bias_traits]

    def edge_logits(self, inputs: GraphInputs, traits: Tensor) -> Tensor:
        """Edge logits (see the module's docstring), one per content block, [edges, 3]; 0 before training.

        The edges may join any node to any turn, for example as sampled non-edges; ``traits`` gives those of all nodes.
        """
        source, target, _ = inputs.ends
        similarity = (inputs.text[source] * inputs.text[target]).sum(1) - _MEAN_SIMILARITY
        same_speaker = (inputs.speakers[source] * inputs.speakers[target]).sum(1)
        # log(1 + days between source and target), scaled to about 1 for a month; 0 if either is undated.
        gap = torch.log1p((inputs.days[source] - inputs.days[target]).abs().nan_to_num(0.0)) / 3.5
        ends = torch.stack([similarity, same_speaker, gap], dim=1)
        features = torch.cat([ends, traits[source], traits[target]], dim=1)  # [edges, EDGE_FEATURES]
        # One relation at a time: a copy of the relation's parameters for each edge would be far larger than the edges.
        return _by_relation(inputs, self.edge_features, lambda edges, theta: features[edges] @ theta)

    def edge_weights(self, inputs: GraphInputs, logits: Tensor) -> Tensor:
        """Weight of each edge's neighbour in each block, [edges, 3]."""
        raise NotImplementedError

    def forward(self, inputs: GraphInputs) -> TurnVectors:
        """Encode all turns of a graph that was made with this encoder's relations and sizes.

        Raises:
            GraphError: If the width of a feature is not the one the encoder was made for.
        """
        text_dim, lexical_dim, speaker_dim, date_dim, _ = self.config.hashed.widths(self.config.text_dim)
        for name, width in (("text", text_dim), ("lexical", lexical_dim), ("context", speaker_dim + date_dim)):
            given = getattr(inputs, name).shape[1]
            if given != width:
                raise GraphError(f"{name} features have width {given} but the encoder was made for {width}")
        turns = inputs.num_turns
        traits = self.traits(inputs)
        own = torch.cat([self.own + traits[:turns] @ self.own_traits, traits.new_ones(turns, 1)], dim=1)
        edge = self.edge_weights(inputs, self.edge_logits(inputs, traits)) * self.block_mask[inputs.ends[2]]
        bounds = inputs.on_device(torch.searchsorted(inputs.target, torch.arange(turns + 1)))
        text, lexical, context = (
            own[:, i : i + 1] * table[:turns] + _neighbour_sums(inputs, table, bounds, edge[:, i])
            for i, table in enumerate((inputs.text, inputs.lexical, inputs.context))
        )
        return TurnVectors(text, lexical, context, traits[:turns] @ self.bias_traits, own, edge)

    def traits(self, inputs: GraphInputs) -> Tensor:
        """Traits of all nodes, [nodes, 6]: ``TRAITS``, whether the node has facts, and log(1 + number of its facts).

        Facts are counted from the edges of ``inputs``, so the count does not reveal edges that training has hidden.
        """
        # The dtype matters if all relations are excluded: an empty list would become a float tensor, which is no mask.
        is_counted = torch.tensor([each.is_counted for each in self.relations], dtype=torch.bool)
        facts = torch.bincount(inputs.target[is_counted[inputs.relation]], minlength=len(inputs.text))
        if inputs.other_facts is not None:
            facts = facts + inputs.other_facts
        count = inputs.on_device(facts).to(inputs.traits.dtype)
        return torch.cat([inputs.traits, torch.stack([(count > 0).to(count), torch.log1p(count)], dim=1)], dim=1)


class MixingEncoder(GraphEncoder):
    """Relation mixing: each edge's features raise or lower its weight. The ablation of ``hgt`` without attention."""

    name = "mixing"
    description = "relation mixing without attention: edge features weigh each neighbour"

    def edge_weights(self, inputs: GraphInputs, logits: Tensor) -> Tensor:
        """(prior + logit) / number of the turn's neighbours by the same relation, [edges, 3]."""
        segment, sizes = _segments(inputs, len(self.relations))
        count = inputs.on_device(sizes[segment])
        return (self.prior[inputs.ends[2]] + logits) / count[:, None]


class HGTEncoder(GraphEncoder):
    """Heterogeneous Graph Transformer whose values are the content blocks themselves."""

    name = "hgt"
    description = "Heterogeneous Graph Transformer: typed attention weighs each neighbour"

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        heads, width = len(BLOCKS), config.attention_dim
        types = len(node_types(self.relations))
        # Text embeddings have length 1, so these give keys and queries of unit variance.
        self.key = nn.Parameter(torch.randn(types, heads * width, config.text_dim))
        self.query = nn.Parameter(torch.randn(heads * width, config.text_dim))  # only turns have queries
        self.matrix = nn.Parameter(torch.zeros(len(self.relations), heads, width, width))

    def edge_logits(self, inputs: GraphInputs, traits: Tensor) -> Tensor:
        """The logit of the edge features plus the typed attention score of key and query, [edges, 3]."""
        heads, width = len(BLOCKS), self.config.attention_dim
        source, target, _ = inputs.ends
        keys = inputs.text.new_zeros(len(inputs.text), heads * width)
        for position, weight in enumerate(self.key):
            of_type = inputs.on_device((inputs.node_type == position).nonzero().squeeze(1))
            keys = keys.index_copy(0, of_type, (inputs.text[of_type] @ weight.T).to(keys))
        keys = keys.view(-1, heads, width)
        queries = (inputs.text[: inputs.num_turns] @ self.query.T).view(-1, heads, width)

        def typed_scores(edges: Tensor, matrix: Tensor) -> Tensor:
            typed_queries = torch.einsum("thj,hij->thi", queries, matrix)  # once for each turn, not for each edge
            scores: Tensor = (keys[source[edges]] * typed_queries[target[edges]]).sum(2) / width**0.5
            return scores

        return super().edge_logits(inputs, traits) + _by_relation(inputs, self.matrix, typed_scores)

    def edge_weights(self, inputs: GraphInputs, logits: Tensor) -> Tensor:
        """2 * prior * attention, [edges, 3]."""
        return 2 * self.prior[inputs.ends[2]] * self.attention(inputs, logits)

    def attention(self, inputs: GraphInputs, logits: Tensor) -> Tensor:
        """Attention weights, [edges, 3]; over a turn's neighbours by one relation they sum to less than 1."""
        segment, sizes = (inputs.on_device(each) for each in _segments(inputs, len(self.relations)))
        logits = logits / _TEMPERATURE
        index = segment[:, None].expand_as(logits)
        # The zero neighbours' logits are 0, so the largest is at least 0.
        largest = logits.new_zeros(len(sizes), logits.shape[1]).scatter_reduce(0, index, logits.detach(), "amax")
        exponential = torch.exp(logits - largest[segment])
        zero = sizes[:, None] * torch.exp(-largest)
        return exponential / (zero + torch.zeros_like(largest).index_add(0, segment, exponential))[segment]


class HGTConvEncoder(MixingEncoder):
    """Relation mixing, to whose text block the output of PyTorch Geometric's ``HGTConv`` is added.

    The published layer projects values and applies GELU, so what it adds is no weighted sum of the neighbours. Its
    share is 0 before training, so that training starts where the other encoders do.

    Source:
        Bachlechner et al. 2020, "ReZero is All You Need", arXiv:2003.04887: a branch that starts with weight 0.
    """

    name = "hgtconv"
    description = "HGTConv of PyTorch Geometric, added to relation mixing"
    is_weighted_sum = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.share = nn.Parameter(torch.zeros(1))
        self.layer: nn.Module | None = None
        self._edge_types = [(row.source, row.name, EPISODE) for row in self.relations]
        if self.relations:
            from torch_geometric.nn import HGTConv  # takes seconds, since it also loads data sets

            heads = math.gcd(config.text_dim, _HGTCONV_HEADS)
            metadata = [*node_types(self.relations)], self._edge_types
            self.layer = HGTConv(config.text_dim, config.text_dim, metadata, heads=heads)

    def single_weights(self) -> list[nn.Parameter]:
        """Those of every graph encoder, and the share of the layer."""
        return [*super().single_weights(), self.share]

    def forward(self, inputs: GraphInputs) -> TurnVectors:
        """Encode all turns of a graph; see ``GraphEncoder.forward``."""
        vectors = super().forward(inputs)
        if self.layer is None:
            return vectors
        data = to_hetero_data(inputs, self.relations)
        out = self.layer(data.x_dict, {kind: data[kind].edge_index for kind in self._edge_types})[EPISODE]
        # Turns that are only neighbours come after those that are encoded.
        return replace(vectors, text=vectors.text + self.share * out[: inputs.num_turns])


GRAPH_ENCODERS: Table[type[GraphEncoder]] = Table("graph encoder", [HGTEncoder, MixingEncoder, HGTConvEncoder])


class QueryEncoder(nn.Module):
    """Multiplies a question's lexical, speaker and date blocks by one learnt weight each; text and bias stay unchanged.

    The widths of the blocks are those of ``HashedFeatures.widths``.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.lexical_weight = nn.Parameter(torch.tensor(_LEXICAL_START))
        self.context_weight = nn.Parameter(torch.tensor([_SPEAKER_START, _DATE_START]))

    def forward(self, features: Tensor) -> Tensor:
        """Weight the features that ``HashedFeatures.questions`` returns, [questions, vector_dim]."""
        text, lexical, speaker, date, one = torch.split(features, self.widths, dim=1)
        weighted = self.lexical_weight * lexical, self.context_weight[0] * speaker, self.context_weight[1] * date
        return torch.cat([text, *weighted, one], dim=1)


class GraphRetrieval(nn.Module):
    """The model that is trained and that a checkpoint holds: a graph encoder, chosen by its name, and a query encoder.

    Raises:
        UnknownNameError: If the graph encoder is not in its table.
    """

    def __init__(self, encoder: str, config: EncoderConfig) -> None:
        super().__init__()
        self.nodes = GRAPH_ENCODERS[encoder](config)
        self.queries = QueryEncoder(config.hashed.widths(config.text_dim))

    def weights(self) -> dict[str, NDArray[Any]]:
        """A copy of the weights by name, as a checkpoint holds them."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}


def _segments(inputs: GraphInputs, relations: int) -> tuple[Tensor, Tensor]:
    """(Index of each edge's pair of turn and relation, [edges]; number of edges of each possible pair), on the CPU."""
    segment = inputs.target * relations + inputs.relation
    return segment, torch.bincount(segment, minlength=inputs.num_turns * relations)


def _by_relation(inputs: GraphInputs, parameters: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Scores of all edges, [edges, 3], computed one relation at a time with the parameters of that relation."""
    if not len(inputs.relation):
        return inputs.text.new_zeros(0, len(BLOCKS))
    places = torch.argsort(inputs.relation, stable=True)
    counts = torch.bincount(inputs.relation, minlength=len(parameters)).tolist()
    edges = torch.split(inputs.on_device(places), counts)
    scores = [score(each, parameter) for each, parameter, count in zip(edges, parameters, counts, strict=True) if count]
    return torch.cat(scores)[inputs.on_device(torch.argsort(places))]


def _neighbour_sums(inputs: GraphInputs, table: Tensor, bounds: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums of the neighbours' rows of a table, [turns, width]."""
    if not len(inputs.source) or not table.shape[1]:
        return table.new_zeros(inputs.num_turns, table.shape[1])
    # ``embedding_bag`` reads and sums rows in one operation, without a tensor of shape [edges, width].
    return F.embedding_bag(
        inputs.ends[0],
        table,
        bounds,
        mode="sum",
        per_sample_weights=weight.contiguous(),
        include_last_offset=True,
    )
