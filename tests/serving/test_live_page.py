"""A real browser uses the page of a service: it types, changes settings, compares two models, and reloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from noise2text.models import Model

from .browser import WHERE, find_violations, needs_browser, open_browser, open_page
from .conftest import Serve, running
from .test_stream import Stepper

pytestmark = [pytest.mark.long, needs_browser]

TEXT = "7 april 1957"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def address(make_service: Serve, folder: Path) -> Iterator[str]:
    """The address of a service with two names for the small model."""
    with running(make_service(f"one={folder}", f"two={folder}")) as (client, _):
        yield f"{client.base_url}/"


def ask(page: Page, text: str = TEXT, **fields: object) -> None:
    """Fill the form, send it, and wait for the last step."""
    page.locator("#text").fill(text)
    if fields and not page.locator("#seed").is_visible():
        page.get_by_text("Settings").click()
    for name, value in fields.items():
        page.locator(f"#{name}").fill(str(value))
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    expect(page.locator(".stage").first).to_be_visible()
    if page.locator("#play").inner_text() == "Pause":
        page.locator("#play").click()
    page.get_by_role("slider", name="Step").press("End")


def stage(page: Page, at: int = 0) -> str:
    return page.locator(".stage").nth(at).inner_text()


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1200, "light")])
def test_a_text_becomes_a_text_and_all_is_accessible(
    browser: Browser, address: str, model: Model, width: int, theme: str
) -> None:
    with open_page(browser, address, width=width, theme=theme) as page:
        expect(page.locator("#model option")).to_have_count(2)
        assert find_violations(page) == []
        ask(page, steps=3, seed=4)
        assert stage(page) == model.generate([TEXT], steps=3, seed=4).texts[0]
        expect(page.locator(WHERE)).to_contain_text("3 of 3")
        assert find_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_settings_change_what_is_seen(browser: Browser, address: str) -> None:
    with open_page(browser, address) as page:
        ask(page, noise_beam=3)
        assert page.locator(".candidates tbody tr").count() == 3
        ask(page, noise_beam=2, length=6, template="19___{2}-___")
        assert stage(page).startswith("19")
        assert stage(page)[4] == "-"
        assert page.locator(".candidates tbody tr").count() == 2


def test_the_form_says_how_many_steps_are_taken_by_default(browser: Browser, make_service: Serve) -> None:
    with (
        running(make_service("de-en")) as (client, _),
        open_page(browser, f"{client.base_url}/", width=390) as page,
    ):
        expect(page.locator("#steps")).to_have_attribute("placeholder", "8 of 12")
        page.get_by_text("Settings").click()
        ask(page, "Danke.")
        expect(page.locator(WHERE)).to_contain_text("8 of 8")
        targets = ["summary", "#step", "fieldset label", "#play", "#actions button", ".settings select"]
        for each in page.locator(", ".join(targets)).all():  # large enough for a finger
            assert each.bounding_box()["height"] >= 24  # type: ignore[index]


def test_two_models_answer_the_same_text_and_a_link_shows_it_again(browser: Browser, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#other").select_option("two")
        ask(page, seed=7)
        assert page.locator(".result h2").all_inner_texts() == ["one", "two"]
        assert stage(page, 0) == stage(page, 1)
        page.get_by_label("estimate").check()
        page.get_by_role("slider", name="Step").press("Home")
        address_with_state, seen = page.url, page.locator("#results").inner_text()
    with open_page(browser, address_with_state) as page:
        expect(page.locator(WHERE)).to_contain_text("1 of ")
        assert page.locator("#results").inner_text() == seen
        assert page.locator("#seed").input_value() == "7"


def test_it_plays_by_itself_unless_the_reader_asked_for_less_motion(browser: Browser, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#text").fill(TEXT)
        page.locator("#text").press("Enter")
        expect(page.locator("#play")).to_have_text("Pause")
        page.emulate_media(reduced_motion="reduce")
        page.locator("#text").press("Enter")
        expect(page.locator("#play")).to_have_text("Play")
        expect(page.locator(WHERE)).to_contain_text("6 of 6")


def test_the_grid_fills_while_the_model_is_at_work(
    browser: Browser, make_service: Serve, model: Model
) -> None:
    """The model stands still after its second step: two rows are there, and no more."""
    service, stepper = make_service(), Stepper(model)
    service.pool._load_model = stepper.load
    with running(service) as (client, _), open_page(browser, f"{client.base_url}/") as page:
        page.locator("#text").fill(TEXT)
        page.locator("#text").press("Enter")
        expect(page.locator(WHERE)).to_contain_text("2 of 2 so far")
        assert stepper.steps == 2
        drafts = model.generate([TEXT], trace=True).drafts[0]
        assert page.locator(".candidates .text").all_inner_texts() == [own[1] for own in drafts]
        assert page.locator(".grid tr:visible:not(.later)").count() == 2
        expect(page.locator("#actions")).to_be_hidden()  # there is no text yet to copy or download
        expect(page.locator("#results")).to_contain_text("The model is at work")
        assert find_violations(page) == []
        busy = page.get_by_role("button", name="Generating")
        expect(busy).to_be_disabled()
        busy.press("Enter")  # asks for nothing more
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("slider", name="Step").press("Home")
        page.get_by_role("region", name="Candidates").focus()
        stepper.may_go_on.set()
        expect(page.locator(WHERE)).to_contain_text("1 of 6,")  # paused: the reader stays where he is
        expect(page.locator("#actions")).to_be_visible()
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Candidates, de-en"
        page.get_by_role("button", name="Play").click()
        expect(page.locator(WHERE)).to_contain_text("6 of 6", timeout=20_000)
        assert stage(page) == model.generate([TEXT]).texts[0]


def test_a_stream_that_breaks_is_asked_for_as_a_whole(browser: Browser, address: str, model: Model) -> None:
    with open_page(browser, address) as page:
        broken = 'event: start\ndata: {"model": "one", "settings": {}}\n\nevent: st'
        page.route("**/stream", lambda route: route.fulfill(content_type="text/event-stream", body=broken))
        ask(page)
        assert stage(page) == model.generate([TEXT]).texts[0]


def test_a_model_that_fails_midway_leaves_the_last_result(
    browser: Browser, make_service: Serve, model: Model
) -> None:
    class Failing(Stepper):
        """Fails after the second step of the second request."""

        def _stop(self, on_trace_step: Any) -> Any:
            def observe(steps: Any) -> None:
                on_trace_step(steps)
                self.steps += 1
                if self.steps == 8:
                    raise KeyError

            return observe

    service, failing = make_service(), Failing(model)
    service.pool._load_model = failing.load
    with running(service) as (client, _), open_page(browser, f"{client.base_url}/") as page:
        ask(page)
        before = page.locator("#results").inner_text()
        page.locator("#seed").fill("9")
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#error")).to_contain_text("The generation failed")
        assert page.locator("#results").inner_text() == before
        expect(page.locator("#actions")).to_be_visible()


def test_on_a_phone_what_is_played_comes_into_view(browser: Browser, address: str) -> None:
    with open_page(browser, address, width=390) as page:
        page.set_viewport_size({"width": 390, "height": 500})
        page.locator("#text").fill(TEXT)
        page.locator("#text").press("Enter")
        expect(page.locator(".stage")).to_be_in_viewport()
        expect(page.locator("#play")).to_be_in_viewport()


def test_a_text_written_before_the_models_are_known_waits_for_them(browser: Browser, address: str) -> None:
    def answer_late(route: Route) -> None:
        page.wait_for_timeout(400)
        route.continue_()

    with open_page(browser, address) as page:
        page.route("**/v1/models", answer_late)
        for is_sent in (False, True):
            page.reload(wait_until="domcontentloaded")
            page.locator("#text").fill(TEXT)
            if is_sent:
                page.locator("#text").press("Enter")
            expect(page.locator("#model option")).not_to_have_count(0)
            expect(page.locator(".result")).to_have_count(1 if is_sent else 0)


def test_on_a_phone_the_settings_are_folded(browser: Browser, address: str) -> None:
    for width in (1200, 390):
        with open_page(browser, address, width=width) as page:
            expect(page.locator("#text")).to_be_visible()
            assert page.locator("#steps").is_visible() == (width > 390)


def test_a_listener_hears_that_it_begins_then_the_text_then_only_the_error(
    browser: Browser, make_service: Serve, model: Model
) -> None:
    """What a screen reader says by itself: each change of a live region."""
    record = """() => { window.heard = []; for (const id of ["said", "error"]) new MutationObserver(
        () => window.heard.push(document.getElementById(id).textContent)
    ).observe(document.getElementById(id), { childList: true }); }"""
    with (
        running(make_service()) as (client, _),
        open_page(browser, f"{client.base_url}/", expected_error="422") as page,
    ):
        expect(page.locator("#text")).to_have_attribute("placeholder", "A sentence in German")
        page.evaluate(record)
        page.locator("#text").fill(TEXT)
        page.locator("#text").press("Enter")
        expect(page.locator(WHERE)).to_contain_text("6 of 6,", timeout=20_000)
        expect(page.locator("#play")).to_have_text("Play")
        said = f"de-en: {model.generate([TEXT]).texts[0]}"
        assert page.evaluate("window.heard") == ["The model is at work.", said]
        page.locator("#steps").fill("100000")
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#error")).to_contain_text("steps")
        *_, at_work, nothing, error = page.evaluate("window.heard")
        assert (at_work, nothing, "steps" in error) == ("The model is at work.", "", True)


def test_an_empty_text_is_not_sent(browser: Browser, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#text").fill("  ")
        page.locator("#text").press("Enter")
        expect(page.locator("#error")).to_have_text("Write a text first.")
        assert page.locator(".result").count() == 0


def test_a_service_that_has_gone_is_a_sentence(browser: Browser, address: str) -> None:
    with open_page(browser, address, expected_error="Failed to load") as page:
        ask(page)
        page.route("**/v1/**", lambda route: route.abort())
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#error")).to_contain_text("The service does not answer")


def test_a_refusal_is_a_sentence_and_the_last_result_stays(browser: Browser, address: str) -> None:
    with open_page(browser, address, expected_error="422") as page:
        ask(page, steps=3)
        before = page.locator("#results").inner_text()
        page.locator("#steps").fill("100000")
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#error")).to_contain_text("steps")
        assert page.locator("#results").inner_text() == before
        assert find_violations(page) == []


def test_a_service_with_keys_asks_for_one(
    browser: Browser, make_service: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("a-secret-key-of-the-test\n")
    with (
        running(make_service(keys=keys)) as (client, _),
        open_page(browser, f"{client.base_url}/", expected_error="401") as page,
    ):
        key = page.get_by_label("API key")
        key.fill("a-secret-key-of-the-test")
        key.press("Tab")
        expect(page.locator("#model option")).to_have_count(1)
        ask(page)
        assert "a-secret-key" not in page.url
