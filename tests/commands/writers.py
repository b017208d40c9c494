"""The commands that write, as a function of its input and of the folder that it writes into.

The input is a folder with a corpus, a few pairs of it, a raw file and a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from noise2text.commands.compare import compare
from noise2text.commands.distill import distill
from noise2text.commands.prepare import prepare
from noise2text.data.builders.build import build_dataset
from noise2text.data.builders.dataset import Dataset, DatasetRow, make_row
from noise2text.data.builders.raw_files import RawFile, RawFiles
from noise2text.data.dates import write_dates
from noise2text.experiments.corpus_files import CorpusFiles
from noise2text.experiments.experiment import Arm, Experiment, ModelSpec
from noise2text.experiments.run_experiment import run_experiment
from noise2text.models.convert import convert_folder
from noise2text.report.report import SECTIONS, report

from ..conftest import SMALL

__all__ = ["WRITERS"]


def _silent(line: str) -> None:
    """Show nothing."""


def _synth(given: Path, out: Path) -> None:
    write_dates(out, pairs=20, seed=0)


def _prepare(given: Path, out: Path) -> None:
    files: dict[str, Any] = {name: str(given / f"{name}.jsonl") for name in ("train", "valid")}
    prepare(**files, out=out, changes={"tokenizer": "characters"}, show_line=_silent)


def _run_command(*arguments: object) -> None:
    from noise2text.cli.options import app

    if app([str(each) for each in arguments], standalone_mode=False):
        raise KeyboardInterrupt  # the exit code of Ctrl-C; anything else is an exception


def _generate(given: Path, out: Path) -> None:
    out.mkdir(exist_ok=True)
    files = ["--input", given / "few.jsonl", "--output", out / "texts.txt", "--resume"]
    _run_command("generate", given / "model", *files, "--device", "cpu", "--batch", 4)


def _distill(given: Path, out: Path) -> None:
    out.mkdir(exist_ok=True)
    distill(given / "model", input=str(given / "few.jsonl"), output=out / "pairs.jsonl", device="cpu")


def _read_rows(raw: RawFiles) -> Iterator[DatasetRow]:
    for place, text in enumerate(raw.read_texts("raw.txt")):
        yield make_row(("train", "valid", "test")[place % 3], text, text.upper())


def _data(given: Path, out: Path) -> None:
    raw = (RawFile("raw.txt", ""),)
    build_dataset(Dataset("letters", "", (), raw, (), "none", (), _read_rows), given, out=out)


def _experiment(given: Path, out: Path) -> None:
    facts: dict[str, Any] = dict.fromkeys(("paper", "table", "summary", "claim", "metric_note"), "words")
    arms = (Arm("plain", ModelSpec("difformer"), {"steps": 2, "stop_early": 0}),)
    changes = SMALL | {"optim.steps": 2, "validation_sentences": 1, "noise_factor": 2.0}
    train, valid, test = (str(given / f"{split}.jsonl") for split in ("train", "valid", "test"))
    run_experiment(
        Experiment(name="trial", arms=arms, measures=("bleu",), **facts),
        out,
        files=CorpusFiles(train, valid, test),
        changes=changes,
        sentences=4,
        device="cpu",
    )


def _page(given: Path, out: Path) -> None:
    _run_command("page", given / "model", "--input", given / "few.jsonl", "--output", out / "page.html")


def _convert(given: Path, out: Path) -> None:
    convert_folder(given / "old", out)


def _vote_sheet(given: Path, out: Path) -> None:
    files = [given / "few.jsonl", given / "raw10.txt", "--src", given / "few.jsonl"]
    (out / "sheet.csv").unlink(missing_ok=True)  # a whole sheet is never overwritten
    _run_command("vote", *files, "--votes", given / "v.sqlite", "--sheet", out / "sheet.csv", "--voter", "a")


def _compare(given: Path, out: Path) -> None:
    compare([given / "model"], test=str(given / "few.jsonl"), out=out)


def _report(given: Path, out: Path) -> None:
    report([given / "model"], out=out / "report.html", without=SECTIONS.keys() - {"summary", "settings"})


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "synth": _synth,
    "prepare": _prepare,
    "generate": _generate,
    "page": _page,
    "convert": _convert,
    "vote": _vote_sheet,
    "distill": _distill,
    "data": _data,
    "experiment": _experiment,
    "compare": _compare,
    "report": _report,
}
"""The commands by name; `export`, which is slow, has tests of its own (test_export.py, test_faults.py)."""
