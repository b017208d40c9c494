"""A blind test as a CSV sheet that a person fills in (SeqDiffuSeq, appendix G), and its way back.

    voter, number, source, first, second, better

A row is a ballot; the person writes first, second or equal into the last column (1, 2 and = do as well). The
sheet does not say who wrote which text: the sides follow from the voter and the number, as on the page. So a
sheet is read with the same texts that it was written from, and rows that do not fit them are refused. A text
that a spreadsheet would take for a formula, such as one that begins with =, has an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from noise2text.core.errors import Problem, abbreviate
from noise2text.serving.votes import Ballot, BlindTest

__all__ = ["SheetVotes", "format_sheet", "read_sheet"]

COLUMNS = ("voter", "number", "source", "first", "second", "better")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
MAX_DIGITS = 9
ANSWERS = {"first": "first", "1": "first", "second": "second", "2": "second", "equal": "equal", "=": "equal"}


@dataclass(frozen=True)
class SheetVotes:
    """The votes that a sheet holds, and the number of rows that nobody has filled in."""

    votes: list[tuple[str, int, str]]  # voter, number of the ballot, first, second or equal
    unanswered: int


def format_sheet(test: BlindTest, voter: str, *, pairs: int) -> str:
    """The first so many ballots of a voter as CSV, with an empty column for the answers."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number in range(1, min(pairs, len(test.differing)) + 1):
        ballot = test.ballot(voter, number)
        texts = (ballot.source, ballot.first, ballot.second)
        writer.writerow([_as_cell(voter), number, *map(_as_cell, texts), ""])
    return file.getvalue()


def _as_cell(text: str) -> str:
    """The text, with an apostrophe if a spreadsheet would otherwise compute with it."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _from_cell(cell: str) -> str:
    """The text of a cell; some spreadsheets drop the apostrophe, others keep it."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA_STARTS) else cell


def read_sheet(path: Path, test: BlindTest) -> SheetVotes:
    """The answers of a sheet; a Problem if a row is not one of this test or has another answer."""
    votes, unanswered = [], 0
    for line, row in _read_rows(path):
        voter, number = _from_cell(row["voter"]), row["number"]
        if not number.isdecimal() or len(number) > MAX_DIGITS or not 1 <= int(number) <= len(test.differing):
            raise Problem(f"{path}, line {line}: there is no ballot {abbreviate(number)} in this test.")
        ballot = test.ballot(voter, int(number))
        if [_from_cell(row[name]) for name in ("source", "first", "second")] != _as_read(ballot):
            raise Problem(
                f"{path}, line {line} has other texts than ballot {number} of {voter!r}: read the sheet with "
                "the files that it was written from, and change only its last column."
            )
        answer = row["better"].strip().lower()
        if not answer:
            unanswered += 1
        elif answer not in ANSWERS:
            raise Problem(f"{path}, line {line}: better is first, second or equal, not {row['better']!r}.")
        else:
            votes.append((voter, int(number), ANSWERS[answer]))
    return SheetVotes(votes, unanswered)


def _as_read(ballot: Ballot) -> list[str]:
    """The texts of a ballot as they come back from a file, where every end of a line is the same."""
    texts = (ballot.source, ballot.first, ballot.second)
    return [_from_cell(text.replace("\r\n", "\n").replace("\r", "\n")) for text in texts]


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Each row with its line; spreadsheets may have changed the delimiter and added a byte-order mark."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} cannot be read as a sheet in UTF-8: {error}.") from error
    header = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=header.count))
    if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
        raise Problem(f"{path} is no sheet of `noise2text vote`: it has no column {missing[0]}.")
    try:
        for row in reader:
            yield reader.line_num, {name: row[name] or "" for name in COLUMNS}
    except csv.Error as error:  # such as a quotation mark without its partner
        raise Problem(f"{path}, line {reader.line_num} cannot be read as CSV: {error}.") from error
