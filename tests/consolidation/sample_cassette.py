"""Makes the bundled cassette from the extraction written by hand: python -m tests.consolidation.sample_cassette

It writes the same facts and events as recorded extractions too, by which others are judged.

To be run whenever prompts, schemas or the search for known nodes change, since a cassette keeps a reply under all that
was asked. The requests are the real ones, of a real build against a scripted endpoint.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from locigraph.assembly.settings import CorpusSettings, EncoderSettings, LLMSettings
from locigraph.consolidation.cassette import BUNDLED
from locigraph.kg import corpora
from locigraph.kg.corpora import Conversation, load_corpus
from locigraph.kg.files import replace_file
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.scripts.commands.memory.build import build
from tests.consolidation.stub_server import Stub, stub_server

SPACE = "harbor"
EXTRACTIONS = Path(corpora.__file__).parent / "sample_extractions.jsonl"
SETTINGS = LLMSettings(model="hand-written", cassette="sample", mode="replay")
_EXTRACTION = Path(__file__).with_name("sample_extraction.yaml")


class HandWritten:
    """The model: replies about each turn what was written by hand, with the ids that it is shown.

    Attributes:
        lost: What could not be said, since the known node it is about was not shown.
    """

    def __init__(self, conversation: Conversation, written: Mapping[str, Any]) -> None:
        self._turns = {(turn.speaker, turn.text): turn.turn_id for turn in conversation.turns}
        self._written = written
        self._texts: dict[str, str] = {}  # of every node by its name in the file, as it was last worded
        self.lost: list[str] = []

    def __call__(self, request: dict[str, Any]) -> Any:
        """The reply to a request."""
        document = json.loads(request["messages"][1]["content"])
        turn_id = self._turns[document["turn"]["speaker"], document["turn"]["said"]]
        entry = self._written.get(turn_id, {})
        return self._words(entry, document) if "plan" in document else self._plan(turn_id, entry, document)

    def _plan(self, turn_id: str, entry: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
        added = entry.get("add", {})
        self._texts |= {name: text for name, (_, _, text) in added.items()}
        ends = {name: f"n{number}" for number, name in enumerate(added, start=1)}
        for known in document["known_nodes"]:  # its text may end with the days that code has resolved
            named = [name for name, text in self._texts.items() if name not in added and known["text"].startswith(text)]
            ends |= dict.fromkeys(named, known["id"])

        def shown(what: str, *names: str) -> bool:
            missing = [name for name in names if name not in ends]
            if missing:
                self.lost.append(f"{turn_id}: {what} {' '.join(names)}: {missing[0]} was not shown")
            return not missing

        updates = {name: words for name, words in entry.get("update", {}).items() if shown("update", name)}
        self._texts |= {name: words[1] for name, words in updates.items() if words is not None}
        part_of = {part: whole for part, whole in entry.get("part_of", {}).items() if shown("part_of", part, whole)}
        plan: dict[str, Any] = {
            "add": [
                {"ref": ends[name], "type": kind, "draft": text, "part_of": ends.get(part_of.get(name, ""))}
                for name, (kind, _, text) in added.items()
            ],
            "relate": [
                {"source": ends[source], "label": label, "target": ends[target]}
                for source, label, target in entry.get("relate", [])
                if shown(label, source, target)
            ],
            "coin": [
                {"source": ends[source], "label": label, "description": description, "target": ends[target]}
                for source, label, target, description in entry.get("coin", [])
                if shown(label, source, target)
            ],
            "mentions": [{"name": name, "kind": kind} for name, kind in entry.get("mentions", {}).items()],
            "topics": entry.get("topics", []),
        }
        if document["known_nodes"]:
            plan["update"] = [{"id": ends[n], "draft": words and words[1]} for n, words in updates.items()]
            plan["supersede"] = [
                {"id": ends[old], "successor": ends[new]}
                for old, new in entry.get("supersede", {}).items()
                if shown("supersede", old, new)
            ]
            plan["archive"] = [ends[name] for name in entry.get("archive", []) if shown("archive", name)]
        return plan

    def _words(self, entry: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
        written = [(label, text) for _, label, text in entry.get("add", {}).values()]
        written += [words for words in entry.get("update", {}).values() if words is not None]
        labels = {text: label for label, text in written}
        words = [{"ref": each["ref"], "label": labels[each["draft"]], "description": each["draft"]}
                 for each in document["plan"]]  # fmt: skip
        return {"words": words}


def extractions(store: Store) -> dict[str, Any]:
    """The facts and events of the built graph, in the format of recorded extractions."""
    facts, events = [], []
    for node in store.nodes(SpaceId(SPACE), types=("event_node", "sub_event", "knowledge_node")):
        item: dict[str, Any] = {"text": node.description, "turn_ids": list(node.provenance)}
        if node.type == "knowledge_node":
            facts.append(item)
        elif node.valid_from is None or node.valid_to is None:
            events.append(item)
        else:
            events.append(item | {"start": f"{node.valid_from:%Y-%m-%d}", "end": f"{node.valid_to:%Y-%m-%d}"})
    return {"conversation_id": SPACE, "facts": facts, "events": events}


def main() -> None:
    """Make the cassette; fails if the file names what the architect was not shown."""
    conversation = load_corpus("jsonl", "sample", conversations=(SPACE,)).conversations[0]
    model = HandWritten(conversation, yaml.safe_load(_EXTRACTION.read_text()))
    with tempfile.TemporaryDirectory() as folder, stub_server(Stub(model)) as stub, redirect_stdout(sys.stderr):
        made = Path(folder) / "sample.sqlite"
        build(
            corpus=CorpusSettings(conversations=[SPACE]),
            consolidation="llm",
            store=f"{folder}/graph.sqlite",
            encoder=EncoderSettings(cache=f"{folder}/cache.sqlite"),
            checkpoint=None,
            llm=replace(SETTINGS, base_url=stub.url, cassette=str(made), mode="record"),
        )
        if model.lost:
            raise SystemExit("\n".join(model.lost))
        with Store(f"{folder}/graph.sqlite") as store:
            replace_file(EXTRACTIONS, json.dumps(extractions(store)) + "\n")
        BUNDLED["sample"].parent.mkdir(exist_ok=True)
        replace_file(BUNDLED["sample"], made.read_bytes())


if __name__ == "__main__":
    main()
