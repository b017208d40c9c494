"""Datasets that are published as parallel files, already split: nothing is done but to read them.

Gigaword's headlines, Multi30k's captions, and two releases of WMT that are tokenised and cleaned already;
their sizes are those of Difformer's table 20. Where a release has subwords ("low@@ er"), the words are put
together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from noise2text.data.builders.dataset import Dataset, Row, Sizes, kept
from noise2text.data.builders.raw_files import File, Raw

__all__ = ["GIGAWORD", "MULTI30K", "WMT14_PREPARED", "WMT16_PREPARED", "joined", "splits_of"]

Names = Mapping[str, tuple[str, str]]  # split: source and target file


def splits_of(raw: Raw, names: Names) -> Iterator[Row]:
    """Every pair of every split."""
    for split, (source, target) in names.items():
        yield from (kept(split, src, trg) for src, trg in raw.parallel(source, target))


def joined(raw: Raw, names: Names) -> Iterator[Row]:
    """The same, with subwords put together."""
    for split, (source, target) in names.items():
        for src, trg in raw.parallel(source, target):
            yield kept(split, _whole(src), _whole(trg))


def _whole(text: str) -> str:
    return f"{text} ".replace("@@ ", "").rstrip()


def _files(names: Names, address: str) -> tuple[File, ...]:
    return tuple(File(name, address) for pair in names.values() for name in pair)


GIGAWORD_NAMES = {
    "train": ("train.article.txt", "train.title.txt"),
    "valid": ("valid.article.filter.txt", "valid.title.filter.txt"),
    "test": ("Giga/input.txt", "Giga/task1_ref0.txt"),
}
GIGAWORD = Dataset(
    name="gigaword",
    task="summarisation",
    papers=("Difformer",),
    files=_files(
        GIGAWORD_NAMES,
        "https://github.com/harvardnlp/sent-summary (archive summary.tar.gz)",
    ),
    sizes=(Sizes(3_803_957, 189_651, 1_951, "Difformer, table 20"),),
    licence="Linguistic Data Consortium (LDC2003T05)",
    rules=("articles are the sources, titles the targets; tokenised and lower case as published",),
    rows=partial(splits_of, names=GIGAWORD_NAMES),
)

MULTI30K_NAMES = {
    "train": ("train.de", "train.en"),
    "valid": ("val.de", "val.en"),
    "test": ("test_2016_flickr.de", "test_2016_flickr.en"),
}
MULTI30K = Dataset(
    name="multi30k",
    task="translation, German to English",
    papers=(),
    files=_files(MULTI30K_NAMES, "https://github.com/multi30k/dataset, folder data/task1/raw"),
    sizes=(Sizes(29_000, 1_014, 1_000, "the dataset's own splits"),),
    licence="research use; the captions are of Flickr30K",
    rules=("raw and cased as published; the test is the one of 2016",),
    rows=partial(splits_of, names=MULTI30K_NAMES),
)

WMT14_NAMES = {
    "train": ("train.tok.clean.bpe.32000.en", "train.tok.clean.bpe.32000.de"),
    "valid": ("newstest2013.tok.bpe.32000.en", "newstest2013.tok.bpe.32000.de"),
    "test": ("newstest2014.tok.bpe.32000.en", "newstest2014.tok.bpe.32000.de"),
}
WMT14_PREPARED = Dataset(
    name="wmt14-prepared",
    task="translation, English to German",
    papers=("Difformer",),
    files=_files(
        WMT14_NAMES,
        "the archive wmt16_en_de.tar.gz, linked from "
        "https://github.com/facebookresearch/fairseq/tree/main/examples/scaling_nmt",
    ),
    sizes=(Sizes(4_500_966, 3_000, 3_003, "Difformer, table 20"),),
    licence="unspecified",
    rules=(
        "Moses tokens and cleaning as released; subwords are put together again",
        "newstest2013 is validation, newstest2014 the test",
    ),
    rows=partial(joined, names=WMT14_NAMES),
)

WMT16_NAMES = {
    "train": ("corpus.bpe.en", "corpus.bpe.ro"),
    "valid": ("dev.bpe.en", "dev.bpe.ro"),
    "test": ("test.bpe.en", "test.bpe.ro"),
}
WMT16_PREPARED = Dataset(
    name="wmt16-prepared",
    task="translation, English to Romanian",
    papers=("Difformer",),
    files=_files(
        WMT16_NAMES,
        "the WMT16 archive of Lee et al. (2018), linked from https://github.com/nyu-dl/dl4mt-nonauto",
    ),
    sizes=(Sizes(608_319, 1_999, 1_999, "Difformer, table 20"),),
    licence="unspecified",
    rules=("Moses tokens and cleaning as released; subwords are put together again",),
    rows=partial(joined, names=WMT16_NAMES),
)
