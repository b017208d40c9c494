"""`noise2text vote`."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

from noise2text.serving.votes import BlindTest, Item, VoteBook

from .conftest import Outcome

Run = Callable[..., Outcome]


def write(folder: Path) -> list[Path]:
    files = [folder / name for name in ("a.txt", "b.txt", "src.txt")]
    for file, texts in zip(files, (["x", "y"], ["x", "z"], ["s", "t"]), strict=True):
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return files


def test_the_tally_and_the_export_come_from_the_file(run: Run, tmp_path: Path) -> None:
    a, b, src = write(tmp_path)
    votes, out = tmp_path / "votes.sqlite", tmp_path / "votes.jsonl"
    options = (a, b, "--src", src, "--votes", votes)
    assert run("vote", *options, "--tally").out == "A 0, B 0, equal 0: no vote decides yet.\n"
    test = BlindTest([Item("s", "x", "x"), Item("t", "y", "z")], VoteBook(votes))
    test.vote("someone", 1, "first" if test.ballot("someone", 1).first == "z" else "second")
    done = run("vote", *options, "--tally", "--export", out)
    assert done.out.startswith(
        "A 0, B 1, equal 0: A wins 0.0% of the votes that decide (95 % interval 0.0% to"
    )
    (line,) = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    assert (line["source"], line["preferred"]) == ("t", "b")


def test_files_of_unequal_lengths_are_named(run: Run, tmp_path: Path) -> None:
    a, b, src = write(tmp_path)
    src.write_text("s\n")
    done = run("vote", a, b, "--src", src, "--votes", tmp_path / "votes.sqlite")
    assert done.err == "noise2text: --src, A and B must have equally many lines, not 1, 2, 2.\n"


def test_an_address_that_is_taken_is_one_sentence(run: Run, tmp_path: Path) -> None:
    a, b, src = write(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("vote", a, b, "--src", src, "--votes", tmp_path / "votes.sqlite", "--port", port)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert f"port {port}" in done.err


def test_a_sheet_goes_out_and_comes_back(run: Run, tmp_path: Path) -> None:
    a, b, src = write(tmp_path)
    sheet = tmp_path / "sheet.csv"
    options = (a, b, "--src", src, "--votes", tmp_path / "votes.sqlite")
    assert "give --voter NAME" in run("vote", *options, "--sheet", sheet).err
    done = run("vote", *options, "--sheet", sheet, "--voter", "Anna")
    assert done.out == f"{sheet}: 1 pairs for Anna; fill in first, second or equal.\n"
    assert "already exists" in run("vote", *options, "--sheet", sheet, "--voter", "Anna").err
    header, row = sheet.read_text(encoding="utf-8-sig").splitlines()
    assert header == "voter,number,source,first,second,better"
    winner = "A 1, B 0" if row.split(",")[3] == "y" else "A 0, B 1"
    sheet.write_text(f"{header}\n{row}first\n")
    done = run("vote", *options, "--read-sheet", sheet)
    assert done.out.startswith(f"{sheet}: 1 votes.\n{winner}, equal 0: A wins")
