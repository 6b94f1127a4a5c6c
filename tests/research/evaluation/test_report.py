from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path

import pytest

from locigraph.research.evaluation.report import comparison_sentence, text_table, write_report
from locigraph.research.evaluation.results import Comparison, Results
from locigraph.research.evaluation.summary import summarise
from tests.research.evaluation.planted import (
    NASTY,
    planted_questions,
    planted_results,
    planted_run,
    planted_summary,
)


class Page(html.parser.HTMLParser):
    """Collects tags and attributes, and fails on a tag that is not closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def comparison(**changes: object) -> Comparison:
    made: Comparison = {
        "a": "v2",
        "b": "v1",
        "metric": "recall@10",
        "delta": 0.12,
        "ci_low": 0.081,
        "ci_high": 0.16,
        "t_low": 0.07,
        "t_high": 0.17,
        "p": 0.001,
        "p_holm": 0.002,
        "p_question_level": 0.0001,
        "clusters": 10,
        "by_category": {},
    }
    made.update(changes)  # type: ignore[typeddict-item]  # a test sets one field at a time by name
    return made


def nasty_results() -> Results:
    results = planted_results(("v2", NASTY, "v1"))
    results["corpus"]["path"] = "<img src=x onerror=alert(1)>.json"
    results["corpus"]["skipped"] = {"<b>no</b> | evidence": 2}
    results["manifest"] = {
        "command": "echo '</code></pre><script>1</script>' ```",
        "host": "```\n# no heading",
    }
    results["notes"] = ["<script>note</script>", "line\nbreak | *bold* [link](http://example.org)"]
    return results


def test_the_terminal_table_is_aligned() -> None:
    # Gold at ranks 1-2, 4-5 and 7-8: both in the top 5, both in the top 5, none.
    assert text_table(planted_summary()).splitlines() == [
        "strategy  recall@5  recall@10           [95%]  recall@20  nDCG@10",
        "v2           1.000      1.000  [1.000, 1.000]      1.000    1.000",
        "v1           1.000      1.000  [1.000, 1.000]      1.000     .501",
        "dense         .000      1.000  [1.000, 1.000]      1.000     .398",
    ]


def test_a_name_cannot_break_the_terminal() -> None:
    table = text_table(planted_summary(("a\nb\x1b[31m", "c")))
    assert "\x1b" not in table
    assert len(table.splitlines()) == 3


def test_a_shown_difference_is_put_in_plain_words() -> None:
    assert comparison_sentence(comparison()) == (
        "v2 is above v1 by +.120 recall@10 [+.081, +.160], p=.002 after Holm, 10 conversations."
    )
    below = comparison_sentence(comparison(delta=-0.05, ci_low=-0.08, ci_high=-0.02, p_holm=0.0004))
    assert below == "v2 is below v1 by -.050 recall@10 [-.080, -.020], p<.001 after Holm, 10 conversations."


def test_a_difference_that_holm_takes_away_is_not_called_shown() -> None:
    sentence = comparison_sentence(comparison(p=0.01, p_holm=0.06))
    assert sentence == (
        "No difference shown between v2 and v1: +.120 recall@10 [+.081, +.160], p=.060 after Holm, 10 conversations."
    )


def test_too_few_conversations_are_named_as_the_reason() -> None:
    sentence = comparison_sentence(comparison(p=0.0625, p_holm=0.0625, clusters=5))
    assert "with so few, no p below .0625 is possible" in sentence
    unknown = comparison_sentence(comparison(ci_low=None, ci_high=None, p=1.0, p_holm=1.0, clusters=1))
    assert "[unknown], p=1.000 after Holm, 1 conversation;" in unknown


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_report(tmp_path_factory.mktemp("reports") / "made" / "here", planted_results())


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_report(tmp_path_factory.mktemp("nasty"), nasty_results())


def test_the_report_holds_every_part(planted: tuple[Path, Path]) -> None:
    markdown_path, html_path = planted
    markdown, page = markdown_path.read_text("utf-8"), html_path.read_text("utf-8")
    for heading in (
        "Overall",
        "Evidence recall@10 by category",
        "Comparisons",
        "Latency",
        "Questions that were not scored",
        "How to reproduce",
        "Manifest",
        "Notes",
    ):
        assert f"## {heading}" in markdown
        assert f"<h2>{heading}</h2>" in page
    assert "| no evidence | 3 |" in markdown
    assert "Scored: 24 questions with gold evidence; skipped: 3." in markdown
    assert "Check out commit c0ffee." in markdown
    assert "Check that the SHA-256 of data/sample.json is ab12." in page
    assert "```\nlocigraph evaluate --config run.yaml\n```" in markdown
    # nDCG@10 with gold at ranks 1-2 is 1; at 4-5 it is (1/log2 5 + 1/log2 6) / (1 + 1/log2 3) = .501.
    # The same in all 6 conversations: p = 2^-5, and 2 * 2^-5 after Holm over 2 comparisons.
    intervals = r"\[+.499, +.499\] | \[+.499, +.499\]"
    assert f"| v2 | v1 | ndcg@10 | +.499 | {intervals} | .031 | .062 | \\<.001 | 6 |" in markdown
    assert page.count("<svg") == 4


def test_the_markdown_links_the_figures_that_were_written(planted: tuple[Path, Path]) -> None:
    markdown_path, _ = planted
    links = re.findall(r"\]\((figures/[^)]*)\)", markdown_path.read_text("utf-8"))
    assert len(links) == 4
    assert sorted(links) == sorted(f"figures/{path.name}" for path in (markdown_path.parent / "figures").iterdir())


def test_every_text_in_the_page_is_escaped(nasty: tuple[Path, Path]) -> None:
    _, html_path = nasty
    text = html_path.read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert not {"script", "img", "b"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in text
    assert "\x1b" not in text


def test_the_page_loads_nothing(planted: tuple[Path, Path]) -> None:
    _, html_path = planted
    text = html_path.read_text("utf-8")
    page = Page(text)
    assert not {"link", "script", "img", "iframe", "image"} & set(page.tags)
    for name, value in page.attributes:
        if name in {"src", "href", "xlink:href"}:
            assert value.startswith("#")
    assert "url(http" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_markup_in_the_data_stays_text_in_markdown(nasty: tuple[Path, Path]) -> None:
    markdown_path, _ = nasty
    markdown = markdown_path.read_text("utf-8")
    outside_code = re.sub(r"(?ms)^(`{3,})\n.*?\n\1$", "", markdown)
    assert "<script" not in outside_code.replace("\\<", "")
    assert r"\<b\>no\</b\> \| evidence" in markdown
    assert r"line break \| \*bold\* \[link\](http://example.org)" in markdown
    # The manifest's own fence of three backticks is enclosed by a longer one.
    assert "\n````\n{" in markdown
    table_rows = [line for line in outside_code.splitlines() if line.startswith("| v2 | v1 | recall")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table_rows} == {11}


def test_stored_results_give_the_same_report_to_the_byte(planted: tuple[Path, Path], tmp_path: Path) -> None:
    stored = json.loads(json.dumps(planted_results()))
    again = write_report(tmp_path, stored)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in planted]


def test_a_family_too_large_for_the_conversations_is_warned_of(planted: tuple[Path, Path]) -> None:
    # 6 conversations: p >= 1/32; 2 comparisons after Holm: .062.
    markdown_path, html_path = planted
    expected = "With 6 conversations and 2 comparisons the smallest p after Holm correction is .062"
    assert expected in markdown_path.read_text("utf-8")
    assert f'<p class="warning"><strong>Warning:</strong> {expected}' in html_path.read_text("utf-8")


def test_a_manifest_that_is_not_json_leaves_no_half_report(tmp_path: Path) -> None:
    results = planted_results()
    results["manifest"] = {"path": tmp_path}
    with pytest.raises(TypeError):
        write_report(tmp_path / "run", results)
    assert not (tmp_path / "run").exists()


def test_contexts_of_equal_length_have_a_table(tmp_path: Path) -> None:
    runs = [planted_run("v2", first_gold_rank=5, tokens_a_turn=99)]
    results: Results = {**planted_results(("v2",)), **summarise(planted_questions(), runs)}
    markdown, page = (path.read_text("utf-8") for path in write_report(tmp_path, results))
    assert "| strategy | recall in 500 tokens | used | recall in 1,000 tokens |" in markdown
    assert "| v2 | .500 \\[.500, .500\\] | 495 | 1.000 \\[1.000, 1.000\\] | 990 |" in markdown
    assert "<h2>Contexts of equal length</h2>" in page


def test_quality_contexts_and_time_of_all_strategies_stand_in_one_table(tmp_path: Path) -> None:
    runs = [
        planted_run(name, first_gold_rank=rank, search_ms=2.0, tokens_a_turn=99)
        for name, rank in (("v2", 5), ("dense", 1))
    ]
    results: Results = {**planted_results(("v2", "dense")), **summarise(planted_questions(), runs)}
    markdown, page = (path.read_text("utf-8") for path in write_report(tmp_path, results))
    table = markdown.split("## All strategies side by side\n")[1].split("\n## ")[0]
    head, _, v2, dense = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|"))
    categories = list(results["strategies"]["v2"]["by_category"])
    assert head[:4] == ["strategy", "recall@10", "nDCG@10", "MRR"]
    assert head[4:] == [*categories, "in 500 tokens", "in 1,000 tokens", "in 4,000 tokens", "search p50", "p95"]
    # Ranks 5 and 6: (1 / log2 6 + 1 / log2 7) / (1 + 1 / log2 3) = .456, and 1 / 5; times: 2, 4, .. 48 ms.
    assert v2 == ["v2", "1.000", ".456", ".200", *["1.000"] * len(categories), ".500", "1.000", "1.000", "25.0", "45.7"]
    assert dense[:4] == ["dense", "1.000", "1.000", "1.000"]
    assert "<h2>All strategies side by side</h2>" in page


def test_a_report_of_one_strategy_needs_no_comparison_command_or_notes(tmp_path: Path) -> None:
    results = planted_results(("v1",))
    results["manifest"] = {}
    results["corpus"]["skipped"] = {}
    del results["notes"]
    markdown_path, _ = write_report(tmp_path, results)
    markdown = markdown_path.read_text("utf-8")
    assert "## Comparisons" not in markdown
    assert "## Notes" not in markdown
    assert "The manifest does not name a command" in markdown
    assert "The manifest does not name a commit." in markdown


def test_strategies_that_were_run_are_explained_to_the_reader(tmp_path: Path) -> None:
    explanations = {"dense": "Turns by <cosine>.", "v2": "Graph embeddings.", "absent": "Was not run."}
    markdown_path, html_path = write_report(tmp_path, planted_results(), strategies=explanations)
    expected = "## Strategies\n\n- v2: Graph embeddings.\n- dense: Turns by \\<cosine\\>.\n\n## All strategies side"
    assert expected in markdown_path.read_text("utf-8")
    assert "<li>dense: Turns by &lt;cosine&gt;.</li>" in html_path.read_text("utf-8")


def test_the_first_comparison_is_the_one_that_is_drawn_by_category(tmp_path: Path) -> None:
    markdown_path, _ = write_report(tmp_path, planted_results(("a", "b", "c")))
    assert "![a minus b in recall@10;" in markdown_path.read_text("utf-8")
