"""Build train.jsonl, valid.jsonl and test.jsonl from a folder of raw files: all three or none.

Everything is written to a draft next to the output, which is renamed at the very end: an error or Ctrl-C
leaves nothing behind, a killed process only the draft, which the next one removes. dataset.json records the
raw files (SHA-256), the processing steps and the number of pairs.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.core.files import write_folder_atomically
from noise2text.core.locks import lock_output
from noise2text.data.builders.dataset import SPLITS, Dataset, DatasetRow, PublishedSizes
from noise2text.data.builders.detokenise import (
    detokenize_rows,
    load_detokenizer,
    require_moses_languages,
)
from noise2text.data.builders.moses import MosesLoader, load_sacremoses
from noise2text.data.builders.raw_files import RawFiles, find_files
from noise2text.data.corpus import Pair, format_json_line

__all__ = ["BuildReport", "build_dataset"]

PROGRESS_INTERVAL = 1_000  # rows between two progress reports


@dataclass(frozen=True)
class BuildReport:
    """The number of pairs in each split, and of skipped lines by split and reason."""

    dataset: Dataset
    pairs: dict[str, int]
    skipped: dict[tuple[str, str], int]

    def comparable_size(self, split: str, sizes: PublishedSizes) -> int:
        """The number of pairs to compare with the published one."""
        num_skipped = sum(number for (own, _), number in self.skipped.items() if own == split)
        return self.pairs[split] + (num_skipped if sizes.before_cleaning else 0)

    def size_mismatches(self, sizes: PublishedSizes) -> list[str]:
        """One sentence for each split whose size differs from the published one."""
        what = "pairs before cleaning" if sizes.before_cleaning else "pairs"
        numbers = [(split, self.comparable_size(split, sizes), sizes.size_of(split)) for split in SPLITS]
        return [
            f"{split} has {actual:,} {what}, not the {published:,} of {sizes.reference}."
            for split, actual, published in numbers
            if actual != published
        ]

    @property
    def matching_references(self) -> list[str]:
        """The publications that report exactly these sizes."""
        return [sizes.reference for sizes in self.dataset.sizes if not self.size_mismatches(sizes)]

    @property
    def skip_reasons(self) -> dict[str, int]:
        """The number of skipped lines for each reason."""
        counts: Counter[str] = Counter()
        for (_, reason), number in self.skipped.items():
            counts[reason] += number
        return dict(counts)


def build_dataset(
    dataset: Dataset,
    raw: Path,
    *,
    out: Path,
    reverse: bool = False,
    detokenize: bool = False,
    load_moses: MosesLoader = load_sacremoses,
    progress: Callable[[int], None] = lambda rows: None,
) -> BuildReport:
    """Write the splits and dataset.json into a new folder.

    `reverse` swaps source and target; `detokenize` makes plain text of Moses tokens, after all cleaning.
    `progress` is called now and then with the number of raw lines processed so far.
    """
    files = find_files(dataset.files, raw)
    if dataset.needs_moses:
        load_moses("en")  # fail now, not after an hour, if the package is missing
    if detokenize:
        load_detokenizer(require_moses_languages(dataset)[1])
    _require_new(out)
    with lock_output(out.resolve()), write_folder_atomically(out) as draft:
        rows = dataset.read_rows(RawFiles(files, load_moses))
        rows = detokenize_rows(dataset, rows) if detokenize else rows
        report = _write_splits(draft, _report_progress(rows, progress), dataset, reverse=reverse)
        _write_metadata(draft, report, files, reverse=reverse, detokenized=detokenize)
    return report


def _require_new(out: Path) -> None:
    """Refuse a folder that is not empty or that cannot be replaced."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Problem(f"{out} already exists; choose another folder for --out.")
    if out.resolve().is_mount() or out.resolve() == Path.cwd():
        raise Problem(f"{out.resolve()} cannot be replaced by a new folder: name one in it for --out.")


def _report_progress(rows: Iterable[DatasetRow], progress: Callable[[int], None]) -> Iterator[DatasetRow]:
    number = 0
    for number, row in enumerate(rows, 1):
        yield row
        if number % PROGRESS_INTERVAL == 0:
            progress(number)
    progress(number)


def _write_splits(
    temporary: Path, rows: Iterable[DatasetRow], dataset: Dataset, *, reverse: bool
) -> BuildReport:
    pairs, skipped = dict.fromkeys(SPLITS, 0), Counter[tuple[str, str]]()
    with ExitStack() as stack:
        paths = {split: temporary / f"{split}.jsonl" for split in SPLITS}
        files = {
            split: stack.enter_context(open(path, "w", encoding="utf-8", newline="\n"))
            for split, path in paths.items()
        }
        for row in rows:
            if row.pair is None:
                skipped[row.split, row.reason] += 1
                continue
            pair = Pair(row.pair.trg, row.pair.src) if reverse else row.pair
            files[row.split].write(format_json_line(pair))
            pairs[row.split] += 1
    for split, number in pairs.items():
        if not number:
            raise Problem(
                f"The raw files of {dataset.name} contain no pairs for {split}; check that they are complete."
            )
    return BuildReport(dataset, pairs, dict(skipped))


def _write_metadata(
    temporary: Path, report: BuildReport, files: dict[str, Path], *, reverse: bool, detokenized: bool
) -> None:
    dataset = report.dataset
    metadata = {
        "name": dataset.name,
        "task": dataset.task,
        "reversed": reverse,
        "detokenised": detokenized,
        "licence": dataset.license,
        "rules": list(dataset.processing_steps),
        "pairs": report.pairs,
        "left_out": report.skip_reasons,
        "sizes_agree_with": report.matching_references,
        "sha256": {name: _sha256(path) for name, path in files.items()},
    }
    text = json.dumps(metadata, ensure_ascii=False, indent=2) + "\n"
    (temporary / "dataset.json").write_text(text, encoding="utf-8", newline="\n")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
