"""Cost of one training step, forward and backward, of our ``HGTEncoder`` compared with PyG's ``HGTConv``.

    python -m benchmarks.hgt [--turns 10000] [--edges 60000] [--rounds 3]

Both read the same random graph of turns and their neighbours, on one thread. They do not compute the same: ``HGTConv``
projects values and output and has no edge features; ours sums the blocks of each neighbour (1,535 numbers) without a
projection. Their steps alternate, so that a busy machine slows both; the smallest CPU time of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor
from torch_geometric.nn import HGTConv

from benchmarks import records
from locigraph.gnn.encoders import EncoderConfig, HGTEncoder
from locigraph.gnn.features import TRAITS, GraphInputs, node_types
from locigraph.gnn.relations import BLOCKS, network_relations
from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.schema import EPISODE

CONFIG = EncoderConfig(384, HashedFeatures(1024, 32, 95), attention_dim=32)
RELATIONS = network_relations()
TYPES = node_types(RELATIONS)


def random_graph(turns: int, edges: int) -> GraphInputs:
    """Turns, half as many nodes of each other type, and the edges shared out evenly over the relations."""
    sizes = torch.tensor([turns, *[max(1, turns // 2)] * (len(TYPES) - 1)])
    first, nodes = sizes.cumsum(0) - sizes, int(sizes.sum())
    relation = torch.arange(edges) % len(RELATIONS)
    kind = torch.tensor([TYPES.index(row.source) for row in RELATIONS])[relation]
    source = first[kind] + (torch.rand(edges) * sizes[kind]).long()
    target, order = torch.randint(turns, (edges,)).sort()
    context = torch.randn(nodes, CONFIG.hashed.speaker_dim + CONFIG.hashed.date_dim)
    return GraphInputs(
        text=F.normalize(torch.randn(nodes, CONFIG.text_dim), dim=1),
        lexical=torch.randn(nodes, CONFIG.hashed.lexical_dim),
        context=context,
        speakers=context[:, :32],
        traits=torch.randn(nodes, len(TRAITS)),
        days=torch.rand(nodes) * 365,
        node_type=torch.repeat_interleave(torch.arange(len(TYPES)), sizes),
        rows=torch.arange(nodes),
        source=source[order],
        target=target,
        relation=relation[order],
        num_turns=turns,
    )


def pyg_forward(inputs: GraphInputs) -> Callable[[], Tensor]:
    """The forward pass of ``HGTConv`` with one head for each of our blocks."""
    edge_types = [(row.source, row.name, EPISODE) for row in RELATIONS]
    conv = HGTConv(CONFIG.text_dim, CONFIG.text_dim, (list(TYPES), edge_types), heads=len(BLOCKS))
    x = {kind: inputs.text[inputs.node_type == i] for i, kind in enumerate(TYPES)}
    place = torch.cat([torch.arange(len(each)) for each in x.values()])  # of each node within its type
    pairs = torch.stack([place[inputs.source], inputs.target])
    edges = {edge_type: pairs[:, inputs.relation == i] for i, edge_type in enumerate(edge_types)}
    return lambda: conv(x, edges)[EPISODE]


def main() -> None:
    """Print the CPU seconds of both and their ratio."""
    parser = argparse.ArgumentParser(description="Cost of HGTEncoder compared with PyG's HGTConv.")
    for name, default, counts in (
        ("turns", 10_000, "turns of the random graph"),
        ("edges", 60_000, "edges of the random graph"),
        ("rounds", 3, "training steps of each encoder; the fastest counts"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"number of {counts}")
    args = records.options_of(parser)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = random_graph(args.turns, args.edges)
    encoder = HGTEncoder(CONFIG)
    forwards = {"HGTConv": pyg_forward(inputs), "HGTEncoder": lambda: encoder(inputs).joined()}
    seconds: dict[str, list[float]] = {name: [] for name in forwards}
    for _ in range(args.rounds + 1):
        for name, forward in forwards.items():
            begin = time.process_time()
            forward().square().mean().backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            seconds[name].append(time.process_time() - begin)
    best = {name: min(values[1:]) for name, values in seconds.items()}  # the first round is the warm-up
    print(f"{args.turns} turns, {args.edges} edges, {len(inputs.text)} nodes, 1 thread, {args.rounds} rounds")
    for name, value in best.items():
        print(f"{name:12}{value:8.3f} s of CPU time; HGTConv takes {best['HGTConv'] / value:.2f} times as long")
    records.write(args, {"nodes": len(inputs.text), "cpu_s": best})


if __name__ == "__main__":
    main()
