"""What is shown cannot break the page that shows it."""

from __future__ import annotations

import html as library

from hypothesis import given
from hypothesis import strategies as st

from noise2text.report.html import Html, element, html, note, table, text

from .parsed import Parsed


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"))))
def test_a_parser_reads_back_what_was_shown(shown: str) -> None:
    parsed = Parsed(element("p", shown, title=shown))
    assert "".join(parsed.words.get("p", [])) == shown
    assert parsed.elements == [("p", {"title": shown})]
    assert parsed.unbalanced == []


def test_markup_is_not_escaped_again_and_agrees_with_pythons() -> None:
    hostile = "<script>alert('1' & \"2\")</script>"
    assert html(hostile) == library.escape(hostile)
    assert html(html(hostile)) == html(hostile)
    assert note(Html("<b>bold</b>")) == '<p class="quiet"><b>bold</b></p>'


def test_what_a_page_must_not_hold_is_pictured() -> None:
    assert html("a\x00b\x1b\x7f") == "a␀b␛␡"
    assert html("half \ud83d") == "half ?"


def test_texts_find_their_own_direction_and_empty_ones_are_named() -> None:
    assert text("שלום") == '<span dir="auto" class="text">שלום</span>'
    assert "empty" in text("")
    assert "␣␣" in text("  ")


def test_a_table_scrolls_and_its_cells_are_aligned_by_kind() -> None:
    parsed = Parsed(table(["name", "value"], [["<a>", 0.123456], ["b", None]], label="Some"))
    assert parsed.all("div") == [{"class": "scroll", "role": "region", "tabindex": "0", "aria-label": "Some"}]
    assert parsed.words["td"] == ["0.1235"]
    assert parsed.words["th"] == ["name", "value", "<a>", "b"]
    assert [cell.get("class") for cell in parsed.all("td")] == ["number", None]
