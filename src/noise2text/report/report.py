"""The report: an HTML page of sections about runs.

    folders → collect_report_data (generate once) → sections → page

A section is a function from the data to a Section, or to None if it does not apply. Each can be left out by
its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from noise2text.commands.display import Display, SilentDisplay
from noise2text.core.errors import Problem, suggest
from noise2text.core.files import write_text_file
from noise2text.core.locks import lock_output
from noise2text.core.version import __version__
from noise2text.models.shipped import find_model_folder
from noise2text.report.cases import show_cases
from noise2text.report.denoising import show_denoising
from noise2text.report.figures import FIGURES
from noise2text.report.html import Section, build_page, note
from noise2text.report.report_data import (
    ReportConfig,
    ReportData,
    collect_report_data,
    count_progress_steps,
    find_validation_pairs,
    first_pairs,
)
from noise2text.report.scores import show_differences, show_scores
from noise2text.report.settings import show_settings
from noise2text.report.summary import summarize
from noise2text.report.training import show_training

__all__ = ["SECTIONS", "report"]

SECTIONS: Mapping[str, Callable[[ReportData], Section | None]] = {
    "summary": summarize,
    "traces": show_denoising,
    "scores": show_scores,
    "differences": show_differences,
    "cases": show_cases,
    "curves": show_training,
    **{figure.name: figure for figure in FIGURES},
    "settings": show_settings,
}
"""The sections in order, by name."""


def report(
    folders: Sequence[Path],
    *,
    out: Path,
    pairs: str | None = None,
    without: Collection[str] = (),
    config: ReportConfig | None = None,
    display: Display | None = None,
) -> Path:
    """Write the page of these runs; `pairs` are those that the runs were validated on unless given."""
    display, config = display or SilentDisplay(), config or ReportConfig()
    folders = [find_model_folder(folder) for folder in folders]
    _check(folders, out, without)
    wanted = {name: make for name, make in SECTIONS.items() if name not in without}
    with lock_output(out):
        return _write_report(folders, out, pairs, wanted, config, display)


def _write_report(
    folders: Sequence[Path],
    out: Path,
    pairs: str | None,
    wanted: Mapping[str, Callable[[ReportData], Section | None]],
    config: ReportConfig,
    display: Display,
) -> Path:
    """Generate the texts, make the sections and write the page."""
    file = pairs or find_validation_pairs(folders)
    chosen = first_pairs(file, config.sentences)
    advance = _counter(display, len(folders) * count_progress_steps(len(chosen), config) + len(wanted))
    data = collect_report_data(folders, chosen, file=Path(file).name, config=config, advance=advance)
    sections = []
    for name, make in wanted.items():
        sections.append(make(data))
        advance(name)
    write_text_file(out, _page(data, [each for each in sections if each is not None]))
    return out


def _counter(display: Display, total: int) -> Callable[[str], None]:
    """A function that reports that one of `total` steps is done."""
    display.start(total)
    numbers = count(1)
    return lambda summary: display.progress(next(numbers), summary)


def _check(folders: Sequence[Path], out: Path, without: Collection[str]) -> None:
    """Raise a Problem about the arguments before any work."""
    if not folders:
        raise Problem("There is nothing to report on: give the folder of a run.")
    for folder in folders:
        if not os.path.isdir(folder):  # also false without permission
            raise Problem(f"There is no folder {folder}; check the name.")
    for name in without:
        if name not in SECTIONS:
            raise Problem(f"A report has no section {name!r}; {suggest(name, SECTIONS)}")
    if out.is_dir():
        raise Problem(f"{out} is a folder; --output must be a file, such as {out / 'report.html'}.")
    if find_spec("matplotlib") is None:
        raise Problem("A report needs the package matplotlib: pip install 'noise2text[report]'.")


def _page(data: ReportData, sections: Sequence[Section]) -> str:
    names = ", ".join(each.name for each in data.runs)
    facts = f"{data.describe_count()} of {data.file}, seed {data.config.seed}"
    return build_page(f"Report on {names}", note(f"{facts}; made by noise2text {__version__}."), sections)
