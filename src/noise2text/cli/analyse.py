"""`noise2text analyse`: make figures and tables of the papers for any model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noise2text.cli.folding import print_folded
from noise2text.cli.options import DeviceOption, JsonOption, SeedOption, SetOption, app
from noise2text.core.errors import Problem

if TYPE_CHECKING:
    from noise2text.analysis.finding import Finding

__all__ = ["analyse"]

MAX_ROWS_SHOWN = 40  # a longer table is only written to files


@app.command()
def analyse(
    name: Annotated[str | None, typer.Argument(help="The analysis, e.g. lengths; --list lists all.")] = None,
    models: Annotated[list[Path] | None, typer.Argument(help="Folders of models or runs, if needed.")] = None,
    hyp: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="A system's texts, one per line; may be repeated."),
    ] = None,
    test: Annotated[str | None, typer.Option(help="Test pairs: sources and references, if needed.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder for JSON, CSV, SVG and PNG files.")] = None,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the analyses and their settings.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a figure or table of the papers for your models."""
    if list_all:
        _list(as_json)
        return
    if name is None or out is None:
        raise Problem("Give an analysis and an output folder, NAME --out FOLDER; --list lists the analyses.")
    from noise2text.analysis.catalogue import find_analysis
    from noise2text.analysis.finding import write_findings
    from noise2text.analysis.inputs import Inputs
    from noise2text.commands.display import show_elapsed
    from noise2text.core.command_line import parse_assignments
    from noise2text.data.corpus import read_pairs
    from noise2text.models.shipped import find_model_folder

    analysis = find_analysis(name)
    folders = [find_model_folder(model) for model in models or []]
    _check_folders(folders, out)
    inputs = Inputs(
        models=folders,
        outputs=_read_outputs(hyp or []),
        pairs=[] if test is None else list(read_pairs(test)),
        options=parse_assignments(assignments),
        seed=seed,
        device=device,
    )
    with show_elapsed(f"analysing {name}"):
        found = analysis(inputs)
        written = write_findings(found, out)
    if as_json:
        print(json.dumps([finding.as_json() for finding in found], indent=2, ensure_ascii=False))
        return
    for finding in found:
        kinds = ", ".join(path.suffix for path in written[finding.name])
        print(f"{_page(finding)}\n{out / finding.name}: {kinds}\n")


def _list(as_json: bool) -> None:
    from noise2text.analysis.catalogue import ANALYSES
    from noise2text.core.config import describe

    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "needs": [need.name for need in each.needs],
            "paper_figure": each.paper_figure,
            "summary": each.summary,
            "settings": {
                name: {"value": value, "help": line} for name, value, line in describe(each.options)
            },
        }
        for each in ANALYSES.values()
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        needs = " and ".join(row["needs"]) or "nothing"
        print_folded(f"{row['name']}  (needs {needs}; after {row['paper_figure']})\n  {row['summary']}")
        for name, option in row["settings"].items():
            print_folded(f"    --set {name}={option['value']}  {option['help']}")


def _read_outputs(outputs: Sequence[str]) -> dict[str, list[str]]:
    """The texts of each NAME=FILE; without NAME, the file's stem is the name."""
    from noise2text.data.corpus import read_texts

    read: dict[str, list[str]] = {}
    for each in outputs:
        name, equals, path = each.partition("=")
        name, path = (name, path) if equals else (Path(each).stem, each)
        if not name or not path:
            raise Problem(f"--hyp takes NAME=FILE, not {each!r}.")
        if name in read:
            raise Problem(f"Two outputs are called {name!r}: rename one with --hyp NAME=FILE.")
        read[name] = read_texts(path)
    return read


def _check_folders(models: Sequence[Path], out: Path) -> None:
    for folder in models:
        if not folder.is_dir():
            raise Problem(f"There is no folder {folder}; check the name.")
    if out.exists() and not out.is_dir():
        raise Problem(f"{out} is a file; --out must be a folder.")


def _page(finding: Finding) -> str:
    """The title, the table if it is short, and the signature."""
    from noise2text.metrics.comparison import format_markdown_table

    columns = finding.columns
    cells = [[_cell(row.get(column)) for column in columns] for row in finding.rows]
    table = (
        format_markdown_table([columns, *cells])
        if 0 < len(cells) <= MAX_ROWS_SHOWN
        else f"({len(cells):,} rows)"
    )
    paper_figure = f" ({finding.paper_figure})" if finding.paper_figure else ""
    return f"{finding.title}{paper_figure}\n\n{table}\n\n{finding.signature}"


def _cell(value: float | int | str | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
