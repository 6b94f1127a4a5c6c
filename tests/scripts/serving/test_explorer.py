"""The explorer, used in a real browser by keyboard. Skipped where there is none: apt-get install chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from locigraph.serving.keys import Keyring
from tests.scripts.serving.servers import KEYS, bearer, serving

expect.set_options(timeout=60_000)  # a busy machine is slow, not wrong
#: Root has no sandbox and a server no graphics; the others keep the browser from calling anybody but the server.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
MARKUP = "I sold the bike for <img src=x onerror='document.title=1'><script>document.title=2</script> 5 euros."


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path  # where "playwright install chromium" puts one
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", own))), None)
        if path is None:
            pytest.skip("NOT TESTED: the explorer, since no browser is installed; run apt-get install chromium")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)  # with a new profile
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, guarded: httpx.Client) -> Iterator[Page]:
    """A page that must load nothing from elsewhere and break no rule of its own policy."""
    ana = bearer(next(iter(KEYS)))
    for day, text in enumerate([MARKUP, "Tom bought the blue bike.", "The bike was stolen last night."], start=1):
        turn = {"space": "ana", "session": f"s{day}", "speaker": "Ana", "text": text, "turn_id": f"t{day}"}
        dated = turn | {"spoken_at": f"2024-05-0{day}T10:00"}
        assert guarded.post("/v1/add", json=dated, headers=ana).status_code == 200
    page, url = browser.new_page(), str(guarded.base_url)
    loaded: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{url}/explorer")
    yield page
    page.close()
    assert [each for each in loaded if not each.startswith((url, "data:"))] == []
    assert [each for each in said if "401" not in each] == []


def give_key(page: Page) -> None:
    """Open the space of Ana with her key."""
    page.get_by_label("Key").fill(next(iter(KEYS)))
    page.get_by_label("Key").press("Tab")
    expect(page.get_by_label("Space")).to_have_value("ana")


@pytest.mark.long
def test_a_question_is_asked_looked_into_and_moved_in_time_by_keyboard(page: Page) -> None:
    press, status = page.keyboard.press, page.locator("#status")
    expect(status).to_contain_text("no valid key")
    press("Tab")  # into the field that appeared
    page.keyboard.type(next(iter(KEYS)))
    press("Tab")
    expect(page.get_by_label("Space")).to_have_value("ana")
    press("Tab")
    page.keyboard.type("Who bought the bike?")
    press("Enter")
    expect(status).to_contain_text("3 hits by v2")
    hits = page.locator("#hits button")
    expect(hits).to_have_count(3)
    expect(hits.first).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#parts")).to_contain_text("own meaning +")
    expect(page.locator("#neighbours tr").first).to_be_visible()
    assert page.locator("#drawing line").count() == page.locator("#neighbours tr").count()
    for _ in range(2):
        press("Tab")  # past the button to the slider
    expect(page.get_by_label("As known at")).to_be_focused()
    press("ArrowLeft")
    press("ArrowLeft")
    expect(page.locator("#moment")).to_contain_text("2024-05-02")
    expect(hits).to_have_count(2)
    for _ in range(2):
        press("Tab")  # past the first hit to the second
    expect(hits.nth(1)).to_be_focused()
    press("Enter")
    expect(hits.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(hits.first).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#parts")).to_contain_text("own meaning +")  # as known at that time
    page.get_by_label("As known at").focus()
    press("End")
    expect(page.locator("#moment")).to_have_text("now")
    expect(hits).to_have_count(3)


def test_a_space_is_shown_before_the_first_question_and_its_topics_ask_one(page: Page, guarded: httpx.Client) -> None:
    again = {"space": "ana", "session": "s3", "speaker": "Tom", "text": "The blue bike, again."}
    assert guarded.post("/v1/add", json=again, headers=bearer(next(iter(KEYS)))).status_code == 200
    page.get_by_label("Key").fill(next(iter(KEYS)))
    page.get_by_label("Key").press("Tab")
    expect(page.locator("#held")).to_have_text("3 sessions; turns of Ana (3), Tom (1)")
    bars = page.locator("#sessions rect")
    expect(bars).to_have_count(3)
    assert bars.nth(1).locator("title").text_content() == "s2, 2024-05-02: 1 turn"
    assert page.locator("#sessions text").all_text_contents() == ["2024-05-01", "2024-05-03"]
    assert bars.nth(2).get_attribute("height") == "70"
    page.get_by_role("button", name="blue bike 2").click()
    expect(page.get_by_label("Question")).to_have_value("What was said about blue bike?")
    expect(page.locator("#hits button")).to_have_count(4)


def test_the_neighbourhood_of_the_chosen_hit_has_the_weights_that_explain_gives(
    page: Page, guarded: httpx.Client
) -> None:
    question, ana = "Who bought the bike?", next(iter(KEYS))
    answer = guarded.post("/v1/explain", json={"space": "ana", "question": question, "top_k": 3}, headers=bearer(ana))
    turns = {turn["turn_id"]: turn for turn in answer.json()["turns"]}
    assert sum(len(turn["influences"]) for turn in turns.values()) > 3
    give_key(page)
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Ask").click()
    hits = page.locator("#hits button")
    expect(hits).to_have_count(3)
    for place in range(3):
        hits.nth(place).click()
        turn = next(found for turn_id, found in turns.items() if f"turns {turn_id}" in hits.nth(place).inner_text())
        due = [
            [near["relation"], near["description"], *(signed(near[n]) for n in ("effect", "meaning", "words", "date"))]
            for near in turn["influences"]
        ]
        rows = page.locator("#neighbours tr")
        assert [row.locator("td").all_text_contents() for row in rows.all()] == due
        names = page.locator("#drawing text").all_text_contents()[::2]
        drawn = sorted(turn["influences"], key=lambda near: -abs(near["effect"]))
        assert names == [f"{near['relation']} {signed(near['effect'])}" for near in drawn]
        lines = page.locator("#drawing line").all()[::-1]  # what comes first is drawn last, on top
        assert [line.get_attribute("class") for line in lines] == [
            "takes" if near["effect"] < 0 else "adds" for near in drawn
        ]
        effects = [abs(near["effect"]) for near in drawn]
        widths = [float(line.get_attribute("stroke-width") or 0) for line in lines]
        assert widths == pytest.approx([1 + 9 * effect / max(effects) for effect in effects])
        expect(page.locator("#parts")).to_contain_text(f"Score {turn['score']:.3f}: own meaning")


def test_the_drawing_holds_the_neighbours_of_the_largest_effects_up_or_down(page: Page) -> None:
    effects = [0.5 - 0.03 * place for place in range(13)] + [-0.9]
    shares = {"relation": "fact", "meaning": 0.0, "words": 0.0, "date": 0.0}
    near = [
        shares | {"node_id": f"n{n}", "description": f"Fact {n}", "effect": effect} for n, effect in enumerate(effects)
    ]
    parts = dict.fromkeys(("own_meaning", "own_words", "own_context", "bias"), 0.0)
    turns = [parts | {"turn_id": f"t{day}", "score": 1.0, "influences": near} for day in (1, 2, 3)]
    page.route("**/v1/explain", lambda route: route.fulfill(json={"turns": turns, "notes": []}))
    give_key(page)
    page.get_by_label("Question").fill("Who bought the bike?")
    page.get_by_label("Question").press("Enter")
    expect(page.locator("#neighbours tr")).to_have_count(14)
    drawn = page.locator("#drawing text").all_text_contents()[1::2]
    assert drawn == ["Fact 13", *(f"Fact {n}" for n in range(11))]


def signed(number: float) -> str:
    """A weight as the explorer writes it, with a sign of its own width."""
    return f"{'−' if number < 0 else '+'}{abs(number):.3f}"


def test_what_was_said_is_shown_as_it_is_and_never_run(page: Page) -> None:
    give_key(page)
    page.get_by_label("Question").fill("What was sold for 5 euros?")
    page.get_by_label("Question").press("Enter")
    expect(page.locator("#hits")).to_contain_text(MARKUP)
    assert page.locator("#hits img, #around img, main script").count() == 0
    assert page.title() == "Locigraph explorer"


def test_the_explorer_s_policy_lets_no_text_become_markup(browser: Browser, place: Path) -> None:
    with serving(place) as client:
        page = browser.new_page()
        page.goto(f"{client.base_url}/explorer")
        with pytest.raises(Error, match="TrustedHTML"):
            page.evaluate("document.body.innerHTML = '<b>x</b>'")
        page.close()


def test_the_explorer_s_files_forbid_everything_but_their_own(place: Path) -> None:
    with serving(place, keys=Keyring(KEYS)) as client:
        for path in ("/explorer", "/explorer/explorer.js", "/explorer/explorer.css"):
            answer = client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert "http:" not in answer.text.replace("http://www.w3.org/2000/svg", "")
            assert "https:" not in answer.text


def test_with_another_key_nothing_stays_of_what_the_last_one_could_see(page: Page) -> None:
    give_key(page)
    page.get_by_label("Question").fill("Who bought the bike?")
    page.get_by_label("Question").press("Enter")
    expect(page.locator("#hits button")).to_have_count(3)
    page.get_by_label("Key").fill("no key of anybody")
    page.get_by_label("Key").press("Tab")
    expect(page.locator("#status")).to_contain_text("no valid key")
    expect(page.locator("#hits button")).to_have_count(0)
    expect(page.locator("#overview")).to_be_hidden()
    assert page.locator("#space option").count() == 0


def test_the_score_of_a_hit_that_was_looked_up_is_the_sum_of_the_parts_that_are_told(page: Page) -> None:
    give_key(page)
    page.get_by_label("Question").fill("stolen")
    page.get_by_label("Question").press("Enter")
    expect(page.locator("#hits button").first).to_contain_text("The bike was stolen last night.")
    score = page.locator("#hits small").first.inner_text().split(" · ")[0]
    expect(page.locator("#parts")).to_contain_text(f"Score {score}: own meaning")
    expect(page.locator("#parts")).to_contain_text("words that were looked up +2.000")
