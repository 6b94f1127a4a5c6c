from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest

from locigraph.research.evaluation.plots import (
    category_figure,
    latency_figure,
    quality_figure,
    recall_curve_figure,
    standalone,
)
from locigraph.research.evaluation.summary import summarise
from tests.research.evaluation.planted import NASTY, planted_questions, planted_run, planted_summary

NAMES = ("v2", NASTY, "v1")


def draw(names: tuple[str, ...] = NAMES) -> list[str]:
    summary = planted_summary(names)
    return [
        recall_curve_figure(summary["strategies"]),
        category_figure(summary["comparisons"][0]),
        latency_figure(summary["strategies"]),
        quality_figure(summary["strategies"]),
    ]


@pytest.fixture(scope="module")
def figures() -> list[str]:
    return draw()


def texts(svg: str) -> set[str]:
    return {text.strip() for element in ElementTree.fromstring(svg).iter() if (text := element.text or "").strip()}


def test_every_figure_is_well_formed_whatever_a_strategy_is_called(figures: list[str]) -> None:
    for svg in figures:
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert "<script" not in svg
        ElementTree.fromstring(standalone(svg).encode())


def test_names_stay_text_and_are_not_read_as_formulas() -> None:
    recall, categories, latency, quality = draw(("v2", "cost $x^2$"))
    assert {"v2", "cost $x^2$"} <= texts(recall)
    assert {"v2", "cost $x^2$"} <= texts(latency)
    assert {"v2", "cost $x^2$"} <= texts(quality)
    assert {"odd (12)", "even (12)", "all questions"} <= texts(categories)


def test_the_same_results_give_the_same_bytes(figures: list[str]) -> None:
    assert draw() == figures


def test_figures_hold_no_date_and_take_the_colour_of_the_page(figures: list[str]) -> None:
    for svg in figures:
        assert "metadata" not in svg
        assert "currentColor" in svg
        assert "#010203" not in svg


def test_figures_need_no_state_of_pyplot(figures: list[str]) -> None:
    assert figures
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_unknown_intervals_and_times_of_zero_can_be_drawn() -> None:
    questions = planted_questions()[:1]
    runs = [
        planted_run("v2", first_gold_rank=1, search_ms=0.0),
        planted_run("v1", first_gold_rank=30, search_ms=0.0),
    ]
    summary = summarise(questions, runs)
    for svg in (
        recall_curve_figure(summary["strategies"]),
        category_figure(summary["comparisons"][0]),
        latency_figure(summary["strategies"]),
    ):
        ElementTree.fromstring(svg)


def test_times_far_apart_are_drawn_on_a_logarithmic_axis() -> None:
    near = [planted_run("v2", first_gold_rank=1, search_ms=2.0)]
    far = [*near, planted_run("v1", first_gold_rank=1, search_ms=900.0)]
    label = "milliseconds per question, without query encoding"
    assert label in texts(latency_figure(summarise(planted_questions(), near)["strategies"]))
    assert label + ", log scale" in texts(latency_figure(summarise(planted_questions(), far)["strategies"]))


def test_quality_is_drawn_against_time_for_every_strategy_even_one_that_takes_none() -> None:
    runs = [planted_run("v2", first_gold_rank=1, search_ms=2.0), planted_run("v0", first_gold_rank=2, search_ms=0.0)]
    assert {"v2", "v0"} <= texts(quality_figure(summarise(planted_questions(), runs)["strategies"]))


def test_many_strategies_that_end_at_one_height_are_all_named() -> None:
    names = tuple(f"strategy {index}" for index in range(16))
    runs = [planted_run(name, first_gold_rank=1) for name in names]
    svg = recall_curve_figure(summarise(planted_questions(), runs, comparisons=[])["strategies"])
    assert set(names) <= texts(svg)


def test_the_names_of_thirty_strategies_are_all_inside_the_recall_figure() -> None:
    svg = recall_curve_figure(planted_summary(tuple(f"strategy-{number}" for number in range(30)))["strategies"])
    height = float(svg.split('viewBox="0 0 ')[1].split('"')[0].split()[1])
    places = [float(y) for y in re.findall(r'<text[^>]*? y="(-?[\d.]+)"', svg)]
    assert len(places) >= 30
    assert 6 < min(places) <= max(places) < height
