"""WMT14 English to German and WMT16 English to Romanian, from their raw corpora with the Moses rules.

    normalize punctuation → remove unprintable characters → tokenize (compounds, too) → clean

WMT14 is fairseq's preparation with News Commentary 9: every 100th pair is validation, and pairs of more than
250 words or with a ratio above 1.5 are removed. SeqDiffuSeq's table 4 counts the pairs before cleaning
(1,920,209 + 2,399,123 + 201,288 = 4,475,414 + 45,206), so these are the numbers that are checked. fairseq
cleans after splitting words into subwords; here words are counted, because `train` learns the subwords. WMT16
follows Sennrich et al. (2016): 1 to 80 words, ratio 9, Romanian letters with commas, not cedillas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row, skip_row
from noise2text.data.builders.moses import MosesProcessor, find_unclean_reason, replace_unprintable
from noise2text.data.builders.raw_files import RawFile, RawFiles
from noise2text.data.builders.sgml import read_segments

__all__ = ["WMT14", "WMT16", "read_wmt14", "read_wmt16"]

Names = tuple[str, str]
CEDILLAS_TO_COMMAS = str.maketrans("ŞşŢţ", "ȘșȚț")

GERMAN = [
    (f"{name}.de-en.en", f"{name}.de-en.de") for name in ("europarl-v7", "commoncrawl", "news-commentary-v9")
]
GERMAN_ADDRESSES = (
    "http://statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    "http://statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    "http://statmt.org/wmt14/training-parallel-nc-v9.tgz",
)
GERMAN_TEST = ("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm")

ROMANIAN = [("europarl-v8.ro-en.en", "europarl-v8.ro-en.ro"), ("SETIMES.en-ro.en", "SETIMES.en-ro.ro")]
ROMANIAN_ADDRESSES = (
    "http://data.statmt.org/wmt16/translation-task/training-parallel-ep-v8.tgz",
    "https://opus.nlpl.eu/SETIMES.php (version 2, Moses format, en-ro)",
)
ROMANIAN_VALID = ("newsdev2016-enro-src.en.sgm", "newsdev2016-enro-ref.ro.sgm")
ROMANIAN_TEST = ("newstest2016-enro-src.en.sgm", "newstest2016-enro-ref.ro.sgm")


def read_wmt14(raw: RawFiles) -> Iterator[DatasetRow]:
    """English with German: training and validation from the corpora one after another, then the test."""
    english, german = raw.load_moses("en"), raw.load_moses("de")
    for number, (src, trg) in enumerate(_corpora(raw, GERMAN), 1):
        split = "valid" if number % 100 == 0 else "train"
        yield _filter_pair(
            split,
            _normalize_and_tokenize(english, src),
            _normalize_and_tokenize(german, trg),
            max_words=250,
            max_ratio=1.5,
        )
    for src, trg in read_segments(raw, *GERMAN_TEST):
        yield make_row(
            "test", english.tokenize(src, split_dashes=True), german.tokenize(trg, split_dashes=True)
        )


def read_wmt16(raw: RawFiles) -> Iterator[DatasetRow]:
    """English with Romanian: training from the corpora one after another, then validation and test."""
    english, romanian = raw.load_moses("en"), raw.load_moses("ro")

    def tokenize_pair(src: str, trg: str) -> tuple[str, str]:
        return _normalize_and_tokenize(english, src), _normalize_and_tokenize(
            romanian, trg, respell=lambda text: text.translate(CEDILLAS_TO_COMMAS)
        )

    for src, trg in _corpora(raw, ROMANIAN):
        yield _filter_pair("train", *tokenize_pair(src, trg), max_words=80, max_ratio=9)
    for split, names in (("valid", ROMANIAN_VALID), ("test", ROMANIAN_TEST)):
        for src, trg in read_segments(raw, *names):
            yield make_row(split, *tokenize_pair(src, trg))


def _corpora(raw: RawFiles, names: Sequence[Names]) -> Iterator[tuple[str, str]]:
    for source, target in names:
        yield from raw.read_parallel(source, target)


def _normalize_and_tokenize(moses: MosesProcessor, text: str, *, respell: Callable[[str], str] = str) -> str:
    return moses.tokenize(respell(replace_unprintable(moses.normalize(text))), split_dashes=True)


def _filter_pair(split: str, src: str, trg: str, *, max_words: int, max_ratio: float) -> DatasetRow:
    reason = find_unclean_reason(src, trg, max_words=max_words, max_ratio=max_ratio)
    return skip_row(reason, split) if reason else make_row(split, src, trg)


def _files(names: Sequence[Names], addresses: Sequence[str]) -> list[RawFile]:
    pairs = zip(names, addresses, strict=True)
    return [RawFile(name, url) for both, url in pairs for name in both]


WMT14 = Dataset(
    name="wmt14",
    task="translation, English to German",
    papers=("SeqDiffuSeq",),
    files=(
        *_files(GERMAN, GERMAN_ADDRESSES),
        *_files([GERMAN_TEST], ["http://statmt.org/wmt14/test-full.tgz"]),
    ),
    sizes=(PublishedSizes(4_475_414, 45_206, 3_003, "SeqDiffuSeq, table 4", before_cleaning=True),),
    license="unspecified",
    processing_steps=(
        "Moses: plain punctuation, printable characters, tokens with compounds parted; case is kept",
        "every 100th pair of Europarl 7, Common Crawl and News Commentary 9 is validation",
        "newstest2014 is the test",
        "training and validation pairs of 1 to 250 words, ratio at most 1.5 (fairseq counts subwords)",
    ),
    read_rows=read_wmt14,
    needs_moses=True,
    moses_languages=("en", "de"),
)

WMT16 = Dataset(
    name="wmt16",
    task="translation, English to Romanian",
    papers=("Difformer",),
    files=(
        *_files(ROMANIAN, ROMANIAN_ADDRESSES),
        *_files([ROMANIAN_VALID], ["http://data.statmt.org/wmt16/translation-task/dev.tgz"]),
        *_files([ROMANIAN_TEST], ["http://data.statmt.org/wmt16/translation-task/test.tgz"]),
    ),
    sizes=(PublishedSizes(608_319, 1_999, 1_999, "Difformer, table 20"),),
    license="unspecified",
    processing_steps=(
        "Moses: plain punctuation, printable characters, tokens with compounds parted; case is kept",
        "Romanian cedillas become commas",
        "training pairs of 1 to 80 words, ratio at most 9",
        "newsdev2016 is validation, newstest2016 the test",
    ),
    read_rows=read_wmt16,
    needs_moses=True,
    moses_languages=("en", "ro"),
)
