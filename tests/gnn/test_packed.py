import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from locigraph.gnn.errors import GraphError, UnknownEdgeTypeError, UnknownNodeTypeError
from locigraph.gnn.packed import GraphMetadata, PackedGraph, pack

SAID, REV_SAID, ABOUT = ("speaker", "said", "turn"), ("turn", "rev_said", "speaker"), ("turn", "about", "entity")
METADATA = GraphMetadata(("speaker", "turn", "entity"), (SAID, REV_SAID, ABOUT))


def small_graph() -> HeteroData:
    """2 speakers, 3 turns, 1 entity; edge types are added in another order than the metadata's."""
    data = HeteroData()
    data["turn"].num_nodes = 3
    data["speaker"].x = torch.zeros(2, 4)
    data["entity"].num_nodes = 1
    data[ABOUT].edge_index = torch.tensor([[2, 0], [0, 0]])
    data[SAID].edge_index = torch.tensor([[1, 0, 1], [0, 1, 2]])
    return data


def edge_sets(graph: PackedGraph) -> dict[tuple[str, str, str], list[tuple[int, int]]]:
    """Edges by relation, with node indices within their types."""
    edges = {}
    for edge_type in graph.metadata.edge_types:
        positions = graph.edges_of(edge_type)
        source = graph.source[positions] - graph.slice_of(edge_type[0]).start
        target = graph.target[positions] - graph.slice_of(edge_type[2]).start
        edges[edge_type] = list(zip(source.tolist(), target.tolist(), strict=True))
    return edges


def test_nodes_and_edges_come_in_the_order_of_the_metadata() -> None:
    graph = pack(small_graph(), METADATA)
    assert graph.node_ptr == (0, 2, 5, 6)
    assert graph.edge_ptr == (0, 3, 3, 5)
    assert graph.source.tolist() == [1, 0, 1, 4, 2]
    assert graph.target.tolist() == [2, 3, 4, 5, 5]
    assert graph.relation_of_edge().tolist() == [0, 0, 0, 2, 2]
    assert (graph.num_nodes, graph.num_edges) == (6, 5)
    assert graph.slice_of("turn") == slice(2, 5)
    assert graph.edges_of(ABOUT) == slice(3, 5)


def test_types_that_the_graph_lacks_are_empty() -> None:
    graph = pack(HeteroData(), METADATA)
    assert graph.node_ptr == graph.edge_ptr == (0, 0, 0, 0)
    assert graph.layout.num_rows == 0


def test_edge_store_with_supervision_edges_only_has_no_edges() -> None:
    data = small_graph()
    data[REV_SAID].edge_label_index = torch.tensor([[0], [0]])
    assert pack(data, METADATA).edge_ptr == (0, 3, 3, 5)


def test_packing_leaves_the_graph_unchanged() -> None:
    data = HeteroData()
    data["turn"].num_nodes = 3
    pack(data, METADATA)
    assert data.node_types == ["turn"]
    assert data.edge_types == []


def test_unknown_types_are_named_with_the_nearest_known_one() -> None:
    data = small_graph()
    data["speeker"].num_nodes = 1
    with pytest.raises(UnknownNodeTypeError, match="'speeker' is not in the metadata; nearest is 'speaker'"):
        pack(data, METADATA)
    data = small_graph()
    data["turn", "abuot", "entity"].edge_index = torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(UnknownEdgeTypeError, match=r"'abuot', 'entity'\).*nearest is .*'about', 'entity'"):
        pack(data, METADATA)
    with pytest.raises(UnknownNodeTypeError, match="'turm'"):
        pack(small_graph(), METADATA).slice_of("turm")


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (torch.tensor([[3], [0]]), "holds source 3, but there are 3 nodes of type 'turn'"),
        (torch.tensor([[0], [1]]), "holds target 1, but there are 1 nodes of type 'entity'"),
        (torch.tensor([[-1], [0]]), "holds source -1"),
        (torch.zeros(2, 1), "torch.float32"),
        (torch.zeros(3, 1, dtype=torch.int64), r"shape \[3, 1\]"),
    ],
)
def test_malformed_edges_are_refused(edges: Tensor, message: str) -> None:
    data = small_graph()
    data[ABOUT].edge_index = edges
    with pytest.raises(GraphError, match=message):
        pack(data, METADATA)


def test_unknown_number_of_nodes_is_refused() -> None:
    data = small_graph()
    del data["turn"].num_nodes
    data["turn"].title = "no tensor tells how many"
    with pytest.raises(GraphError, match="set data"):
        pack(data, METADATA)


def test_metadata_with_a_repeated_or_dangling_type_is_refused() -> None:
    with pytest.raises(GraphError, match="'turn' is listed twice"):
        GraphMetadata(("turn", "turn"), ())
    with pytest.raises(GraphError, match="listed twice"):
        GraphMetadata(("speaker", "turn"), (SAID, SAID))
    with pytest.raises(UnknownNodeTypeError, match="'turn'"):
        GraphMetadata(("speaker",), (SAID,))


def test_without_edges_keeps_nodes_and_masked_edges_in_order() -> None:
    graph = pack(small_graph(), METADATA)
    kept = graph.without_edges(keep=torch.tensor([True, False, True, False, True]))
    assert kept.node_ptr == graph.node_ptr
    assert edge_sets(kept) == {SAID: [(1, 0), (1, 2)], REV_SAID: [], ABOUT: [(0, 0)]}
    assert graph.num_edges == 5


def test_without_edges_makes_its_own_layout() -> None:
    graph = pack(small_graph(), METADATA)
    assert len(graph.layout.order) == 5
    assert len(graph.without_edges(keep=graph.source < 0).layout.order) == 0


def test_without_edges_refuses_a_mask_of_numbers_or_of_another_length() -> None:
    graph = pack(small_graph(), METADATA)
    with pytest.raises(GraphError, match=r"torch.bool and \[5\]"):
        graph.without_edges(keep=torch.ones(5))
    with pytest.raises(GraphError, match=r"shape \[4\]"):
        graph.without_edges(keep=torch.ones(4, dtype=torch.bool))


def test_layout_sorts_edges_by_target_and_by_source_row() -> None:
    graph = pack(small_graph(), METADATA)
    edges = graph.layout.edges
    assert edges.target.tolist() == sorted(graph.target.tolist())
    assert torch.equal(edges.target, graph.target[graph.layout.order])
    assert edges.target_ptr.tolist() == [0, 0, 0, 1, 2, 3, 5]
    rows = edges.row[edges.by_row].tolist()
    assert rows == sorted(rows)
    assert edges.row_sorted.tolist() == rows
    assert torch.equal(edges.row_target, edges.target[edges.by_row])
    assert torch.equal(edges.row_target[edges.from_row], edges.target)
    assert edges.row_ptr.tolist() == [sum(r < bound for r in rows) for bound in range(graph.layout.num_rows + 1)]


def test_repeated_edges_are_disjoint_copies() -> None:
    graph = pack(small_graph(), METADATA)
    edges, rows = graph.layout.edges, graph.layout.num_rows
    twice = edges.repeated(2)
    assert twice.target.tolist() == edges.target.tolist() + (edges.target + 6).tolist()
    assert twice.row.tolist() == edges.row.tolist() + (edges.row + rows).tolist()
    assert twice.target_ptr.tolist() == edges.target_ptr.tolist() + (edges.target_ptr[1:] + 5).tolist()
    assert torch.equal(twice.row_target, twice.target[twice.by_row])
    assert torch.equal(twice.row_sorted, twice.row[twice.by_row])
    assert torch.equal(twice.row_target[twice.from_row], twice.target)
    assert len(twice.row_ptr) == 2 * rows + 1


def test_relation_with_few_sources_gets_rows_for_those_only() -> None:
    data = HeteroData()
    data["turn"].num_nodes = 100
    data["entity"].num_nodes = 1
    data[ABOUT].edge_index = torch.tensor([[70, 7, 70], [0, 0, 0]])
    (block,) = pack(data, METADATA).layout.blocks
    assert isinstance(block.nodes, Tensor)
    assert block.nodes.tolist() == [7, 70]


def test_moving_to_the_same_device_returns_the_graph_itself() -> None:
    graph = pack(small_graph(), METADATA)
    assert graph.to("cpu") is graph


def test_moving_brings_the_layout_along() -> None:
    # The meta device holds no data, so that making a layout there would fail.
    moved = pack(small_graph(), METADATA).to("meta")
    assert moved.layout.order.device.type == "meta"
