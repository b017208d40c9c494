"""A real browser votes: by keyboard, with a reload in between, up to the tally; and it is accessible."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from noise2text.serving.vote_app import build_vote_app
from noise2text.serving.votes import BlindTest, Item, VoteBook

from .browser import find_violations, needs_browser, open_browser, open_page

ITEMS = [Item(f"Quelle {n}", f"A <b>{n}</b>", f"B {n}") for n in range(3)]


@pytest.fixture
def blind_test(tmp_path: Path) -> BlindTest:
    return BlindTest(ITEMS, VoteBook(tmp_path / "votes.sqlite"))


@pytest.fixture
def address(blind_test: BlindTest) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(build_vote_app(blind_test), log_level="warning"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(30)


@pytest.mark.long
@needs_browser
def test_a_voter_goes_through_all_ballots(blind_test: BlindTest, address: str) -> None:
    with open_browser() as browser, open_page(browser, address, width=390, theme="dark") as page:
        expect(page.locator("#progress")).to_have_text("1 of 3")
        assert find_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for number in range(1, 4):
            expect(page.locator("#progress")).to_have_text(f"{number} of 3")
            side = "First" if page.locator("#first").inner_text().startswith("A <b>") else "Second"
            page.get_by_role("button", name=f"{side} is better").press("Enter")
            if number == 1:
                expect(page.locator("#progress")).to_have_text("2 of 3")
                source = page.locator("#source").inner_text()
                expect(page.get_by_role("button", name=f"{side} is better")).to_be_focused()
                expect(page.get_by_role("status")).to_contain_text(f"2 of 3. Source: {source} First: ")
                page.reload()
                expect(page.locator("#source")).to_have_text(source)
        expect(page.get_by_role("heading", name="Thank you")).to_be_focused()
        expect(page.locator("#tally")).to_contain_text("3 for A, 0 for B, 0 equal")
        expect(page.locator("#tally")).to_contain_text(re.compile(r"43\.\d % to 100\.0 %"))
        assert find_violations(page) == []
    assert blind_test.book.tally().a == 3


def test_the_app_answers_mistakes_with_a_sentence_and_hides_who_wrote_what(blind_test: BlindTest) -> None:
    client = TestClient(build_vote_app(blind_test))
    assert client.get("/v1/ballots/9", params={"voter": "v"}).json() == {
        "error": "There are ballots from 1 to 3, not 9."
    }
    wrong = client.post("/v1/votes", json={"voter": "v", "number": 1, "preferred": "both"})
    assert wrong.status_code == 422
    client.post("/v1/votes", json={"voter": "v", "number": 1, "preferred": "equal"})
    assert client.get("/v1/tally").json()["equal"] == 1
    huge = client.post("/v1/votes", json={"voter": "v" * 5000, "number": 1, "preferred": "equal"})
    assert (huge.status_code, list(huge.json())) == (413, ["error"])
    ballot = client.get("/v1/ballots/1", params={"voter": "v"}).json()
    assert set(ballot) == {"number", "total", "source", "first", "second"}  # nothing says who wrote what
