"""IWSLT14, German to English talks, as fairseq prepares them (SeqDiffuSeq, appendix C).

    tokenise → clean (1 to 175 words, ratio 1.5) → lower case → every 23rd pair is validation

The test is dev2010, dev2012 and tst2010 to tst2012, uncleaned. The two papers' counts differ by 25 pairs:
cleaning counts words, so it depends on the version of the tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from noise2text.data.builders.dataset import Dataset, Row, Sizes, kept, left_out
from noise2text.data.builders.marked_segments import segments
from noise2text.data.builders.moses import why_unclean
from noise2text.data.builders.raw_files import File, Raw, aligned

__all__ = ["IWSLT14", "talks"]

ADDRESS = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz (first at https://wit3.fbk.eu)"
TRAIN = ("train.tags.de-en.de", "train.tags.de-en.en")
TESTS = [
    (f"IWSLT14.{talks}.de-en.de.xml", f"IWSLT14.{talks}.de-en.en.xml")
    for talks in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
]
ABOUT = ("<url>", "<talkid>", "<keywords>")  # lines about a talk that nobody says
MARKS = ("<title>", "</title>", "<description>", "</description>")


def talks(raw: Raw) -> Iterator[Row]:
    """Sentences of talks: those to learn from, and then the test."""
    german, english = raw.rules("de"), raw.rules("en")

    def tokenised(src: str, trg: str) -> tuple[str, str]:
        return german.tokenise(src, dashes=False), english.tokenise(trg, dashes=False)

    number = 0
    for lines in aligned(_said(raw, TRAIN[0]), _said(raw, TRAIN[1]), " and ".join(TRAIN)):
        src, trg = tokenised(*lines)
        if why := why_unclean(src, trg, longest=175, ratio=1.5):
            yield left_out(why)
            continue
        number += 1
        yield kept("valid" if number % 23 == 0 else "train", src.lower(), trg.lower())
    for source, target in TESTS:
        for lines in segments(raw, source, target):
            src, trg = tokenised(*lines)
            yield kept("test", src.lower(), trg.lower())


def _said(raw: Raw, name: str) -> Iterator[str]:
    """The sentences, titles and descriptions of a training file."""
    for text in raw.texts(name):
        if not any(mark in text for mark in ABOUT):
            for mark in MARKS:
                text = text.replace(mark, "")
            yield text


IWSLT14 = Dataset(
    name="iwslt14",
    task="translation, German to English",
    papers=("SeqDiffuSeq", "Difformer"),
    files=tuple(File(name, ADDRESS) for pair in (TRAIN, *TESTS) for name in pair),
    sizes=(
        Sizes(160_239, 7_283, 6_750, "SeqDiffuSeq, table 4"),
        Sizes(160_215, 7_282, 6_750, "Difformer, table 20"),
    ),
    licence="CC BY-NC-ND 4.0",
    rules=(
        "lines of addresses, identities and keywords are dropped; titles and descriptions stay",
        "Moses tokens, lower case",
        "training pairs of 1 to 175 words, neither side with more than 1.5 times the words of the other",
        "every 23rd of these is validation; dev2010, dev2012 and tst2010 to tst2012 are the test",
    ),
    rows=talks,
    moses=True,
)
