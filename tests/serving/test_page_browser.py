"""A real browser shows the page: it plays, slides and remembers, on a phone and in the dark, and for all."""

from __future__ import annotations

import io
import json
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageSequence
from playwright.sync_api import Browser, Page, expect

from noise2text.models.folder import load
from noise2text.serving.page_data import PageData, collect_page_data
from noise2text.serving.page_file import write_html
from noise2text.serving.result import TextResult

from .browser import WHERE, find_violations, needs_browser, open_browser, open_page

pytestmark = [pytest.mark.long, needs_browser]

STEPS = 5
TEXTS = [
    "Wo ist der Bahnhof?",
    "",
    "</script><b onclick='x'>Ich habe zwei Brüder.</b>",
    "This is English. I have two brothers.",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def data() -> PageData:
    """Three texts, each by two models; the second model is the first with fewer steps of noise."""
    model = load("de-en", device="cpu", precision="float32")
    first = collect_page_data({"de-en": model}, TEXTS, seed=0, overrides={"steps": STEPS})
    other = collect_page_data(
        {"other": model}, TEXTS, seed=0, overrides={"steps": 3, "select": "score", "noise_beam": 1}
    )
    pairs = zip(first.inputs, other.inputs, strict=True)
    return PageData(
        0, first.models + other.models, [[one, forget_confidence(two)] for (one,), (two,) in pairs]
    )


def forget_confidence(result: TextResult) -> TextResult:
    """The result as a model gives it that writes one token after another."""
    return replace(result, steps=[replace(step, confidence=[]) for step in result.steps])


@pytest.fixture(scope="module")
def address(data: PageData, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(write_html(data), encoding="utf-8")
    return path.as_uri()


def stage(page: Page, model: int = 0) -> str:
    return page.locator(".stage").nth(model).inner_text().strip()


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_has_no_accessibility_violations(
    browser: Browser, address: str, width: int, theme: str
) -> None:
    with open_page(browser, address, width=width, theme=theme) as page:
        expect(page.locator(WHERE)).to_have_text(f"{STEPS} of {STEPS}, time 0.00")
        assert find_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(253, 253, 252)", "dark": "rgb(22, 24, 28)"}[theme]


def test_the_slider_moves_grid_text_and_candidates_by_keyboard(
    browser: Browser, address: str, data: PageData
) -> None:
    result = data.inputs[0][0]
    with open_page(browser, address) as page:
        assert stage(page) == result.text
        page.get_by_role("slider", name="Step").press("Home")
        expect(page.locator(WHERE)).to_contain_text(f"1 of {STEPS}")
        assert page.locator(".stage").first.locator(".token").all_inner_texts() == [
            token.strip() for token in result.steps[0].noisy_tokens
        ]
        assert page.locator(".grid").first.locator("tr:visible:not(.later)").count() == 1
        drafts = page.locator(".candidates").first.locator(".text").all_inner_texts()
        assert drafts == [candidate.drafts[0] for candidate in result.candidates]
        page.get_by_role("slider", name="Step").press("ArrowRight")
        expect(page.locator(WHERE)).to_contain_text(f"2 of {STEPS}")
        page.get_by_label("estimate").check()
        assert stage(page) == result.steps[1].text
        expect(page.locator("#said")).to_contain_text(result.steps[1].text)


def test_a_listener_learns_what_the_colors_show(browser: Browser, address: str, data: PageData) -> None:
    steps = data.inputs[0][0].steps
    tokens, confidence = len(steps[-1].tokens), sum(steps[-1].confidence) / len(steps[-1].confidence)
    with open_page(browser, address) as page:
        grid = page.get_by_role("region", name="Tokens at each step, de-en")
        last = (
            f"Step {STEPS} with {tokens} of {tokens} tokens final, mean confidence {100 * confidence:.0f} %"
        )
        expect(grid.get_by_role("rowheader", name=last)).to_have_count(1)
        now = grid.locator("[aria-current=step] th")
        assert now.inner_text().split()[:2] == ["Step", str(STEPS)]
        page.get_by_role("slider", name="Step").press("Home")
        assert now.inner_text().split()[:2] == ["Step", "1"]
        noise = " ".join(token.strip() for token in steps[0].noisy_tokens)
        expect(page.locator("#said")).to_contain_text(f"de-en: {noise}")
        chosen = f"{data.inputs[0][0].chosen + 1} chosen"  # type: ignore[operator]
        assert page.get_by_role("rowheader", name=chosen, exact=True).count() >= 2  # also in the heat map


def test_it_plays_to_the_end_and_can_be_paused(browser: Browser, address: str, data: PageData) -> None:
    with open_page(browser, address) as page:
        page.get_by_role("button", name="Play").press("Enter")
        expect(page.locator("#play")).to_have_text("Pause")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#play")).to_have_text("Play")
        page.get_by_role("button", name="Play").click()
        expect(page.locator(WHERE)).to_contain_text(f"{STEPS} of {STEPS}", timeout=20_000)
        expect(page.locator("#play")).to_have_text("Play")
        assert stage(page) == data.inputs[0][0].text


def test_two_models_are_side_by_side_and_the_choice_is_explained(
    browser: Browser, address: str, data: PageData
) -> None:
    with open_page(browser, address) as page:
        assert page.locator(".result h2").all_inner_texts() == ["de-en", "other"]
        assert [stage(page, model) for model in (0, 1)] == [result.text for result in data.inputs[0]]
        first, second = (page.locator(".result").nth(model) for model in (0, 1))
        assert first.bounding_box()["y"] == second.bounding_box()["y"]  # type: ignore[index]
        expect(first).to_contain_text("chosen because it agrees most with all candidates")
        expect(second).to_contain_text("does not compare candidates")
        candidates = len(data.inputs[0][0].candidates)
        assert first.locator(".heat td:not(:empty)").count() == candidates**2
        assert second.locator(".heat").count() == 0
        assert first.locator(".stage .token.known").count() == len(data.inputs[0][0].steps[-1].tokens)
        assert second.locator(".stage .token.known").count() == 0
        expect(first.locator(".legend")).to_be_visible()
        expect(second.locator(".legend")).to_be_hidden()
        assert second.locator(".stage .token").first.get_attribute("title") == "final token"


def test_a_text_of_two_sentences_reads_as_one_and_is_warned_about(
    browser: Browser, address: str, data: PageData
) -> None:
    """The tokens between sentences and those that write nothing do not show in the running text."""
    with open_page(browser, f"{address}#input=3") as page:
        assert stage(page) == data.inputs[2][0].text
        expect(page.locator(".warning").first).to_have_text(data.inputs[2][0].warnings[0])
        expect(page.locator(".result").first).to_contain_text("the best candidates of the parts of the text")


def test_candidates_that_were_left_out_are_named(browser: Browser, address: str) -> None:
    """A rule gives no utility to candidates that it leaves out, as those with other numbers."""
    candidates = [{"text": text} for text in ("a", "b", "c")]
    result = {"chosen": 1, "candidates": candidates, "utilities": [[0, 0, 0], [0, 90, 30], [0, 20, 80]]}
    with open_page(browser, address) as page:
        said = page.evaluate("(result) => explainChoice(result, 'faithful|weighted-mbr')", result)
    assert said == (
        "Candidate 2 was chosen because it agrees most with all candidates, weighted by likelihood: its mean "
        "utility is 40.0. The next best text has 33.3. Left out before: 1."
    )


def test_a_reload_shows_the_same(browser: Browser, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#input").select_option(index=1)
        page.get_by_label("estimate").check()
        page.get_by_role("slider", name="Step").press("Home")
        expect(page).to_have_url(re.compile(r"#input=2&step=1&view=estimate$"))
        shown = page.locator("#results").inner_text()
        page.reload()
        assert page.locator("#results").inner_text() == shown
        assert page.get_by_label("estimate").is_checked()
        assert page.locator(".stage b").count() == 0


def test_downloads_are_the_picture_and_the_data(
    browser: Browser, address: str, data: PageData, tmp_path: Path
) -> None:
    results = data.inputs[1]
    with open_page(browser, f"{address}#input=2") as page:
        for button, name in (("Download SVG", "picture.svg"), ("Download JSON", "result.json")):
            with page.expect_download() as saved:
                page.get_by_role("button", name=button).click()
            saved.value.save_as(tmp_path / name)
    picture = ElementTree.parse(tmp_path / "picture.svg")
    name = "{http://www.w3.org/2000/svg}"
    words = [each.text for each in picture.iter(f"{name}text")]
    assert words[0] == results[0].source
    assert {"de-en", "other"} < set(words)
    for result, grid in zip(results, picture.iter(f"{name}g"), strict=True):
        last = [token.strip() or ("␣" if token else None) for token in result.steps[-1].tokens]
        assert [each.text for each in grid.iter(f"{name}text")][-len(last) :] == last
    saved_data = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert [each["text"] for each in saved_data["results"]] == [each.text for each in data.inputs[1]]


def test_the_gif_has_a_frame_for_each_step(browser: Browser, address: str, tmp_path: Path) -> None:
    """Pillow, which did not write it, reads it."""
    with open_page(browser, address) as page:
        for name in ("Download SVG", "Download GIF"):
            with page.expect_download() as waiting:
                page.get_by_role("button", name=name).click()
            waiting.value.save_as(tmp_path / waiting.value.suggested_filename)
    size = ElementTree.parse(tmp_path / "denoising.svg").getroot().attrib
    with Image.open(tmp_path / "denoising.gif") as picture:
        assert picture.size == (int(size["width"]), int(size["height"]))
        frames = [each.convert("L") for each in ImageSequence.Iterator(picture)]
    assert len(frames) == STEPS
    ink = [sum(frame.histogram()[:200]) for frame in frames]
    assert ink == sorted(set(ink))  # each step adds a row
    rows = frames[-1].resize((1, frames[-1].height), Image.Resampling.BOX).tobytes()
    assert rows[-1] > 250  # the paper is white


@pytest.mark.parametrize("colors", [1, 2, 250])
def test_pixels_survive_the_compression(browser: Browser, address: str, tmp_path: Path, colors: int) -> None:
    """Enough random pixels to fill the table of sequences several times, and of every length of code."""
    draw = random.Random(colors)
    frames = [[draw.randrange(colors) for _ in range(37 * 400)] for _ in range(2)]
    palette = [[n, 255 - n, n // 2] for n in range(256)]
    with open_page(browser, address) as page:
        script = "([p, f]) => [...encodeGif(37, 400, p, f.map((pixels) => ({ pixels, milliseconds: 50 })))]"
        (tmp_path / "x.gif").write_bytes(bytes(page.evaluate(script, [palette, frames])))
        for length in (1, 2, 5, 257, 4000):  # every end of the stream
            short = page.evaluate(script.replace("37, 400", f"{length}, 1"), [palette, [frames[0][:length]]])
            with Image.open(io.BytesIO(bytes(short))) as line:
                assert list(line.convert("RGB").tobytes()[::3]) == frames[0][:length]
    with Image.open(tmp_path / "x.gif") as picture:
        for frame, pixels in zip(ImageSequence.Iterator(picture), frames, strict=True):
            assert list(frame.convert("RGB").tobytes()[::3]) == pixels
