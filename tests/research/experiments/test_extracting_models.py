from __future__ import annotations

from dataclasses import replace

from locigraph.assembly.settings import LLMSettings, ScribeSettings
from locigraph.research.experiments.extracting_models import names_of, setup_of

HERE, THERE = "http://here/v1", "http://there/v1"
MODEL = LLMSettings(base_url=HERE, model="m", cassette="c.sqlite")


def names(*llms: LLMSettings) -> list[str]:
    return names_of([setup_of(llm) for llm in llms])


def test_models_are_named_by_themselves_where_this_suffices() -> None:
    pair = replace(MODEL, scribe=ScribeSettings(model="a"))
    assert names(MODEL, replace(MODEL, model="n"), pair) == ["m", "n", "m + a"]


def test_what_distinguishes_models_of_the_same_name_is_added() -> None:
    elsewhere = replace(MODEL, scribe=ScribeSettings(base_url=THERE))
    replayed = replace(MODEL, base_url=None, mode="replay")
    assert names(MODEL, elsewhere, replayed) == [f"m ({HERE})", f"m ({HERE} + {THERE})", "m (replay of c.sqlite)"]
    assert names(MODEL, replace(MODEL, temperature=None)) == ["m (temperature 0.0)", "m (temperature None)"]


def test_no_two_names_are_the_same_and_none_is_a_rows_for_reference() -> None:
    odd = replace(MODEL, model="m + a")
    assert len(set(names(odd, replace(MODEL, scribe=ScribeSettings(model="a"))))) == 2
    assert names(replace(MODEL, model="rules")) == [f"rules ({HERE})"]


def test_prices_timeouts_and_a_final_slash_decide_no_reply() -> None:
    dearer = replace(MODEL, base_url=f"{HERE}/", output_price=9.0, timeout_s=9.0, concurrency=1, cassette="d.sqlite")
    assert setup_of(dearer) == setup_of(MODEL)
    assert setup_of(replace(MODEL, scribe=ScribeSettings(base_url=HERE, model="m"))) == setup_of(MODEL)
