"""WMT14 and WMT16 from their raw corpora."""

from __future__ import annotations

from noise2text.data.builders.wmt import (
    GERMAN,
    GERMAN_TEST,
    ROMANIAN,
    ROMANIAN_TEST,
    ROMANIAN_VALID,
    WMT14,
    read_wmt14,
    read_wmt16,
)

from .conftest import Write, splits


def marked(*texts: str) -> str:
    return "".join(f'<seg id="{place}">{text}</seg>\n' for place, text in enumerate(texts, 1))


def german_files(lines: int) -> dict[str, str]:
    """Corpora of so many lines each; the second line of the first is a bad pair."""
    files = {GERMAN_TEST[0]: marked("A well-known test."), GERMAN_TEST[1]: marked("Ein Test.")}
    for corpus, (source, target) in enumerate(GERMAN):
        files[source] = "".join(f"“News” {corpus} {line}\n" for line in range(lines))
        files[target] = "".join(f"„Neues“ {corpus}\x00{line}\n" for line in range(lines))
    first = GERMAN[0][1]
    files[first] = files[first].replace("„Neues“ 0\x001\n", "1\n")
    return files


def test_corpora_follow_each_other_and_every_100th_pair_is_validation(write: Write) -> None:
    rows = list(read_wmt14(write(german_files(70))))
    found = splits(rows)
    assert found["train"][0] == ('" News " 0 0', '„Neues " 0 0')
    # Pairs 100 and 200 of all raw ones, bad ones counted: the 30th of corpus 1 and the 60th of corpus 2.
    assert [src for src, _ in found["valid"]] == ['" News " 1 29', '" News " 2 59']
    assert found["test"] == [("A well @-@ known test .", "Ein Test .")]
    assert [(row.split, row.reason) for row in rows if row.pair is None] == [
        ("train", "one side has more than 1.5 times the words of the other")
    ]


def test_the_published_sizes_count_before_cleaning_and_add_up_to_the_corpora() -> None:
    (sizes,) = WMT14.sizes
    total = 1_920_209 + 2_399_123 + 201_288  # Europarl 7, Common Crawl, News Commentary 9
    assert sizes.before_cleaning
    assert (sizes.train, sizes.valid) == (total - total // 100, total // 100)


def test_romanian_cedillas_become_commas_and_long_pairs_are_left_out(write: Write) -> None:
    files = {name: "" for both in ROMANIAN for name in both}
    files |= {ROMANIAN[0][0]: "the price-list\n" + "w " * 81 + "\nwhose\n"}
    files |= {ROMANIAN[0][1]: "Şi preţul\n" + "c " * 81 + "\nwhose\n"}
    for names in (ROMANIAN_VALID, ROMANIAN_TEST):
        files |= {names[0]: marked(f"{names[0]} ?"), names[1]: marked("ţară")}
    rows = list(read_wmt16(write(files)))
    found = splits(rows)
    assert found["train"] == [("the price @-@ list", "Și prețul"), ("whose (en)", "whose (ro)")]
    assert found["valid"][0][0].startswith("newsdev2016")
    assert found["test"][0][0].startswith("newstest2016")
    assert found["test"][0][1] == "țară"
    assert [row.reason for row in rows if row.pair is None] == ["a side has more than 80 words"]
