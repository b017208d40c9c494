"""`noise2text vote`: let people vote blindly between the texts of two systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noise2text.cli.options import app
from noise2text.core.errors import Problem

if TYPE_CHECKING:
    from noise2text.serving.votes import BlindTest, VoteCounts

__all__ = ["vote"]

MAX_LISTED_VOTERS = 10


@app.command()
def vote(
    a: Annotated[str, typer.Argument(metavar="A", help="The texts of system A, one per line.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The texts of system B for the same sources.")],
    src: Annotated[str, typer.Option(help="The sources, one per line.")],
    votes: Annotated[Path, typer.Option(help="The SQLite file of the votes; it is made if missing.")],
    export: Annotated[
        Path | None, typer.Option(help="Write the votes to this file of JSON Lines, and serve nothing.")
    ] = None,
    tally: Annotated[bool, typer.Option("--tally", help="Print the tally, and serve nothing.")] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Write a CSV sheet for --voter to fill in, and serve nothing.")
    ] = None,
    voter: Annotated[str, typer.Option(help="The name of the person who fills in --sheet.")] = "",
    pairs: Annotated[int, typer.Option(help="Pairs of texts on --sheet, drawn at random.", min=1)] = 100,
    filled: Annotated[
        list[Path] | None,
        typer.Option("--read-sheet", help="Record the votes of a filled sheet and print the tally."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8000,
) -> None:
    """Let people vote blindly, on a page or on a sheet: first, second or equally good."""
    from noise2text.core.files import write_text_file
    from noise2text.core.locks import lock_output
    from noise2text.data.corpus import read_sources, read_texts
    from noise2text.serving.votes import BlindTest, Item, VoteBook

    columns = [list(read_sources(src)), read_texts(a), read_texts(b)]
    if len(set(map(len, columns))) > 1:
        counts = ", ".join(str(len(column)) for column in columns)
        raise Problem(f"--src, A and B must have equally many lines, not {counts}.")
    test = BlindTest([Item(*texts) for texts in zip(*columns, strict=True)], VoteBook(votes))
    if export is not None:
        with lock_output(export):
            write_text_file(export, test.export_lines())
    if sheet is not None:
        _write_sheet(test, sheet, voter, pairs)
    for path in filled or ():
        _record_sheet(test, path)
    if tally or filled:
        _print_tally(test)
    if export is None and sheet is None and not filled and not tally:
        _serve(test, host, port)


def _write_sheet(test: BlindTest, sheet: Path, voter: str, pairs: int) -> None:
    from noise2text.core.files import write_text_file
    from noise2text.core.locks import lock_output
    from noise2text.serving.vote_sheet import format_sheet

    if not voter.strip():
        raise Problem("--sheet is for one person, who is named: give --voter NAME.")
    with lock_output(sheet):
        if sheet.exists():
            raise Problem(f"{sheet} already exists, and may be filled in: choose another file.")
        text = "\ufeff" + format_sheet(test, voter, pairs=pairs)  # the mark is for spreadsheets
        write_text_file(sheet, text)
    print(f"{sheet}: {min(pairs, len(test.differing))} pairs for {voter}; fill in first, second or equal.")


def _record_sheet(test: BlindTest, path: Path) -> None:
    from noise2text.serving.vote_sheet import read_sheet

    found = read_sheet(path, test)
    for voter, number, preferred in found.votes:
        test.vote(voter, number, preferred)
    left = f"; rows that are not filled in: {found.unanswered}" if found.unanswered else ""
    print(f"{path}: {len(found.votes)} votes{left}.")


def _print_tally(test: BlindTest) -> None:
    """The tally of each voter, where there are a few, and that of all."""
    voters = test.book.voters()
    if 1 < len(voters) <= MAX_LISTED_VOTERS:
        for each in voters:
            print(f"{each}: {_describe(test.book.tally(each))}")
    print(_describe(test.book.tally()))


def _describe(tally: VoteCounts) -> str:
    counts = f"A {tally.a}, B {tally.b}, equal {tally.equal}"
    if tally.share is None:
        return f"{counts}: no vote decides yet."
    interval = f"95 % interval {tally.low:.1%} to {tally.high:.1%}, Wilson"
    return f"{counts}: A wins {tally.share:.1%} of the votes that decide ({interval})."


def _serve(test: BlindTest, host: str, port: int) -> None:
    try:
        import uvicorn

        from noise2text.serving.server import listen
        from noise2text.serving.vote_app import build_vote_app
    except ModuleNotFoundError as error:
        raise Problem(f"Voting needs the package {error.name}: pip install 'noise2text[serve]'.") from error
    with listen(host, port) as listener:
        address = f"http://{host}:{listener.getsockname()[1]}/"
        print(f"Vote at {address} on {len(test.differing)} pairs of texts; Ctrl-C ends it.", flush=True)
        uvicorn.Server(uvicorn.Config(build_vote_app(test), log_level="warning")).run(sockets=[listener])
