"""`noise2text report`: write one HTML page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import PAIRS, DeviceOption, SeedOption, app

__all__ = ["report"]


@app.command()
def report(
    output: Annotated[Path, typer.Option(help="The HTML file to write, e.g. report.html.")],
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs or models; the first is the baseline.")
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help=f"Test pairs, by default the runs' validation pairs: {PAIRS}"),
    ] = None,
    sentences: Annotated[int, typer.Option(help="How many of the pairs to use, from the first.")] = 200,
    without: Annotated[
        str, typer.Option(metavar="NAME,…", help="Sections to leave out, e.g. candidates,embeddings.")
    ] = "",
    seed: SeedOption = 0,
    batch: Annotated[int, typer.Option(help="Sentences per batch.")] = 32,
    device: DeviceOption = None,
) -> None:
    """Write an HTML page about runs.

    It shows settings, training curves, scores, figures, denoising, and the worst and best texts.
    """
    from noise2text.commands.display import TerminalDisplay
    from noise2text.report.report import report as run
    from noise2text.report.report_data import ReportConfig

    config = ReportConfig(sentences=sentences, seed=seed, batch=batch, device=device)
    left_out = [name.strip() for name in without.split(",") if name.strip()]
    with TerminalDisplay.open() as display:
        written = run(runs or [], out=output, pairs=test, without=left_out, config=config, display=display)
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB; open it in a browser, it works offline.")
