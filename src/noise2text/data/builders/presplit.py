"""Datasets that are published as parallel files, already split, so that they only have to be read.

Gigaword's headlines, Multi30k's captions, and two releases of WMT that are already tokenized and cleaned;
their sizes are those of Difformer's table 20. Where a release has subwords ("low@@ er"), they are joined into
words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row
from noise2text.data.builders.raw_files import RawFile, RawFiles

__all__ = [
    "GIGAWORD",
    "MULTI30K",
    "WMT14_PREPARED",
    "WMT16_PREPARED",
    "join_subwords",
    "read_splits",
]

Names = Mapping[str, tuple[str, str]]  # split: source and target file


def read_splits(raw: RawFiles, names: Names, *, clean: Callable[[str], str] = str) -> Iterator[DatasetRow]:
    """Every pair of every split, its texts as published or cleaned."""
    for split, (source, target) in names.items():
        for src, trg in raw.read_parallel(source, target):
            yield make_row(split, clean(src), clean(trg))


def join_subwords(text: str) -> str:
    """The text with its subwords joined into words."""
    return f"{text} ".replace("@@ ", "").rstrip()


def _files(names: Names, url: str) -> tuple[RawFile, ...]:
    return tuple(RawFile(name, url) for pair in names.values() for name in pair)


GIGAWORD_NAMES = {
    "train": ("train.article.txt", "train.title.txt"),
    "valid": ("valid.article.filter.txt", "valid.title.filter.txt"),
    "test": ("Giga/input.txt", "Giga/task1_ref0.txt"),
}
GIGAWORD = Dataset(
    name="gigaword",
    task="summarization",
    papers=("Difformer",),
    files=_files(GIGAWORD_NAMES, "https://github.com/harvardnlp/sent-summary (archive summary.tar.gz)"),
    sizes=(PublishedSizes(3_803_957, 189_651, 1_951, "Difformer, table 20"),),
    license="Linguistic Data Consortium (LDC2003T05)",
    processing_steps=("articles are the sources, titles the targets; tokenized and lower case as published",),
    read_rows=partial(read_splits, names=GIGAWORD_NAMES),
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
    sizes=(PublishedSizes(29_000, 1_014, 1_000, "the dataset's own splits"),),
    license="research use; the captions are of Flickr30K",
    processing_steps=("raw and cased as published; the test is the one of 2016",),
    read_rows=partial(read_splits, names=MULTI30K_NAMES),
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
    sizes=(PublishedSizes(4_500_966, 3_000, 3_003, "Difformer, table 20"),),
    license="unspecified",
    processing_steps=(
        "Moses tokens and cleaning as released; subwords are put together again",
        "newstest2013 is validation, newstest2014 the test",
    ),
    read_rows=partial(read_splits, names=WMT14_NAMES, clean=join_subwords),
    moses_languages=("en", "de"),
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
    sizes=(PublishedSizes(608_319, 1_999, 1_999, "Difformer, table 20"),),
    license="unspecified",
    processing_steps=("Moses tokens and cleaning as released; subwords are put together again",),
    read_rows=partial(read_splits, names=WMT16_NAMES, clean=join_subwords),
    moses_languages=("en", "ro"),
)
