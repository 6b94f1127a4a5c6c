"""The graph that the bundled cassette makes of one conversation of the sample, against what is said and rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml

from locigraph.assembly import graphs
from locigraph.assembly.language_models import clients_of
from locigraph.assembly.opening import read_corpus, text_encoder
from locigraph.assembly.settings import CorpusSettings, EncoderSettings, LLMSettings
from locigraph.consolidation.cassette import BUNDLED
from locigraph.kg.corpora import Corpus, load_corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.types import Node, NodeId, SpaceId, TurnState
from tests.consolidation import sample_cassette

pytestmark = pytest.mark.long  # encodes a hundred texts with the real text encoder

ROOT = Path(__file__).parents[2]
SPACE = SpaceId(sample_cassette.SPACE)
WRITTEN = yaml.safe_load(Path(sample_cassette.__file__).with_name("sample_extraction.yaml").read_text())
STATEMENTS = ("event_node", "sub_event", "knowledge_node")
STALE = "the cassette was made for other requests: run python -m tests.consolidation.sample_cassette"


@dataclass
class Built:
    """Both graphs, with the nodes of the written one by the names they have in the file."""

    llm: Store
    rules: Store
    corpus: Corpus
    named: dict[str, Node]

    def edges(self, label: str) -> set[tuple[str, str]]:
        """Edges of a label between nodes that the file names."""
        names: dict[NodeId, str] = {node.id: name for name, node in self.named.items()}
        found = (r for r in self.llm.relations(SPACE) if r.label == label)
        return {(names[r.source], names[r.target]) for r in found if r.source in names and r.target in names}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("graphs")
    given = yaml.safe_load((ROOT / "configs" / "build" / "sample_llm.yaml").read_text())
    corpus = read_corpus(CorpusSettings(**given["corpus"]))
    encoder = text_encoder(EncoderSettings(cache=str(folder / "cache.sqlite")))
    clients = clients_of(LLMSettings(**given["llm"]))
    with Store(folder / "llm.sqlite") as llm, Store(folder / "rules.sqlite") as rules:
        for store, name in ((llm, "llm"), (rules, "rules")):
            try:
                graphs.build_graph(corpus, graphs.extractor_for(name, corpus, clients), store, encoder)
            except LocigraphError as error:
                pytest.fail(f"{STALE} ({error})")
        nodes = llm.nodes(SPACE, types=STATEMENTS, include_archived=True)
        named = {}
        for turn_id, entry in WRITTEN.items():
            for name, (kind, label, _) in entry.get("add", {}).items():
                (named[name],) = (n for n in nodes if (n.type, n.label) == (kind, label) and turn_id in n.provenance)
        yield Built(llm, rules, corpus, named)


def test_every_turn_is_done_and_every_written_fact_is_there_once_with_its_turn(built: Built) -> None:
    (conversation,) = built.corpus.conversations
    assert len(built.llm.turns(SPACE, state=TurnState.DONE)) == len(conversation.turns) == 95
    assert len(built.named) == len(built.llm.nodes(SPACE, types=STATEMENTS)) > 130
    for name, node in built.named.items():
        text = next(entry["add"][name][2] for entry in WRITTEN.values() if name in entry.get("add", {}))
        if name != "rooibos":  # which a later turn makes more exact
            assert node.description == text or node.description.startswith(f"{text} (")


DATED = {
    "lofoten-return": (date(2024, 2, 8), date(2024, 2, 8)),  # "on Thursday", said on a Sunday
    "mill-lane-intent": (date(2024, 1, 29), date(2024, 2, 4)),  # "last week"
    "council-talk": (date(2024, 3, 15), date(2024, 3, 15)),  # "last Friday", said on a Wednesday
    "spoke-adoption": (date(2024, 3, 24), date(2024, 3, 24)),
    "ridgeback": (date(2024, 5, 1), date(2024, 5, 31)),
    "ridgeback-finish": (date(2024, 5, 4), date(2024, 5, 4)),
    "mill-lane-lost": (date(2024, 4, 26), date(2024, 4, 26)),  # "ten days ago"
    "interview": (date(2024, 6, 18), date(2024, 6, 18)),
    "swim-result": (date(2024, 7, 21), date(2024, 7, 21)),
    "varnholm-move": (date(2024, 8, 24), date(2024, 8, 24)),
}


@pytest.mark.parametrize("name", DATED)
def test_code_resolves_the_days_of_what_happened(name: str, built: Built) -> None:
    node = built.named[name]
    assert node.valid_from is not None
    assert node.valid_to is not None
    assert (node.valid_from.date(), node.valid_to.date()) == DATED[name]


def test_facts_that_became_untrue_are_closed_on_the_day_that_says_so_and_lead_to_their_successors(built: Built) -> None:
    closed = {
        "mill-lane": ("mill-lane-gone", date(2024, 5, 6)),
        "mill-lane-gone": ("tanner-street", date(2024, 5, 6)),
        "opening-june": ("opening-july", date(2024, 5, 6)),
        "second-gear": ("blue-oven", date(2024, 6, 22)),
        "job-search": ("varnholm-start", date(2024, 8, 15)),
        "banjo": ("mandolin-again", date(2024, 8, 15)),
        "ethiopian": ("rooibos", date(2024, 8, 15)),
        "shipyard-flat": ("no-flat", date(2024, 9, 29)),
        "no-flat": ("lantern-hill", date(2024, 9, 29)),
    }
    assert built.edges("SUPERSEDED_BY") == {(old, new) for old, (new, _) in closed.items()}
    ends = {name: n.valid_to for name, n in built.named.items() if n.type == "knowledge_node" and n.valid_to}
    assert {name: end.date() for name, end in ends.items()} == {old: day for old, (_, day) in closed.items()}


def test_the_past_is_known_as_it_was(built: Built) -> None:
    names = [built.named["second-gear"].id, built.named["blue-oven"].id]
    spring = datetime(2024, 4, 1, tzinfo=UTC)
    (then,) = built.llm.nodes(SPACE, ids=names, as_of=spring)
    assert then.description == "Tomas's shop will be called Second Gear."
    assert then.valid_to is None


def test_a_fact_that_is_made_more_exact_keeps_both_sources(built: Built) -> None:
    node = built.named["rooibos"]
    assert node.description.endswith("rooibos with orange peel and a bit of honey.")
    assert node.provenance == ("s05:t12", "s05:t14")


def test_parts_of_events_and_causes_are_edges(built: Built) -> None:
    written: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for entry in WRITTEN.values():
        written["CONTAINS"] |= {(whole, part) for part, whole in entry.get("part_of", {}).items()}
        for source, label, target in entry.get("relate", []):
            written[label].add((source, target))
    assert (
        built.edges("CONTAINS")
        == written["CONTAINS"]
        >= {("azores-booked", "rooster"), ("harbour-swim", "swim-result")}
    )
    assert built.edges("CAUSES") == written["CAUSES"] >= {("trademark", "blue-oven"), ("caffeine-ban", "rooibos")}
    assert built.edges("REFERENCES_KNOWLEDGE") == written["REFERENCES_KNOWLEDGE"]
    assert built.edges("HAS_GOAL") == written["HAS_GOAL"] != set()


def test_both_graphs_have_the_same_turns_and_the_written_one_has_what_rules_cannot_see(built: Built) -> None:
    graphs_of: dict[str, set[tuple[str, str, str]]] = {}
    for name, store in (("llm", built.llm), ("rules", built.rules)):
        said = {n.id: n.description for n in store.nodes(SPACE, types=["episode"])}
        edges = {(said[r.source], r.label, said[r.target]) for r in store.relations(SPACE) if r.label == "NEXT"}
        graphs_of[name] = edges | {(text, "", "") for text in said.values()}
    assert graphs_of["llm"] == graphs_of["rules"]
    labels = {r.label for r in built.llm.relations(SPACE)}
    assert labels - {r.label for r in built.rules.relations(SPACE)} >= {"CAUSES", "CONTAINS", "HAS_GOAL"}
    people = {n.label for n in built.llm.nodes(SPACE, types=["entity"])}
    assert {"Ingrid", "Tomas", "Rosa", "Benno", "Odile", "Silje", "Maren", "Yusuf", "Pavel"} <= people


def test_every_turn_that_answers_a_question_has_a_fact_or_event(built: Built) -> None:
    evidence = {turn_id for question in built.corpus.questions for turn_id in question.evidence}
    assert evidence
    nodes = built.llm.nodes(SPACE, types=STATEMENTS)
    assert evidence <= {turn_id for node in nodes for turn_id in node.provenance}


def test_the_bundled_cassette_is_never_written_to() -> None:
    before = BUNDLED["sample"].read_bytes()
    with pytest.raises(LocigraphError, match=r"bundled, for replay only; set llm\.mode to replay"):
        clients_of(LLMSettings(base_url="http://localhost:1/v1", model="m", cassette="sample"))("architect")
    assert BUNDLED["sample"].read_bytes() == before


def test_the_file_names_turns_of_the_conversation_and_every_node_once() -> None:
    (conversation,) = load_corpus("jsonl", "sample", conversations=(SPACE,)).conversations
    assert set(WRITTEN) <= {turn.turn_id for turn in conversation.turns}
    names = [name for entry in WRITTEN.values() for name in entry.get("add", {})]
    assert len(names) == len(set(names))
