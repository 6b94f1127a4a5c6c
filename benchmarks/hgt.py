"""Cost of the HGT layer beside PyG's ``HGTConv``: seconds and memory of forward and backward.

    python -m benchmarks.hgt [--nodes 10000 --edges 60000] [--heads 8] [--dtype float32 bfloat16] [--threads 1]

Both run the same random graph of 5 node types and 12 relations (6 and their reverses) with the same weights.
Times alternate within one process, so that a busy machine slows both; a row gives the smallest of the rounds,
its ratio is the median of the rounds' ratios. They are CPU seconds with one thread and wall-clock seconds with more.
Memory is the growth of a fresh process's peak over one step, from
what it held with graph, features and weights in place.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HGTConv

from locigraph.gnn.hgt import HGTLayer
from locigraph.gnn.packed import GraphMetadata, PackedGraph, pack

NODE_TYPES = ("speaker", "turn", "fact", "entity", "session")
FORWARD_TYPES = (
    ("speaker", "said", "turn"),
    ("session", "holds", "turn"),
    ("turn", "states", "fact"),
    ("fact", "about", "entity"),
    ("fact", "follows", "fact"),
    ("turn", "mentions", "entity"),
)
EDGE_TYPES = FORWARD_TYPES + tuple((target, f"rev_{relation}", source) for source, relation, target in FORWARD_TYPES)
METADATA = GraphMetadata(NODE_TYPES, EDGE_TYPES)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
IMPLEMENTATIONS = ("HGTConv", "HGTLayer")


def random_graph(nodes: int, edges: int) -> HeteroData:
    """A graph with the nodes shared out evenly over the types, and the edges over the relations."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    for node_type in NODE_TYPES:
        data[node_type].num_nodes = nodes // len(NODE_TYPES)
    for edge_type in EDGE_TYPES:
        shape = (2, edges // len(EDGE_TYPES))
        data[edge_type].edge_index = torch.randint(0, nodes // len(NODE_TYPES), shape, generator=generator)
    return data


def make_step(implementation: str, data: HeteroData, args: argparse.Namespace, dtype: str) -> Callable[[], Tensor]:
    """A function that runs forward, backward from a fixed gradient, and returns the output."""
    torch.manual_seed(0)
    convs = nn.ModuleList(
        HGTConv(args.dim, args.dim, (list(NODE_TYPES), list(EDGE_TYPES)), heads=args.heads) for _ in range(args.layers)
    )
    graph = pack(data, METADATA)
    x = torch.randn(graph.num_nodes, args.dim, requires_grad=True)
    layers = convs if implementation == "HGTConv" else _own_layers(convs, args)
    run = (_pyg_forward if implementation == "HGTConv" else _own_forward)(layers, x, data, graph)
    gradient = torch.randn(x.shape)

    def step() -> Tensor:
        autocast: AbstractContextManager[object] = nullcontext()
        if dtype != "float32":
            autocast = torch.autocast("cpu", dtype=DTYPES[dtype])
        x.grad = None
        layers.zero_grad()
        with autocast:
            out = run()
        out.backward(gradient.to(out.dtype))  # type: ignore[no-untyped-call]  # torch does not annotate it
        return out.detach()

    return step


def _pyg_forward(convs: nn.ModuleList, x: Tensor, data: HeteroData, graph: PackedGraph) -> Callable[[], Tensor]:
    def run() -> Tensor:
        x_dict = {node_type: x[graph.slice_of(node_type)] for node_type in NODE_TYPES}
        for conv in convs:
            x_dict = conv(x_dict, data.edge_index_dict)
        return torch.cat([x_dict[node_type] for node_type in NODE_TYPES])

    return run


def _own_layers(convs: nn.ModuleList, args: argparse.Namespace) -> nn.ModuleList:
    layers = [HGTLayer(args.dim, args.dim, METADATA, heads=args.heads) for _ in convs]
    for layer, conv in zip(layers, convs, strict=True):
        layer.load_pyg_weights(conv)
    return nn.ModuleList(layers)


def _own_forward(layers: nn.ModuleList, x: Tensor, data: HeteroData, graph: PackedGraph) -> Callable[[], Tensor]:
    def run() -> Tensor:
        out = x
        for layer in layers:
            out = layer(out, graph)
        return out

    return run


def peak_memory_mb(implementation: str, args: argparse.Namespace, dtype: str) -> float:
    """Peak growth of a fresh process over one step, in MB (10^6 bytes)."""
    command = [sys.executable, "-m", "benchmarks.hgt", "--child", implementation, "--dtype", dtype]
    for name in ("nodes", "edges", "dim", "heads", "layers"):
        command += [f"--{name}", str(getattr(args, name))]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(result.stdout)["peak_mb"])


def run_child(args: argparse.Namespace) -> None:
    """Print this process's peak growth over one step of one implementation, as JSON."""
    torch.set_num_threads(1)
    step = make_step(args.child, random_graph(args.nodes, args.edges), args, args.dtype[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak_mb": (peak - before) * 1024 / 1e6}))  # ru_maxrss is in KiB on Linux


def main() -> None:
    """Print a table of both implementations for each type."""
    parser = argparse.ArgumentParser(description="Cost of HGTLayer beside PyG's HGTConv.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--edges", type=int, default=60_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtype", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", choices=IMPLEMENTATIONS, help="measure memory of one; used by the benchmark")
    args = parser.parse_args()
    if args.child:
        run_child(args)
        return

    # First, while this process is small: a child inherits its parent's peak as its own.
    memory = {(i, dtype): peak_memory_mb(i, args, dtype) for dtype in args.dtype for i in IMPLEMENTATIONS}
    torch.set_num_threads(args.threads)
    data = random_graph(args.nodes, args.edges)
    steps = {(i, dtype): make_step(i, data, args, dtype) for dtype in args.dtype for i in IMPLEMENTATIONS}
    sums = {key: step().float().square().sum().item() for key, step in steps.items()}  # also the warm-up
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    clock = time.process_time if args.threads == 1 else time.perf_counter
    for _ in range(args.rounds):
        for key, step in steps.items():
            begin = clock()
            step()
            seconds[key].append(clock() - begin)

    print(
        f"{args.nodes} nodes, {args.edges} edges, {args.layers} layers, {args.dim}-d, {args.heads} heads,"
        f" {args.threads} thread(s), {args.rounds} rounds; forward and backward"
    )
    print(f"{'dtype':10}{'layer':10}{'s':>8}{'ratio':>8}{'peak MB':>9}{'sum of squares':>16}")
    for dtype in args.dtype:
        for implementation in IMPLEMENTATIONS:
            key = (implementation, dtype)
            ratio = statistics.median(
                pyg / own for pyg, own in zip(seconds["HGTConv", args.dtype[0]], seconds[key], strict=True)
            )
            print(
                f"{dtype:10}{implementation:10}{min(seconds[key]):8.3f}{ratio:8.1f}{memory[key]:9.0f}{sums[key]:16.1f}"
            )
    print(f"ratio: seconds of HGTConv in {args.dtype[0]} / seconds of the row")


if __name__ == "__main__":
    main()
