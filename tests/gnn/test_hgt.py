import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import HGTConv

from locigraph.gnn.errors import GraphError
from locigraph.gnn.hgt import HGTLayer
from locigraph.gnn.packed import GraphMetadata, PackedGraph, pack

METADATA = GraphMetadata(
    ("a", "b", "c"),
    (("a", "r", "b"), ("b", "r", "a"), ("a", "s", "a"), ("c", "t", "b"), ("b", "u", "c"), ("a", "v", "b")),
)


def random_graph(
    seed: int, sizes: tuple[int, ...] = (7, 5, 30), edges: tuple[int, ...] = (12, 9, 0, 4, 8, 3)
) -> HeteroData:
    """A random graph; with 30 nodes and 4 edges, relation t is one of few sources."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for node_type, size in zip(METADATA.node_types, sizes, strict=True):
        data[node_type].num_nodes = size
    for edge_type, count in zip(METADATA.edge_types, edges, strict=True):
        ends = [torch.randint(data[t].num_nodes, (count,), generator=generator) for t in edge_type[::2]]
        data[edge_type].edge_index = torch.stack(ends)
    return data


def pyg_layer(in_dim: int, out_dim: int, heads: int, metadata: GraphMetadata = METADATA) -> HGTConv:
    conv = HGTConv(in_dim, out_dim, (list(metadata.node_types), list(metadata.edge_types)), heads=heads).double()
    with torch.no_grad():
        for parameter in [*conv.skip.values(), *conv.p_rel.values()]:
            parameter.normal_()  # all ones would hide a mix-up
    return conv


def layer_like(conv: HGTConv, in_dim: int, out_dim: int, heads: int, metadata: GraphMetadata = METADATA) -> HGTLayer:
    layer = HGTLayer(in_dim, out_dim, metadata, heads=heads).double()
    layer.load_pyg_weights(conv)
    return layer


def run_pyg(conv: HGTConv, x: Tensor, data: HeteroData, graph: PackedGraph) -> Tensor:
    x_dict = {t: x[graph.slice_of(t)] for t in graph.metadata.node_types}
    out = conv(x_dict, data.edge_index_dict)
    return torch.cat([out[t] for t in graph.metadata.node_types])


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    edges=st.tuples(*[st.one_of(st.just(0), st.integers(1, 60))] * 6),
    shape=st.sampled_from([(8, 8, 1), (8, 8, 4), (6, 8, 2), (8, 4, 4)]),
)
def test_outputs_and_gradients_equal_those_of_pyg(
    seed: int, sizes: tuple[int, ...], edges: tuple[int, ...], shape: tuple[int, int, int]
) -> None:
    torch.manual_seed(seed)
    in_dim, out_dim, heads = shape
    data = random_graph(seed, sizes, edges)
    graph = pack(data, METADATA)
    conv = pyg_layer(in_dim, out_dim, heads)
    layer = layer_like(conv, in_dim, out_dim, heads)
    x = torch.randn(graph.num_nodes, in_dim, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(graph.num_nodes, out_dim, dtype=torch.float64)

    expected, got = run_pyg(conv, x, data, graph), layer(x, graph)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)
    (expected_grad,) = torch.autograd.grad((expected * upstream).sum(), x, retain_graph=True)
    (got_grad,) = torch.autograd.grad((got * upstream).sum(), x, retain_graph=True)
    torch.testing.assert_close(got_grad, expected_grad, atol=1e-10, rtol=0)

    (expected * upstream).sum().backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
    (got * upstream).sum().backward()
    assert_same_weight_gradients(layer, conv)


def assert_same_weight_gradients(layer: HGTLayer, conv: HGTConv) -> None:
    """Compares by loading the gradients of one as weights of the other."""
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    expected = HGTLayer(layer.in_dim, layer.out_dim, layer.metadata, heads=layer.heads).double()
    expected.load_pyg_weights(conv)
    for name, parameter in layer.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(grad, expected.get_parameter(name).data, atol=1e-10, rtol=0)


def test_weights_load_from_a_layer_that_lists_its_types_in_another_order() -> None:
    other = GraphMetadata(METADATA.node_types[::-1], METADATA.edge_types[::-1])
    conv = pyg_layer(8, 8, 2, other)
    data = random_graph(0)
    reordered = HeteroData()
    for edge_type in other.edge_types:  # PyG assumes that edges come in its own order of types
        reordered[edge_type].edge_index = data[edge_type].edge_index
    graph = pack(data, METADATA)
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64)
    layer = layer_like(conv, 8, 8, 2)
    torch.testing.assert_close(layer(x, graph), run_pyg(conv, x, reordered, graph), atol=1e-10, rtol=0)


def test_hand_worked_attention() -> None:
    # Two sources a0, a1 point to b0 through relation r. Keys 1 and 3, query of b0 ln 2, prior 1, dim 1:
    # scores ln 2 and 3 ln 2, weights 2 and 8 of 10. Values 10 and 20 give 2 + 16 = 18.
    metadata = GraphMetadata(("a", "b"), (("a", "r", "b"),))
    layer = HGTLayer(2, 1, metadata, heads=1).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.kqv_weight[0, 0, 0] = 1  # key of an a: its first number
        layer.kqv_weight[0, 2, 1] = 1  # value of an a: its second
        layer.kqv_weight[1, 1, 0] = 1  # query of a b: its first
        for parameter in (layer.key_relation, layer.value_relation, layer.prior, layer.out_weight):
            parameter.fill_(1)
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 2, 1
    data["a", "r", "b"].edge_index = torch.tensor([[0, 1], [0, 0]])
    x = torch.tensor([[1.0, 10], [3, 20], [math.log(2), 0]], dtype=torch.float64)
    out, attention = layer(x, pack(data, metadata), return_attention=True)
    assert attention.squeeze(1).tolist() == pytest.approx([0.2, 0.8])
    # GELU is the identity at 18 in double precision; an a receives nothing and has no bias.
    assert out.squeeze(1).tolist() == pytest.approx([0, 0, 18])


def test_node_type_that_no_relation_reaches_gets_the_zero_message() -> None:
    metadata = GraphMetadata(("a", "b"), (("a", "r", "b"),))
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 3, 2
    data["a", "r", "b"].edge_index = torch.tensor([[0, 1], [0, 0]])
    layer = HGTLayer(4, 4, metadata, heads=2)
    x = torch.randn(5, 4)
    share = torch.sigmoid(torch.tensor(1.0))
    out = layer(x, pack(data, metadata))
    torch.testing.assert_close(out[:3], share * layer.out_bias[0] + (1 - share) * x[:3])
    # Likewise b1, whose type is reached while the node itself is not.
    torch.testing.assert_close(out[4], share * layer.out_bias[1] + (1 - share) * x[4])


def test_attention_sums_to_one_over_the_incoming_edges_of_a_node() -> None:
    graph = pack(random_graph(1), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=4)
    _, attention = layer(3 * torch.randn(graph.num_nodes, 8), graph, return_attention=True)
    assert attention.shape == (graph.num_edges, 4)
    assert not attention.requires_grad
    sums = torch.zeros(graph.num_nodes, 4).index_add_(0, graph.target, attention)
    has_edges = torch.zeros(graph.num_nodes, dtype=torch.bool).index_fill_(0, graph.target, True)
    torch.testing.assert_close(sums, has_edges[:, None].float().expand(-1, 4))


def test_attention_comes_in_the_edge_order_of_the_graph() -> None:
    graph = pack(random_graph(2), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=2)
    x = torch.randn(graph.num_nodes, 8)
    _, attention = layer(x, graph, return_attention=True)
    # Slow and obvious: score each edge by itself, then one softmax per target.
    kqv = torch.empty(graph.num_nodes, 24)
    for t, (begin, end) in enumerate(pairwise(graph.node_ptr)):
        kqv[begin:end] = x[begin:end] @ layer.kqv_weight[t].t() + layer.kqv_bias[t]
    key, query, _ = kqv.view(-1, 3, 2, 4).unbind(1)
    relation = graph.relation_of_edge()
    moved = torch.einsum("ehd,ehdf->ehf", key[graph.source], layer.key_relation[relation])
    scores = (moved * query[graph.target]).sum(-1) * layer.prior[relation] / math.sqrt(4)
    for node in range(graph.num_nodes):
        edges = graph.target == node
        torch.testing.assert_close(attention[edges], scores[edges].softmax(0))


def test_renumbering_nodes_and_shuffling_edges_renumbers_the_output() -> None:
    data = random_graph(3)
    graph = pack(data, METADATA)
    generator = torch.Generator().manual_seed(0)
    shuffled = HeteroData()
    new_row = torch.empty(graph.num_nodes, dtype=torch.int64)
    new_index = {}
    for node_type in METADATA.node_types:
        rows = graph.slice_of(node_type)
        shuffled[node_type].num_nodes = rows.stop - rows.start
        new_index[node_type] = torch.randperm(rows.stop - rows.start, generator=generator)
        new_row[rows] = new_index[node_type] + rows.start
    for source, relation, target in METADATA.edge_types:
        edges = data[source, relation, target].edge_index
        edges = edges[:, torch.randperm(edges.shape[1], generator=generator)]
        shuffled[source, relation, target].edge_index = torch.stack(
            [new_index[source][edges[0]], new_index[target][edges[1]]]
        )
    layer = HGTLayer(8, 8, METADATA, heads=2).double()
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64)
    moved = torch.empty_like(x).index_copy_(0, new_row, x)
    torch.testing.assert_close(layer(moved, pack(shuffled, METADATA))[new_row], layer(x, graph), atol=1e-12, rtol=0)


def test_masked_edges_carry_nothing() -> None:
    graph = pack(random_graph(6), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=2)
    x = torch.randn(graph.num_nodes, 8)
    closed = graph.without_edges(keep=graph.target != 0)
    share = torch.sigmoid(torch.tensor(1.0))
    torch.testing.assert_close(layer(x, closed)[0], share * layer.out_bias[0] + (1 - share) * x[0])


def test_bfloat16_autocast_is_close_to_float32() -> None:
    torch.manual_seed(0)
    graph = pack(random_graph(7, (200, 100, 300), (2000, 500, 100, 50, 900, 300)), METADATA)
    layer = HGTLayer(64, 64, METADATA, heads=4)
    x = torch.randn(graph.num_nodes, 64, requires_grad=True)
    exact = layer(x, graph)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close, attention = layer(x, graph, return_attention=True)
    assert close.dtype == attention.dtype == torch.float32
    assert (close - exact).abs().max() < 0.02
    upstream = torch.randn_like(exact)
    (exact_grad,) = torch.autograd.grad((exact * upstream).sum(), x)
    (close_grad,) = torch.autograd.grad((close * upstream).sum(), x)
    assert (close_grad - exact_grad).norm() < 0.01 * exact_grad.norm()


def test_sums_over_many_edges_are_exact_in_bfloat16() -> None:
    # 4,096 equal messages: added one by one in bfloat16, the sum would stick at 256 times the first.
    metadata = GraphMetadata(("a", "b"), (("a", "r", "b"),))
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 4096, 1
    data["a", "r", "b"].edge_index = torch.stack([torch.arange(4096), torch.zeros(4096, dtype=torch.int64)])
    graph = pack(data, metadata)
    layer = HGTLayer(8, 8, metadata, heads=2)
    x = torch.ones(4097, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x, graph)
    torch.testing.assert_close(out, layer(x, graph), atol=0.02, rtol=0)


def test_numerical_gradients_agree() -> None:
    graph = pack(random_graph(8, (3, 2, 5), (4, 3, 2, 1, 2, 1)), METADATA)
    layer = HGTLayer(4, 4, METADATA, heads=2).double()
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x, graph))
        return result

    x = torch.randn(graph.num_nodes, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, *layer.parameters()), fast_mode=True)


def test_equal_input_gives_equal_bits() -> None:
    graph = pack(random_graph(9), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=2)
    x = torch.randn(graph.num_nodes, 8, requires_grad=True)
    runs = []
    for _ in range(2):
        out = layer(x, graph)
        runs.append((out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])))
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


def test_large_scores_do_not_overflow() -> None:
    graph = pack(random_graph(10), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=2)
    assert layer(1e4 * torch.randn(graph.num_nodes, 8), graph).isfinite().all()


def test_graph_without_edges_or_nodes_passes() -> None:
    layer = HGTLayer(8, 8, METADATA, heads=2)
    graph = pack(random_graph(11, edges=(0,) * 6), METADATA)
    x = torch.randn(graph.num_nodes, 8, requires_grad=True)
    out, attention = layer(x, graph, return_attention=True)
    assert attention.shape == (0, 2)
    out.sum().backward()
    assert x.grad is not None
    assert layer(torch.empty(0, 8), pack(HeteroData(), METADATA)).shape == (0, 8)


def test_dropout_acts_on_the_update_and_in_training_only() -> None:
    torch.manual_seed(0)
    graph = pack(random_graph(12), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=2, dropout=0.5)
    x = torch.randn(graph.num_nodes, 8)
    kept_input = (1 - torch.sigmoid(torch.tensor(1.0))) * x
    dropped = torch.isclose(layer(x, graph), kept_input, atol=1e-7).float().mean().item()
    assert dropped == pytest.approx(0.5, abs=0.1)
    layer.eval()
    torch.testing.assert_close(layer(x, graph), layer(x, graph))
    assert not torch.isclose(layer(x, graph), kept_input, atol=1e-7).any()


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="out_dim 8 is not a multiple of heads 3"):
        HGTLayer(8, 8, METADATA, heads=3)
    with pytest.raises(ValueError, match="dropout is 1"):
        HGTLayer(8, 8, METADATA, heads=2, dropout=1)


def test_features_or_graph_that_do_not_fit_are_refused() -> None:
    graph = pack(random_graph(13), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=2)
    with pytest.raises(GraphError, match=r"shape \[3, 8\]; expected \[42, 8\]"):
        layer(torch.zeros(3, 8), graph)
    other = GraphMetadata(METADATA.node_types, METADATA.edge_types[:1])
    with pytest.raises(GraphError, match="other metadata"):
        layer(torch.zeros(0, 8), pack(HeteroData(), other))


@pytest.mark.gpu
def test_accelerator_agrees_with_the_cpu_and_is_never_waited_for() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    graph = pack(random_graph(14), METADATA)
    layer = HGTLayer(8, 8, METADATA, heads=2).double()
    x = torch.randn(graph.num_nodes, 8, dtype=torch.float64, requires_grad=True)
    out = layer(x, graph)
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    moved, moved_x = graph.to("cuda"), x.detach().cuda().requires_grad_()
    layer.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        moved_out = layer(moved_x, moved)
        (moved_grad,) = torch.autograd.grad(moved_out.square().sum(), moved_x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(moved_out.cpu(), out, atol=1e-10, rtol=0)
    torch.testing.assert_close(moved_grad.cpu(), grad, atol=1e-10, rtol=0)
