"""Generates the facts and numbers in the model cards from manifests and records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.record_tables import means_of, reranking, unlearnt

ROOT = Path(__file__).parent.parent
_CHECKPOINTS = ROOT / "checkpoints"
_MODELS = ("text", "default", "mixing", "reranker", "mpnet/text", "mpnet/default")
CARDS = [_CHECKPOINTS / name / "README.md" for name in _MODELS]
#: Records that a card quotes, by the extractor of their graph.
_RECORDS = {"recorded extractions": "locomo-recorded-zero", "rules": "locomo-rules-zero"}
#: Corpora: title, and record.
_OTHER = {
    "msc": ("MSC, chats between people", "transfer-msc"),
    "realmem": ("RealMem, requests to an assistant", "transfer-realmem"),
}
#: Strategies that each card shows.
_STRATEGIES = {
    "text": ("dense-adapted", "dense", "v1-adapted", "v1"),
    "default": ("v2-zero", "fusion-zero", "v1-adapted", "v1"),
    "mixing": ("v2-zero", "fusion-zero", "v1-adapted"),
}


def facts(folder: Path) -> str:
    """Facts and scores of the model in a folder."""
    manifest = json.loads((folder / "manifest.json").read_text())
    details, version = manifest["details"], manifest["version"]
    size = sum(file.stat().st_size for file in folder.iterdir() if file.suffix in (".safetensors", ".npy"))
    lines = [
        f"- Fingerprint `{version}`, for the text encoder `{manifest.get('text_encoder', manifest.get('base'))}`",
        f"- {_learnt(details)}, commit `{details['commit']}`",
        *[line for name, each in details.get("averaged", {"": details}).items() for line in _training(name, each)],
        f"- {size / 1e6:.1f} MB of weights and hashes",
        "",
        *_rows(folder, version),
    ]
    return "\n".join(lines)


def _learnt(details: dict[str, Any]) -> str:
    conversations = f"{len(details['identity']['train'])} conversations"
    averaged = details.get("averaged")
    if averaged is None:
        return f"Learnt from {conversations}, seed {details['seed']}"
    return f"The mean of the weights of {len(averaged)} trainings on {conversations}"


def _training(version: str, details: dict[str, Any]) -> list[str]:
    """Lines about a training and its result; ``version`` is that of its checkpoint if several were averaged."""
    stage = details["validation"] if "validation" in details else details["stages"]["finetune"]
    identity = details["identity"]
    whole = (
        f"One of the averaged trainings (`{version}`), of {len(identity['train'])} conversations: " if version else ""
    )
    if not identity["validation"]:
        epochs = identity["config"]["training"]["epochs"]
        return [f"- {whole}seed {identity['seed']}, {epochs} epochs, no validation conversations"]
    lines = [
        f"- {whole}{len(identity['validation'])} more decided when to stop; on these recall@10 + nDCG@10 is "
        f"{stage['val_score']:.3f}, before training {stage['start_score']:.3f}"
    ]
    if details.get("stages", {}).get("pretrain", {}).get("best_epoch") == -1:
        lines.append("- Its self-supervised stage kept its start: no epoch of it improved on that")
    return lines


def _rows(folder: Path, version: str) -> list[str]:
    if folder.name == "reranker":
        return [reranking(version)]
    # The records of the default pair have no suffix; those of others are called by the model's or the pair's folder.
    other = "mixing" if folder.name == "mixing" else folder.relative_to(_CHECKPOINTS).parts[0]
    suffix = "" if other in ("text", "default") else f"-{other}"
    rows = [each for part in (_on_locomo, _on_others, _on_longmemeval) for each in part(folder.name, version, suffix)]
    if not rows:
        return ["No record of this fingerprint; `docs/experiments/tables.md` has that kind of model trained in folds."]
    return ["| never learnt from | strategy | recall@10 [95%] | nDCG@10 |", "|---|---|---|---|", *rows]


def _on_locomo(name: str, version: str, suffix: str) -> list[str]:
    kept = "adapter" if name == "text" else "checkpoint"
    rows = []
    for graph, each in _RECORDS.items():
        file = f"{each}{suffix}"
        record = _record(file)
        if record is None or record["manifest"]["settings"][kept] != version:
            continue
        for strategy in _STRATEGIES[name]:
            if strategy not in record["strategies"]:
                continue
            found = record["strategies"][strategy]
            (low, high), overall = found["intervals"]["recall@10"], found["overall"]
            numbers = f"{overall['recall@10']:.3f} [{low:.3f}, {high:.3f}] | {overall['ndcg@10']:.3f}"
            rows.append(f"| LoCoMo-10, graph by {graph} (docs/results/{file}.json) | {strategy} | {numbers} |")
    return rows


def _record(file: str) -> dict[str, Any] | None:
    path = ROOT / "docs" / "results" / f"{file}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _cells(name: str, version: str, file: str) -> list[dict[str, Any]]:
    """Results of a model in a record of finished checkpoints; the adapter's are beside the shipped checkpoint."""
    record = _record(file)
    if record is None:
        return []
    if name != "text":
        return [cell for cell in record["cells"] if cell["checkpoint"] == version]
    graphs = record["manifest"]["settings"]["graphs"]
    shipped = [cell for cell in record["cells"] if cell["trained"] == "shipped"]
    return [cell for cell in shipped if f"+{version}+" in graphs[cell["tested"]]["text_encoder"]]


def _on_others(name: str, version: str, suffix: str) -> list[str]:
    rows = []
    for tested, (title, record) in _OTHER.items():
        file = f"{record}{suffix}"
        for cell in _cells(name, version, file):
            for strategy in _STRATEGIES[name] if cell["tested"] == tested else ():
                if strategy in cell["means"]:
                    means = cell["means"][strategy]
                    graph = f"{title}, graph by rules (docs/results/{file}.json)"
                    rows.append(f"| {graph} | {strategy} | {means['recall@10']:.3f} | {means['ndcg@10']:.3f} |")
    return rows


def _on_longmemeval(name: str, version: str, suffix: str) -> list[str]:
    file = f"transfer-longmemeval{suffix}"
    if not _cells(name, version, file):
        return []
    questions = unlearnt(f"{file}--longmemeval-52")
    graph = f"LongMemEval, {len(questions)} questions of it, graph by rules (docs/results/{file}.json)"
    rows = []
    for strategy in _STRATEGIES[name]:
        if strategy in questions[0]["scores"]:
            means = means_of(questions, strategy)
            rows.append(f"| {graph} | {strategy} | {means['recall@10']:.3f} | {means['ndcg@10']:.3f} |")
    return rows
