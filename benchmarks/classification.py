"""Quality of categories: those that ``locigraph classify`` makes of a built graph, and its accuracy on held-out nodes.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store locomo.sqlite
    python -m benchmarks.classification --store locomo.sqlite

The label of a fact or event is the recorded topic of its first source turn. *Held out*: each label of two or more
nodes becomes a category with four fifths of them, and the service assigns the other fifth; this is done five times, so
that each node is held out once. *From nothing*: the service makes its own categories, which are compared with the
topics.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score, v_measure_score

from benchmarks import records
from locigraph.assembly import opening
from locigraph.assembly.settings import EncoderSettings
from locigraph.consolidation.classification import THRESHOLD, Classifier, category_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NewNode, NewRelation, SpaceId
from locigraph.retrieval.text.text_encoder import CachedTextEncoder

_FOLDS = 5


def topics_of(seen: Snapshot) -> dict[int, int]:
    """Row of each event and fact whose first source turn has a topic -> row of that topic."""
    of_episode = {
        int(s): int(t)
        for s, t in zip(
            seen.source[seen.relations == "HAS_CONCEPT"], seen.target[seen.relations == "HAS_CONCEPT"], strict=True
        )
    }
    first: dict[int, int] = {}
    for node, turn in seen.provenance.tolist():
        first.setdefault(node, turn)
    rows = seen.active_rows(list(category_types())).tolist()
    return {row: topic for row in rows if (topic := of_episode.get(int(seen.episode_rows[first[row]]))) is not None}


def put_under_topics(store: Store, seen: Snapshot, label_of: dict[int, int], held_out: set[int], *, model: str) -> None:
    """Create a category for each topic and type, with the nodes of that label that are not held out."""
    nodes: dict[str, NewNode] = {}
    edges = []
    for row, topic in label_of.items():
        if row not in held_out:
            parent = category_types()[str(seen.types[row])]
            ref = f"{parent} {topic}"
            nodes.setdefault(ref, NewNode(ref, parent, seen.labels[topic], ref, (), embedding=seen.embeddings[topic]))
            edges.append(NewRelation(ref, "CONTAINS", seen.ids[row]))
    latest = datetime.fromtimestamp(int(seen.recorded_at.max()), UTC)
    made = GraphChange(seen.space, latest, nodes=tuple(nodes.values()), relations=tuple(edges), embedding_model=model)
    store.commit(made)


def category_of(store: Store, space: SpaceId) -> dict[str, str]:
    """ID of each classified node -> description of its category."""
    nodes = {n.id: n for n in store.nodes(space, types=list(category_types().values()))}
    return {
        edge.target: nodes[edge.source].description
        for edge in store.relations(space)
        if edge.label == "CONTAINS" and edge.source in nodes
    }


def held_out(path: Path, encoder: CachedTextEncoder, threshold: float) -> dict[str, Any]:
    """The accuracy of the service on nodes whose labels it does not see; printed as well."""
    rng = np.random.default_rng(0)
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    common: Counter[str] = Counter()
    elsewhere = 0
    categories = []
    fold_of: dict[tuple[str, int], int] = {}
    for fold in range(_FOLDS):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "graph.sqlite"
            shutil.copyfile(path, copy)
            with Store(copy) as store:
                for space in store.spaces():
                    seen = store.snapshot(space, embedding_model=encoder.model_id)
                    label_of = topics_of(seen)
                    sizes = Counter((str(seen.types[row]), topic) for row, topic in label_of.items())
                    label_of = {r: t for r, t in label_of.items() if sizes[str(seen.types[r]), t] > 1}
                    if fold == 0:  # spread as evenly as possible within each label
                        drawn = rng.permutation(list(label_of)).tolist()
                        drawn.sort(key=lambda row: (str(seen.types[row]), label_of[row]))
                        fold_of.update({(space, row): i % _FOLDS for i, row in enumerate(drawn)})
                        categories.append(len({(str(seen.types[r]), t) for r, t in label_of.items()}))
                    out = {row for row in label_of if fold_of[space, row] == fold}
                    put_under_topics(store, seen, label_of, out, model=encoder.model_id)
                    Classifier(store, encoder, threshold=threshold).run(space)
                    found = category_of(store, space)
                    for row in out:
                        kind = str(seen.types[row])
                        asked[kind] += 1
                        category = found.get(seen.ids[row], "")
                        right[kind] += category == f"{category_types()[kind]} {label_of[row]}"
                        elsewhere += not category.startswith(category_types()[kind])
                    for kind in category_types():
                        labels = Counter(label_of[r] for r in label_of if seen.types[r] == kind and r not in out)
                        largest = max(labels, key=lambda topic: labels[topic], default=-1)
                        common[kind] += sum(label_of[r] == largest for r in out if seen.types[r] == kind)
    made: dict[str, Any] = {"categories_a_space": float(np.mean(categories)), "elsewhere": elsewhere / asked.total()}
    made["types"] = {
        kind: {"nodes": count, "right": right[kind] / count, "largest_right": common[kind] / count}
        for kind, count in asked.items()
    }
    print(f"held out, threshold {threshold}: {made['categories_a_space']:.0f} categories per space on average")
    for kind, shares in made["types"].items():
        print(
            f"  {kind}: {shares['right']:.3f} of {shares['nodes']} nodes under their topic; the largest topic alone "
            f"would be right for {shares['largest_right']:.3f}"
        )
    print(f"  {made['elsewhere']:.3f} of all nodes under a new category or under none")
    return made


def from_nothing(path: Path, encoder: CachedTextEncoder, threshold: float) -> dict[str, float]:
    """What the service makes of a graph without categories; printed as well."""
    rows = []
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "graph.sqlite"
        shutil.copyfile(path, copy)
        with Store(copy) as store:
            for space in store.spaces():
                Classifier(store, encoder, threshold=threshold).run(space)
                seen = store.snapshot(space)
                found, label_of = category_of(store, space), topics_of(seen)
                for kind in category_types():
                    nodes = seen.active_rows([kind]).tolist()
                    total[kind] += len(nodes)
                    total["unclassified"] += sum(seen.ids[row] not in found for row in nodes)
                    total["like no other"] += sum("like no others" in found.get(seen.ids[row], "") for row in nodes)
                    both = [row for row in nodes if row in label_of and seen.ids[row] in found]
                    given, made = [label_of[r] for r in both], [found[seen.ids[r]] for r in both]
                    rows.append([v_measure_score(given, made), adjusted_rand_score(given, made), len(set(made))])
    count = sum(total[kind] for kind in category_types())
    means = np.mean(rows, axis=0).tolist()
    shares = {
        "nodes": count, "unclassified": total["unclassified"] / count, "like_no_others": total["like no other"] / count,
        "categories_a_space_and_type": means[2], "v_measure": means[0], "adjusted_rand": means[1],
    }  # fmt: skip
    print(
        f"from nothing, threshold {threshold}: {shares['unclassified']:.4f} of {count} nodes unclassified, "
        f"{shares['like_no_others']:.4f} like no others; {means[2]:.1f} categories per space and type; with the "
        f"recorded topics V-measure {means[0]:.3f}, adjusted Rand index {means[1]:.3f}"
    )
    return shares


def main() -> None:
    """Print both measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="graph to classify; the benchmark works on copies of it")
    parser.add_argument(
        "--thresholds", type=float, nargs="+", default=[THRESHOLD], help="thresholds of the classifier to try"
    )
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    options = records.options_of(parser)
    encoder = opening.text_encoder(EncoderSettings(cache=options.cache))
    store, rows = Path(options.store), []
    for threshold in options.thresholds:
        made = from_nothing(store, encoder, threshold)
        rows.append({"threshold": threshold, "from_nothing": made, "held_out": held_out(store, encoder, threshold)})
    records.write(options, {"rows": rows}, text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()
