from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from locigraph.research.evaluation.outcomes import QuestionOutcome
from locigraph.research.evaluation.question_browser import browser_data
from locigraph.research.evaluation.report import write_report
from tests.research.evaluation.planted import NASTY, planted_results, run_of

END = "</script><img src=x onerror=alert(1)>"
QUESTIONS = [
    QuestionOutcome("q1", "s1", "when", ("a", "b")),
    QuestionOutcome("q2", "s1", "who", ("b",)),
    QuestionOutcome("q3", "s2", "who", ("a",)),
]
FAR = tuple(f"t{i}" for i in range(10))
RUNS = [
    run_of("v2", {"q1": ("a", "c", "b"), "q2": ("b",), "q3": (*FAR, "a")}),
    run_of(NASTY, {"q1": ("c", "b"), "q2": (), "q3": ("a",)}),
]
TEXTS = {"q1": f"When was {END}?", "q2": "Who ate?", "q3": "Who SANG?"}
TURNS = {"s1": {"a": "first", "b": NASTY}, "s2": {"a": "other"}}


def data() -> dict[str, Any]:
    return browser_data(QUESTIONS, RUNS, TEXTS, TURNS)


def matching(**chosen: Any) -> Any:
    """What the script's filter finds."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed; the filter of the browser of questions is not tested")
    script = files("locigraph.research.evaluation").joinpath("question_browser.js").read_text()
    asked = {"category": -1, "strategy": 0, "found": "any", "words": "", **chosen}
    call = f"console.log(JSON.stringify(matching({json.dumps(data())}, {json.dumps(asked)})))"
    ran = subprocess.run([node, "-"], input=f"{script}\n{call}", capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


class Scripts(html.parser.HTMLParser):
    """Collects the contents of script elements and the tags of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag == "script":
            self.found.append((dict(attrs), ""))

    def handle_data(self, text: str) -> None:
        if self.cdata_elem == "script":
            attributes, before = self.found[-1]
            self.found[-1] = attributes, before + text


def test_data_holds_the_rank_of_every_evidence_by_strategy() -> None:
    found = data()
    assert found["strategies"] == ["v2", NASTY]
    assert found["categories"] == ["when", "who"]
    assert found["turns"] == [["a", "first"], ["b", NASTY], ["a", "other"]]
    assert [question["ranks"] for question in found["questions"]] == [[[1, 3], [0, 2]], [[1], [0]], [[11], [1]]]
    assert [question["evidence"] for question in found["questions"]] == [[0, 1], [1], [2]]


def test_the_page_runs_its_own_script_alone_and_no_text_can_leave_the_data(tmp_path: Path) -> None:
    results = planted_results(("v2", NASTY))
    markdown, page = (path.read_text("utf-8") for path in write_report(tmp_path, results, questions=data()))
    parsed = Scripts(page)
    (attributes, held), (own, script) = parsed.found
    assert attributes == {"type": "application/json", "id": "questions"}
    assert json.loads(held) == data()
    assert own == {}
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'" in page
    assert not {"img", "link", "iframe"} & set(parsed.tags)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\\.write|eval|fetch|import|http", script)
    assert "lets you browse all questions" in markdown
    assert "<script" not in markdown.replace("\\<", "")


def test_a_large_comparison_stays_small() -> None:
    questions = [QuestionOutcome(f"q{i}", "s", "c", ("a", "b")) for i in range(1_500)]
    runs = [run_of(f"strategy {i}", {q.question_id: FAR for q in questions}) for i in range(15)]
    texts = dict.fromkeys((q.question_id for q in questions), "x" * 60)
    found = browser_data(questions, runs, texts, {"s": {"a": "x" * 200, "b": "y" * 200}})
    assert len(json.dumps(found, separators=(",", ":"))) < 1_000_000


def test_questions_are_filtered_by_category_words_and_what_a_strategy_found() -> None:
    assert matching() == [0, 1, 2]
    assert matching(category=1) == [1, 2]
    assert matching(words="who sang") == [2]
    assert matching(found="all") == [0, 1]  # rank 11 is beyond the first ten
    assert matching(found="none") == [2]
    assert matching(strategy=1, found="some") == [0]
    assert matching(strategy=1, found="none", category=1) == [1]
