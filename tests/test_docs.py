"""The commands, files and numbers in the documents must exist and be up to date."""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest

from locigraph.scripts.command_table import COMMANDS
from tests import api_page, filled, model_cards, record_tables
from tests.packages import PACKAGES, ROOT

DOCUMENTS = sorted(
    [ROOT / "README.md", *(path for part in ("docs", "checkpoints", "clients") for path in (ROOT / part).rglob("*.md"))]
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_files_named_in_a_document_exist(document: Path) -> None:
    text = document.read_text()
    for command in re.findall(r"^\s*locigraph (\w+)", text, flags=re.MULTILINE):
        assert command in COMMANDS
    for path in re.findall(
        r"(?<![\w/])(?:configs|docs|tests|locigraph|kg|gnn|retrieval|training|scripts|consolidation|benchmarks)/[\w/.-]+\.\w+",
        text,
    ):
        assert (ROOT / path).exists(), f"{document.name} names {path}"
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make (\w+)`", text):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if each != api_page.PAGE], ids=lambda p: str(p.relative_to(ROOT))
)
def test_what_code_in_a_document_imports_from_this_project_exists(document: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL):
        for statement in ast.walk(ast.parse(block)):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("locigraph"):
                for each in statement.names:
                    assert hasattr(import_module(statement.module or ""), each.name), f"{document.name}: {each.name}"


def _words(*documents: Path) -> int:
    return sum(len(document.read_text().split()) for document in documents)


@pytest.mark.parametrize(
    ("document", "most"), [("README.md", 900), ("CHANGELOG.md", 1_500), ("docs/architecture.md", 2_500)]
)
def test_a_document_that_all_read_is_short(document: str, most: int) -> None:
    assert _words(ROOT / document) <= most


def test_all_documents_but_the_page_of_the_api_can_be_read_in_two_hours() -> None:
    assert _words(*({*(ROOT / "docs").rglob("*.md")} - {api_page.PAGE})) <= 30_000


def _headings(document: Path) -> set[str]:
    """The names by which links lead to the headings of a document, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_in_a_document_lead_to_files_and_headings_that_exist(document: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
        file, _, heading = link.partition("#")
        target = document.parent / file if file else document
        assert target.exists(), f"{document.name} links to {link}"
        assert not heading or heading in _headings(target), f"{document.name} links to {link}"


def test_the_page_of_the_public_api_is_that_of_its_docstrings() -> None:
    assert api_page.PAGE.read_text() == api_page.page(), "run python -m tests.api_page"


def test_attributes_that_are_described_together_stand_in_the_page_each_as_a_name() -> None:
    lines = api_page._markdown(
        "A sum.\n\nAttributes:\n    one, other: Its parts.\n        They may be 0.\n    whole: Their sum."
    )
    assert lines.splitlines()[-3:] == ["- `one`, `other`: Its parts.", "  They may be 0.", "- `whole`: Their sum."]


@pytest.mark.parametrize("card", model_cards.CARDS, ids=lambda p: p.parent.name)
def test_a_model_card_has_the_fingerprint_of_its_manifest(card: Path) -> None:
    assert f"Fingerprint `{json.loads((card.parent / 'manifest.json').read_text())['version']}`" in card.read_text()


@pytest.mark.parametrize("document", filled.DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_tables_and_model_cards_have_the_numbers_of_their_records_and_manifests(document: Path) -> None:
    assert "<!-- filled: " in document.read_text()
    assert document.read_text() == filled.filled(document), "run python -m tests.filled"


def test_no_document_has_a_filled_part_that_is_not_generated() -> None:
    marked = {each for each in DOCUMENTS if "<!-- filled" in each.read_text()}
    assert marked == {*filled.DOCUMENTS}


def test_a_stale_number_in_a_table_is_replaced_and_the_text_around_it_is_kept(tmp_path: Path) -> None:
    stale = tmp_path / "page.md"
    stale.write_text("Before.\n<!-- filled: pretraining pretraining -->\n| 0 | .1 |\n<!-- /filled -->\nAfter.\n")
    made = filled.filled(stale)
    assert made.startswith("Before.\n<!-- filled: pretraining pretraining -->\n\n| graph | conversations with")
    assert made.endswith("|\n\n<!-- /filled -->\nAfter.\n")
    assert "| recorded | 0 | .806 / .681 | .823 / .686 | +.017 (p .002) |" in made


def test_questions_whose_evidence_was_learnt_do_not_count_in_a_table() -> None:
    kept = record_tables.unlearnt("longmemeval-248-folds")
    assert len(kept) == 244 - 65
    shown = record_tables.by_kind("longmemeval-248-folds", "v2-zero=v2-zero")
    means = (f"{record_tables.means_of(kept, 'v2-zero')[metric]:.3f}"[1:] for metric in ("recall@10", "ndcg@10"))
    assert f"| all {len(kept)} | {' / '.join(means)} |" in shown


def test_every_record_is_named_in_the_page_of_records() -> None:
    named = re.findall(r"`([^`\s]+)`", (ROOT / "docs" / "results" / "README.md").read_text())
    records = (each.name for each in (ROOT / "docs" / "results").glob("*.json"))
    assert [record for record in records if not any(fnmatch(record, pattern) for pattern in named)] == []


def test_a_mark_of_no_table_is_named_with_the_tables_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- filled: summery -->\n<!-- /filled -->\n")
    with pytest.raises(ValueError, match=r"page\.md: unknown table 'summery'; choose one of card, locomo,"):
        filled.filled(tmp_path / "page.md")


def test_no_benchmark_id_or_machine_path_is_in_library_source() -> None:
    for folder in PACKAGES.values():
        for source in folder.rglob("*.py"):
            text = source.read_text()
            assert not re.search(
                r"\bconv-\d\d\b|\bCaroline\b|\bMelanie\b\W(?! for)", text.replace('"Mel" for Melanie', "")
            ), source
            assert not re.search(r"[\"' ]/(?:home|root|tmp|work)/", text), source
