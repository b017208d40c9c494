"""Every source has exactly one right target, and no date is in two splits."""

import re
from datetime import date
from pathlib import Path

import pytest
from babel import Locale
from babel.dates import get_day_names, get_month_names

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair, read_labeled, read_pairs
from noise2text.data.dates import (
    FIRST,
    LAST,
    STYLES,
    _date_pair,
    make_date_splits,
    make_day_splits,
    write_dates,
    write_days,
)

LANGUAGES = sorted({language for language, _ in STYLES})
MONTHS = {
    (language, name.lower()): month
    for language in LANGUAGES
    for month, name in get_month_names("wide", locale=Locale(language)).items()
}
WEEKDAYS = {
    name.lower(): weekday
    for language in LANGUAGES
    for weekday, name in get_day_names("wide", locale=Locale(language)).items()
}


def reading(source: str) -> str:
    """The ISO date that a reader makes of a source: a month's name, a year, a day, perhaps a weekday."""
    words = re.findall(r"\w+", source)
    [month] = {month for (_, name), month in MONTHS.items() if name in words}
    [year] = [int(word) for word in words if word.isdigit() and len(word) == 4]
    [day] = [int(word) for word in words if word.isdigit() and len(word) <= 2]
    when = date(year, month, day)
    assert all(when.weekday() == WEEKDAYS[word] for word in words if word in WEEKDAYS)
    return when.isoformat()


SPLITS = make_date_splits(3000, seed=0)


def test_every_source_reads_as_its_target() -> None:
    for split in SPLITS.values():
        for pair in split:
            assert reading(pair.src) == pair.trg
            assert pair.src == pair.src.lower()
            assert "1900-01-01" <= pair.trg <= "2099-12-31"


def test_a_month_s_name_means_one_month() -> None:
    assert len({(name, month) for (_, name), month in MONTHS.items()}) == len({name for _, name in MONTHS})


def test_every_style_and_language_occurs() -> None:
    assert 3 <= len(LANGUAGES) <= 4
    names = re.compile(rf"\b({'|'.join({name for _, name in MONTHS} | WEEKDAYS.keys())})\b")
    shapes = {re.sub(r"\d+", "0", names.sub("name", pair.src)) for pair in SPLITS["train"]}
    assert len(shapes) == len(STYLES)
    languages = {language for language, name in MONTHS for pair in SPLITS["train"] if name in pair.src}
    assert sorted(languages) == LANGUAGES
    assert _date_pair((date(1957, 4, 7) - FIRST).days, 0) == Pair("sunday, 7 april 1957", "1957-04-07")


def test_styles_never_write_a_date_alike() -> None:
    for day in range(0, (LAST - FIRST).days + 1, 13):
        assert len({_date_pair(day, style).src for style in range(len(STYLES))}) == len(STYLES)


@pytest.mark.parametrize("pairs", [1, 3000, 100_000])
def test_splits_share_no_date_and_no_pair_occurs_twice(pairs: int) -> None:
    splits = make_date_splits(pairs, seed=1)
    assert [len(splits[name]) for name in ("train", "valid", "test")] == [pairs, 500, 500]
    seen = [{pair.trg for pair in split} for split in splits.values()]
    assert sum(map(len, seen)) == len(set.union(*seen))
    assert len(set(splits["train"])) == pairs
    assert [len({pair.trg for pair in splits[name]}) for name in ("valid", "test")] == [500, 500]


def test_the_seed_alone_decides() -> None:
    assert make_date_splits(3000, seed=0) == SPLITS
    for seed in (1, -1, 2**70):
        other = make_date_splits(300, seed=seed)
        assert all(other[name] != SPLITS[name][: len(other[name])] for name in SPLITS)
    assert make_date_splits(10, seed=1) != make_date_splits(10, seed=-1)
    fewer = make_date_splits(10, seed=0)
    assert (fewer["valid"], fewer["test"]) == (SPLITS["valid"], SPLITS["test"])


@pytest.mark.parametrize("pairs", [0, -1, 72_049 * len(STYLES) + 1])
def test_a_number_that_cannot_be_made_is_refused(pairs: int) -> None:
    with pytest.raises(Problem, match=f"1 to {72_049 * len(STYLES)}"):
        make_date_splits(pairs, seed=0)


def test_what_is_written_are_the_splits(tmp_path: Path) -> None:
    write_dates(tmp_path / "a" / "b", pairs=20, seed=3)
    written = {path.stem: list(read_pairs(str(path))) for path in (tmp_path / "a" / "b").iterdir()}
    assert written == make_date_splits(20, seed=3)
    first = (tmp_path / "a" / "b" / "train.jsonl").read_bytes()
    write_dates(tmp_path / "a" / "b", pairs=20, seed=3)
    assert (tmp_path / "a" / "b" / "train.jsonl").read_bytes() == first
    with pytest.raises(Problem, match=r"train\.jsonl already exists with other pairs"):
        write_dates(tmp_path / "a" / "b", pairs=10, seed=3)
    assert (tmp_path / "a" / "b" / "train.jsonl").read_bytes() == first
    assert len(list((tmp_path / "a" / "b").iterdir())) == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="cannot be written"):
        write_dates(tmp_path / "file", pairs=20, seed=3)


def test_a_year_has_any_of_its_days_and_the_label_is_the_month(tmp_path: Path) -> None:
    write_days(tmp_path, pairs=300, seed=1)
    splits = make_day_splits(300, seed=1)
    assert [len(splits[name]) for name in ("train", "valid", "test")] == [300, 500, 500]
    everything = [pair for split in splits.values() for pair in split]
    assert len({pair.trg for pair in everything}) == len(everything)
    assert all(str(date.fromisoformat(pair.trg).year) == pair.src for pair in everything)
    for name, split in splits.items():
        path = str(tmp_path / f"{name}.jsonl")
        assert list(read_pairs(path)) == split
        for line in read_labeled(path):
            assert MONTHS["en", line.label] == date.fromisoformat(line.text).month
    assert make_day_splits(300, seed=2) != splits
    with pytest.raises(Problem, match="1 to 72049"):
        make_day_splits(0, seed=0)
