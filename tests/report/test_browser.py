"""A browser shows the page: nothing is wider than the screen, nothing covers anything, on a phone too."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not BROWSER, reason="there is no chromium: install it to look at pages"),
]
LOOK = """<script>
for (const each of document.querySelectorAll("details")) each.open = true;
const scrolls = element => element.closest(".scroll, svg");
const named = element => element.tagName + "." + element.className + " " + element.textContent.slice(0, 40);
const wide = [...document.body.querySelectorAll("*")].filter(element => {
  const box = element.getBoundingClientRect();
  return !scrolls(element.parentElement) && box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map(named);
const blocks = [...document.querySelectorAll("h2, h3, p, figure, .scroll, .case, summary")]
  .filter(element => !element.parentElement.closest("figure, .scroll, .case"));
const boxes = blocks.map(element => element.getBoundingClientRect());
const covered = [];
for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++)
  if (boxes[i].left < boxes[j].right - 1 && boxes[j].left < boxes[i].right - 1 &&
      boxes[i].top < boxes[j].bottom - 1 && boxes[j].top < boxes[i].bottom - 1)
    covered.push(named(blocks[i]) + " and " + named(blocks[j]));
const pictures = [...document.querySelectorAll("svg")].map(element => element.getBoundingClientRect());
const facts = {width: innerWidth, page: document.documentElement.scrollWidth, wide, covered,
  flat: pictures.filter(box => box.width < 200 || box.height < 40).length, pictures: pictures.length,
  paper: getComputedStyle(document.body).backgroundColor};
for (const slider of document.querySelectorAll(".slider")) slider.querySelector("input").click();
const visible = slider => [...slider.querySelectorAll(".frame")].map(frame => frame.offsetHeight > 0);
facts.sliders = [...document.querySelectorAll(".slider")].map(visible);
const report = top.document.createElement("pre");
report.id = "facts";
report.textContent = JSON.stringify(facts);
top.document.body.append(report);
</script>"""


def look(page: str, folder: Path, width: int, *flags: str) -> dict[str, Any]:
    """What a browser of this width says of the page, with everything opened."""
    copy = folder / "looked-at.html"
    # Chromium has no window below 500 pixels, but a frame may be as narrow as a phone.
    framed = html.escape(page.replace("</body>", LOOK + "</body>"))
    frame = f'<iframe style="width: {width}px; height: 2000px; border: 0" srcdoc="{framed}"></iframe>'
    copy.write_text(f'<!doctype html><meta charset="utf-8"><body>{frame}</body>', encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,2000", *flags]
    shown = subprocess.run(
        [*command, "--dump-dom", copy.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    facts = re.search(r'<pre id="facts">(.*?)</pre>', shown.stdout, re.DOTALL)
    assert facts is not None, shown.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(facts[1]))
    return found


@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_wider_than_the_screen_and_nothing_is_covered(
    written: str, width: int, tmp_path: Path
) -> None:
    seen = look(written, tmp_path, width)
    assert seen["width"] == width
    assert seen["page"] <= seen["width"]
    assert seen["wide"] == []
    assert seen["covered"] == []
    assert seen["pictures"] > 10
    assert seen["flat"] == 0
    assert len(seen["sliders"]) == 6  # of two runs with steps, for three sentences
    assert all(frames == [True] + [False] * (len(frames) - 1) for frames in seen["sliders"])


def test_a_dark_system_gets_a_dark_page(written: str, tmp_path: Path) -> None:
    light = look(written, tmp_path, 1200)
    dark = look(written, tmp_path, 1200, "--blink-settings=preferredColorScheme=0")
    assert light["paper"] == "rgb(253, 253, 252)"
    assert dark["paper"] == "rgb(22, 24, 28)"
