"""A blind sheet: it gives nothing away, and what people fill in comes back as their votes."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.serving.vote_sheet import format_sheet, read_sheet
from noise2text.serving.votes import BlindTest, Item, VoteBook

ITEMS = [Item(f'source "{n}", ä', f"a; {n}\n2nd line", f"b, {n}") for n in range(30)] + [Item("s", "x", "x")]


@pytest.fixture
def test(tmp_path: Path) -> BlindTest:
    return BlindTest(ITEMS, VoteBook(tmp_path / "votes.sqlite"))


def fill(text: str, answer: dict[str, str], delimiter: str = ",") -> str:
    """The sheet after a spreadsheet: the answer of each row by the beginning of its first text."""
    rows = list(csv.reader(io.StringIO(text)))
    filled = [[*row[:-1], answer[row[3][0]]] for row in rows[1:]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([rows[0], *filled])
    return out.getvalue()


@pytest.mark.parametrize(("delimiter", "mark"), [(",", ""), (";", "\ufeff"), ("\t", "")])
def test_a_vote_counts_for_the_system_whatever_its_side(
    test: BlindTest, tmp_path: Path, delimiter: str, mark: str
) -> None:
    sheet = tmp_path / "sheet.csv"
    text = fill(format_sheet(test, "anna", pairs=20), {"a": "First ", "b": "2"}, delimiter)
    sheet.write_text(mark + text, encoding="utf-8", newline="")
    found = read_sheet(sheet, test)
    assert (len(found.votes), found.unanswered) == (20, 0)
    for vote in found.votes:
        test.vote(*vote)
    tally = test.book.tally()
    assert (tally.a, tally.b, tally.equal) == (20, 0, 0)
    assert test.book.voters() == ["anna"]
    assert test.book.tally("bert").share is None


def test_a_sheet_is_blind_random_and_without_equal_texts(test: BlindTest) -> None:
    rows = list(csv.DictReader(io.StringIO(format_sheet(test, "anna", pairs=100))))
    assert len(rows) == 30
    assert 5 <= sum(row["first"].startswith("a") for row in rows) <= 25
    assert [row["source"] for row in rows] != [item.source for item in ITEMS[:30]]
    assert {row["better"] for row in rows} == {""}
    assert format_sheet(test, "bert", pairs=100) != format_sheet(test, "anna", pairs=100)


@pytest.mark.parametrize("apostrophe", ["'", ""])
def test_a_spreadsheet_computes_nothing_from_a_text(tmp_path: Path, apostrophe: str) -> None:
    """A text such as =HYPERLINK(…) would be run by a spreadsheet, and - yes become an error."""
    items = [Item("+1", '=HYPERLINK("http://x")', "- yes"), Item("'=quoted", "@a", "b")]
    test = BlindTest(items, VoteBook(tmp_path / "votes.sqlite"))
    text = format_sheet(test, "=anna", pairs=2)
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(text.replace(",'", f",{apostrophe}"))  # some spreadsheets drop it
    assert read_sheet(sheet, test).unanswered == 2


def test_a_row_that_is_not_filled_in_is_no_vote(test: BlindTest, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(fill(format_sheet(test, "anna", pairs=30), {"a": "=", "b": ""}))
    found = read_sheet(sheet, test)
    assert found.unanswered + len(found.votes) == 30
    assert found.unanswered > 0
    assert {preferred for _, _, preferred in found.votes} == {"equal"}


def test_what_does_not_fit_is_named_with_its_line(test: BlindTest, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    text = format_sheet(test, "anna", pairs=1)
    for changed, match in [
        (text.replace("source ", "sauce "), "other texts than ballot 1 of 'anna'"),
        (text.replace("anna", "bert"), "other texts|bert"),
        (text.replace("anna,1,", "anna,31,"), "no ballot '31'"),
        (fill(text, {"a": "both", "b": "both"}), "better is first, second or equal, not 'both'"),
        ("a,b\n1,2\n", "no column voter"),
        (text.replace("anna,1,", f"anna,{'9' * 5000},"), "no ballot '999"),
        (text.replace("anna,1,", f'anna,1,"{"x" * 200_000}",'), "cannot be read as CSV: field larger"),
    ]:
        sheet.write_text(changed)
        with pytest.raises(Problem, match=match):
            read_sheet(sheet, test)
    with pytest.raises(Problem, match="cannot be read"):
        read_sheet(tmp_path / "missing.csv", test)
