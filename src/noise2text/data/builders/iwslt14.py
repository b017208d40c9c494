"""IWSLT14, German to English talks, as fairseq prepares them (SeqDiffuSeq, appendix C).

    tokenize → clean (1 to 175 words, ratio 1.5) → lower case → every 23rd pair is validation

The test is dev2010, dev2012 and tst2010 to tst2012, uncleaned. The two papers' counts differ by 25 pairs:
cleaning counts words, so it depends on the version of the tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row, skip_row
from noise2text.data.builders.moses import find_unclean_reason
from noise2text.data.builders.raw_files import RawFile, RawFiles, zip_parallel
from noise2text.data.builders.sgml import read_segments

__all__ = ["IWSLT14", "read_talks"]

ADDRESS = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz (first at https://wit3.fbk.eu)"
TRAIN = ("train.tags.de-en.de", "train.tags.de-en.en")
TESTS = [
    (f"IWSLT14.{talks}.de-en.de.xml", f"IWSLT14.{talks}.de-en.en.xml")
    for talks in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
]
METADATA_TAGS = ("<url>", "<talkid>", "<keywords>")  # lines about a talk that are not spoken
REMOVED_TAGS = ("<title>", "</title>", "<description>", "</description>")


def read_talks(raw: RawFiles) -> Iterator[DatasetRow]:
    """The sentences of the talks: training and validation, then the test."""
    german, english = raw.load_moses("de"), raw.load_moses("en")

    def tokenize_pair(src: str, trg: str) -> tuple[str, str]:
        return german.tokenize(src, split_dashes=False), english.tokenize(trg, split_dashes=False)

    number = 0
    for lines in zip_parallel(
        _read_sentences(raw, TRAIN[0]), _read_sentences(raw, TRAIN[1]), " and ".join(TRAIN)
    ):
        src, trg = tokenize_pair(*lines)
        if reason := find_unclean_reason(src, trg, max_words=175, max_ratio=1.5):
            yield skip_row(reason)
            continue
        number += 1
        yield make_row("valid" if number % 23 == 0 else "train", src.lower(), trg.lower())
    for source, target in TESTS:
        for lines in read_segments(raw, source, target):
            src, trg = tokenize_pair(*lines)
            yield make_row("test", src.lower(), trg.lower())


def _read_sentences(raw: RawFiles, name: str) -> Iterator[str]:
    """The sentences, titles and descriptions of a training file."""
    for text in raw.read_texts(name):
        if not any(tag in text for tag in METADATA_TAGS):
            for tag in REMOVED_TAGS:
                text = text.replace(tag, "")
            yield text


IWSLT14 = Dataset(
    name="iwslt14",
    task="translation, German to English",
    papers=("SeqDiffuSeq", "Difformer"),
    files=tuple(RawFile(name, ADDRESS) for pair in (TRAIN, *TESTS) for name in pair),
    sizes=(
        PublishedSizes(160_239, 7_283, 6_750, "SeqDiffuSeq, table 4"),
        PublishedSizes(160_215, 7_282, 6_750, "Difformer, table 20"),
    ),
    license="CC BY-NC-ND 4.0",
    processing_steps=(
        "lines of addresses, identities and keywords are dropped; titles and descriptions stay",
        "Moses tokens, lower case",
        "training pairs of 1 to 175 words, neither side with more than 1.5 times the words of the other",
        "every 23rd of these is validation; dev2010, dev2012 and tst2010 to tst2012 are the test",
    ),
    read_rows=read_talks,
    needs_moses=True,
    moses_languages=("de", "en"),
)
