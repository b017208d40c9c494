"""Two synthetic tasks: a written-out date into an ISO date, and a year into one of its days.

`dates` has one right answer per source: "sunday, 7 april 1957", "dimanche 7 avril 1957" and "7 de abril de
1957" are all 1957-04-07. Names come from Babel; the month is always spelled out, so that no source is
ambiguous, and all styles differ. The days of 1900–2099 are split first: valid and test get 500
each, which depend only on the seed and not on the number of training pairs. A training pair is one of the
other days in one of the styles: no date is in two splits, and no pair occurs twice.

`days` has many right answers per source and labels each target with its month, for guidance.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from datetime import date, timedelta
from filecmp import cmp
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.core.files import explain_write_failures, flush_folder, flush_to_disk
from noise2text.core.locks import lock_folder
from noise2text.data.corpus import Pair, write_pairs

__all__ = ["MONTHS", "STYLES", "make_date_splits", "make_day_splits", "write_dates", "write_days"]

STYLES = (  # language and Babel pattern
    ("en", "EEEE, d MMMM y"),
    ("en", "d MMMM y"),
    ("en", "MMMM d, y"),
    ("de", "EEEE, d. MMMM y"),
    ("de", "d. MMMM y"),
    ("fr", "EEEE d MMMM y"),
    ("fr", "'le' d MMMM y"),
    ("es", "EEEE, d 'de' MMMM 'de' y"),
    ("es", "d 'de' MMMM 'de' y"),
)
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
HELD_OUT_PAIRS = 500  # pairs in valid and in test, each with its own date
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


def make_date_splits(pairs: int, *, seed: int) -> dict[str, list[Pair]]:
    """The splits "train" (of `pairs` pairs), "valid" and "test" of the task `dates`, by the seed."""
    days = (LAST - FIRST).days + 1
    max_pairs = (days - 2 * HELD_OUT_PAIRS) * len(STYLES)
    if not 1 <= pairs <= max_pairs:
        raise Problem(f"{pairs} pairs of dates cannot be made; ask for 1 to {max_pairs}.")
    generator = random.Random(f"dates {seed}")  # a string, because the integers 1 and -1 give the same seed
    shuffled = generator.sample(range(days), days)
    valid, test, train = (
        shuffled[:HELD_OUT_PAIRS],
        shuffled[HELD_OUT_PAIRS : 2 * HELD_OUT_PAIRS],
        shuffled[2 * HELD_OUT_PAIRS :],
    )
    held_out = {
        "valid": [_date_pair(day, generator.randrange(len(STYLES))) for day in valid],
        "test": [_date_pair(day, generator.randrange(len(STYLES))) for day in test],
    }
    chosen = (divmod(number, len(STYLES)) for number in generator.sample(range(max_pairs), pairs))
    return {"train": [_date_pair(train[index], style) for index, style in chosen], **held_out}


def _date_pair(day: int, style: int) -> Pair:
    from babel.dates import format_date

    locale, pattern = STYLES[style]
    when = FIRST + timedelta(days=day)
    return Pair(format_date(when, pattern, locale=locale).lower(), when.isoformat())


def make_day_splits(pairs: int, *, seed: int) -> dict[str, list[Pair]]:
    """The splits of the task `days`: a year and one of its days; no day occurs twice."""
    count = (LAST - FIRST).days + 1
    max_pairs = count - 2 * HELD_OUT_PAIRS
    if not 1 <= pairs <= max_pairs:
        raise Problem(f"{pairs} pairs of days cannot be made; ask for 1 to {max_pairs}.")
    shuffled = random.Random(f"days {seed}").sample(range(count), count)
    chosen = [FIRST + timedelta(days=day) for day in shuffled[: pairs + 2 * HELD_OUT_PAIRS]]
    made = [Pair(str(when.year), when.isoformat()) for when in chosen]
    return {
        "valid": made[:HELD_OUT_PAIRS],
        "test": made[HELD_OUT_PAIRS : 2 * HELD_OUT_PAIRS],
        "train": made[2 * HELD_OUT_PAIRS :],
    }


def write_dates(out: Path, *, pairs: int, seed: int) -> None:
    """Write train.jsonl, valid.jsonl and test.jsonl of the task `dates` into the folder."""
    _write_splits(out, make_date_splits(pairs, seed=seed), write_pairs)


def write_days(out: Path, *, pairs: int, seed: int) -> None:
    """Write train.jsonl, valid.jsonl and test.jsonl of the task `days`, labeled with the months."""
    _write_splits(out, make_day_splits(pairs, seed=seed), _write_month_labeled_pairs)


def _write_splits(
    out: Path, splits: dict[str, list[Pair]], write: Callable[[Path, list[Pair]], None]
) -> None:
    files = [Path(out) / f"{name}.jsonl" for name in splits]
    draft = Path(out) / "synth.draft"
    with explain_write_failures(out), lock_folder(out):
        try:
            shutil.rmtree(draft, ignore_errors=True)  # of a killed process
            draft.mkdir()
            for file, split in zip(files, splits.values(), strict=True):
                write(draft / file.name, split)
                flush_to_disk(draft / file.name)
            for file in files:
                if file.exists() and not cmp(file, draft / file.name, shallow=False):
                    raise Problem(f"{file} already exists with other pairs: choose another folder.")
            for file in files:
                (draft / file.name).replace(file)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        flush_folder(out)


def _write_month_labeled_pairs(path: Path, pairs: list[Pair]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for pair in pairs:
            label = MONTHS[date.fromisoformat(pair.trg).month - 1]
            file.write(json.dumps({"src": pair.src, "trg": pair.trg, "label": label}) + "\n")
