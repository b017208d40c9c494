"""From a folder of raw files to train.jsonl, valid.jsonl and test.jsonl, all three or none.

Everything is written to a draft beside the folder, which takes its name at the very end; a mistake or Ctrl-C
leaves nothing, a kill the hidden draft. dataset.json says which raw files it was (SHA-256), what was done to
them, and how many pairs came out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import SPLITS, Dataset, Row, Sizes
from noise2text.data.builders.moses import Rules, sacremoses_rules
from noise2text.data.builders.raw_files import Raw, find_files
from noise2text.data.corpus import Pair, json_line

__all__ = ["Built", "build"]

EVERY = 1_000  # rows between two reports of progress


@dataclass(frozen=True)
class Built:
    """How many pairs each split got, and how many lines were left out of which split, for which reason."""

    dataset: Dataset
    pairs: dict[str, int]
    left_out: dict[tuple[str, str], int]

    def counted(self, split: str, sizes: Sizes) -> int:
        """The number to hold against the published one."""
        lost = sum(number for (own, _), number in self.left_out.items() if own == split)
        return self.pairs[split] + (lost if sizes.before_cleaning else 0)

    def differences(self, sizes: Sizes) -> list[str]:
        """A sentence for each split whose size is not the published one."""
        what = "pairs before cleaning" if sizes.before_cleaning else "pairs"
        numbers = [(split, self.counted(split, sizes), sizes.of(split)) for split in SPLITS]
        return [
            f"{split} has {own:,} {what}, not the {published:,} of {sizes.where}."
            for split, own, published in numbers
            if own != published
        ]

    @property
    def agrees_with(self) -> list[str]:
        """Who publishes exactly these sizes."""
        return [sizes.where for sizes in self.dataset.sizes if not self.differences(sizes)]

    @property
    def reasons(self) -> dict[str, int]:
        """How many lines were left out for each reason."""
        counts: Counter[str] = Counter()
        for (_, why), number in self.left_out.items():
            counts[why] += number
        return dict(counts)


def build(
    dataset: Dataset,
    raw: Path,
    *,
    out: Path,
    reverse: bool = False,
    rules: Rules = sacremoses_rules,
    progress: Callable[[int], None] = lambda rows: None,
) -> Built:
    """Writes the splits and dataset.json into a new folder; `reverse` swaps source and target.

    `progress` is told now and then how many lines of the raw files have been dealt with.
    """
    files = find_files(dataset.files, raw)
    if dataset.moses:
        rules("en")  # a missing package should not be found out after an hour
    try:
        with _draft(out) as draft:
            rows = dataset.rows(Raw(files, rules))
            built = _write(draft, _told(rows, progress), dataset, reverse=reverse)
            _describe(draft, built, files, reverse=reverse)
    except OSError as error:
        raise Problem(f"{out} cannot be written ({error}); choose another folder or make room.") from error
    return built


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """A folder that becomes `out` if all goes well, and else is gone."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Problem(f"{out} is there already; choose another folder for --out.")
    out = out.resolve()  # what a link names is replaced, not the link
    if out.is_mount() or out == Path.cwd():
        raise Problem(f"{out} cannot be replaced by a new folder: name one in it for --out.")
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        yield draft
        draft.chmod(0o755)
        os.replace(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _told(rows: Iterable[Row], progress: Callable[[int], None]) -> Iterator[Row]:
    number = 0
    for number, row in enumerate(rows, 1):
        yield row
        if number % EVERY == 0:
            progress(number)
    progress(number)


def _write(draft: Path, rows: Iterable[Row], dataset: Dataset, *, reverse: bool) -> Built:
    pairs, left_out = dict.fromkeys(SPLITS, 0), Counter[tuple[str, str]]()
    with ExitStack() as stack:
        paths = {split: draft / f"{split}.jsonl" for split in SPLITS}
        files = {
            split: stack.enter_context(open(path, "w", encoding="utf-8", newline="\n"))
            for split, path in paths.items()
        }
        for row in rows:
            if row.pair is None:
                left_out[row.split, row.why] += 1
                continue
            pair = Pair(row.pair.trg, row.pair.src) if reverse else row.pair
            files[row.split].write(json_line(pair))
            pairs[row.split] += 1
    for split, number in pairs.items():
        if not number:
            raise Problem(
                f"The raw files of {dataset.name} give no pair for {split}; check that they are whole."
            )
    return Built(dataset, pairs, dict(left_out))


def _describe(draft: Path, built: Built, files: dict[str, Path], *, reverse: bool) -> None:
    dataset = built.dataset
    about = {
        "name": dataset.name,
        "task": dataset.task,
        "reversed": reverse,
        "licence": dataset.licence,
        "rules": list(dataset.rules),
        "pairs": built.pairs,
        "left_out": built.reasons,
        "sizes_agree_with": built.agrees_with,
        "sha256": {name: _digest(path) for name, path in files.items()},
    }
    text = json.dumps(about, ensure_ascii=False, indent=2) + "\n"
    (draft / "dataset.json").write_text(text, encoding="utf-8", newline="\n")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
