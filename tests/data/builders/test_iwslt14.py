"""IWSLT14: fairseq's preparation, line by line."""

from __future__ import annotations

from collections import Counter

from noise2text.data.builders.iwslt14 import IWSLT14, TESTS, TRAIN, read_talks

from .conftest import Write, splits

HEADER = "<url>http://x</url>\n<keywords>a, b</keywords>\n<talkid>1</talkid>\n"


def files(german: list[str], english: list[str]) -> dict[str, str]:
    made = {
        TRAIN[0]: HEADER + "<title>Ein Titel</title>\n" + "".join(f"{text}\n" for text in german),
        TRAIN[1]: HEADER + "<title>A title</title>\n" + "".join(f"{text}\n" for text in english),
    }
    for place, (source, target) in enumerate(TESTS):
        made[source] = f'<doc>\n<seg id="1">Satz {place}, ja!</seg>\n</doc>\n'
        made[target] = f'<doc>\n<seg id="1"> Sentence {place}. </seg>\n</doc>\n'
    return made


def test_tokens_are_lower_case_and_titles_stay(write: Write) -> None:
    found = splits(read_talks(write(files(["Ja, Grün-Blau!"], ["Yes, Green-Blue!"]))))
    assert found["train"] == [("ein titel", "a title"), ("ja , grün-blau !", "yes , green-blue !")]


def test_the_test_is_five_sets_in_their_order_uncleaned(write: Write) -> None:
    found = splits(read_talks(write(files([], []))))
    assert found["test"] == [(f"satz {place} , ja !", f"sentence {place} .") for place in range(5)]
    assert [source.split(".")[1:3] for source, _ in TESTS] == [
        ["TED", "dev2010"],
        ["TEDX", "dev2012"],
        ["TED", "tst2010"],
        ["TED", "tst2011"],
        ["TED", "tst2012"],
    ]


def test_every_23rd_clean_pair_is_validation(write: Write) -> None:
    german = [f"satz {place}" for place in range(45)]
    english = [f"sentence {place}" for place in range(45)]
    german[3], english[3] = "drei", "this one is far too long"
    rows = list(read_talks(write(files(german, english))))
    # The title is the first pair and sentence 3 is none, so the 23rd is sentence 22.
    assert splits(rows)["valid"] == [("satz 22", "sentence 22")]
    assert len(splits(rows)["train"]) == 44
    assert Counter(row.reason for row in rows if row.reason) == {
        "one side has more than 1.5 times the words of the other": 1
    }


def test_each_side_has_the_rules_of_its_language(write: Write) -> None:
    found = splits(read_talks(write(files(["whose"], ["whose"]))))
    assert found["train"][1] == ("whose (de)", "whose (en)")


def test_the_files_are_those_of_the_archive() -> None:
    assert len(IWSLT14.files) == 12
    assert all("de-en.tgz" in file.url for file in IWSLT14.files)
