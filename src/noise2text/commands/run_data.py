"""What a run reads: the tokenizer and the memory-mapped tokens, made from raw files when there are none yet.

    FOLDER/tokenizer.json  FOLDER/train/  FOLDER/valid/

`train` makes this folder inside its run; `noise2text prepare` makes it ahead, for several runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from noise2text.core.errors import Problem
from noise2text.core.files import write_whole
from noise2text.data.corpus import Pair, Tally, read_pairs, write_pairs
from noise2text.data.token_store import Prepared, prepare
from noise2text.data.tokenizer import Tokenizer, learn_bpe, learn_characters, load_wordpiece
from noise2text.training.config import DataSettings

__all__ = ["Data", "open_data"]


@dataclass(frozen=True)
class Data:
    """A tokenizer and the tokens of both sets; `sample` is the start of the validation set as text."""

    tokenizer: Tokenizer
    train: Prepared
    valid: Prepared
    sample: list[Pair]


def open_data(
    train: str,
    valid: str,
    folder: Path,
    settings: DataSettings,
    *,
    skip_bad: bool,
    say: Callable[[str], None],
) -> Data:
    """The data of a run, prepared into `folder` unless it is there already or was given prepared."""
    train, valid = _spooled(train, folder), _spooled(valid, folder)
    tokenizer = _tokenizer(train, folder, settings, skip_bad=skip_bad, say=say)
    return Data(
        tokenizer,
        _tokens(train, folder / "train", tokenizer, settings, skip_bad=skip_bad, say=say),
        tokens := _tokens(valid, folder / "valid", tokenizer, settings, skip_bad=skip_bad, say=say),
        list(_sample(valid, tokens, tokenizer, settings.validation_sentences, skip_bad=skip_bad)),
    )


def _is_prepared(path: str) -> bool:
    return (Path(path) / "prepared.json").exists()


def _spooled(path: str, folder: Path) -> str:
    """Standard input as a file, since a corpus is read more than once."""
    if path != "-":
        return path
    file = folder / "standard-input.jsonl"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, lambda draft: write_pairs(draft, read_pairs("-")))
    return str(file)


def _tokenizer(
    train: str, folder: Path, settings: DataSettings, *, skip_bad: bool, say: Callable[[str], None]
) -> Tokenizer:
    if _is_prepared(train):
        return Tokenizer.load(Path(train).parent / "tokenizer.json")
    path = folder / "tokenizer.json"
    if not path.exists():
        texts = _texts(read_pairs(train, skip_bad=skip_bad))
        tokenizer = _TOKENIZERS[settings.tokenizer](texts, settings)
        say(f"tokenizer: {settings.tokenizer}, {len(tokenizer):,} tokens")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, tokenizer.save)
    return Tokenizer.load(path)


def _tokens(
    path: str,
    folder: Path,
    tokenizer: Tokenizer,
    settings: DataSettings,
    *,
    skip_bad: bool,
    say: Callable[[str], None],
) -> Prepared:
    if _is_prepared(path):
        return _within(Prepared.open(Path(path), tokenizer=tokenizer), path, settings)
    if not _is_prepared(str(folder)):
        tally = Tally()
        pairs = read_pairs(path, skip_bad=skip_bad, tally=tally)
        limits = {"max_source": settings.max_source, "max_target": settings.max_target}
        report = prepare(pairs, tokenizer, folder, tally=tally, **limits).report
        say(
            f"{os.path.basename(path)}: {report.pairs:,} pairs, {report.skipped:,} skipped, "
            f"{report.truncated_sources:,} sources and {report.truncated_targets:,} targets cut"
        )
    return Prepared.open(folder, tokenizer=tokenizer)


def _within(tokens: Prepared, path: str, settings: DataSettings) -> Prepared:
    """The tokens, if none of their pairs is longer than the settings allow."""
    source, target = tokens.lengths.max(axis=0).tolist()
    if source > settings.max_source or target > settings.max_target:
        raise Problem(
            f"{path} has pairs of up to {source} and {target} tokens, but the settings max_source and "
            f"max_target are {settings.max_source} and {settings.max_target}: raise them, or prepare the "
            f"corpus with them."
        )
    return tokens


def _sample(
    path: str, tokens: Prepared, tokenizer: Tokenizer, count: int, *, skip_bad: bool
) -> Iterator[Pair]:
    """The first validation pairs as text; tokens are decoded where the raw file was not given."""
    if not _is_prepared(path):
        yield from islice(read_pairs(path, skip_bad=skip_bad), count)
        return
    sources, targets = tokens.pairs(np.arange(min(count, len(tokens))))
    for src, trg in zip(*(tokenizer.decode(list(rows)) for rows in (sources, targets)), strict=True):
        yield Pair(src, trg)


def _texts(pairs: Iterable[Pair]) -> Iterator[str]:
    for pair in pairs:
        yield pair.src
        yield pair.trg


def _bpe(texts: Iterator[str], settings: DataSettings) -> Tokenizer:
    return learn_bpe(
        texts, size=settings.vocabulary, normalise=settings.normalise, lowercase=settings.lowercase
    )


def _characters(texts: Iterator[str], settings: DataSettings) -> Tokenizer:
    return learn_characters(texts, normalise=settings.normalise, lowercase=settings.lowercase)


def _wordpiece(texts: Iterator[str], settings: DataSettings) -> Tokenizer:
    path = Path(settings.vocabulary_file)
    if not path.is_file():
        raise Problem(f"There is no vocabulary file {path}; name a vocab.txt in the setting vocabulary_file.")
    return load_wordpiece(path, normalise=settings.normalise, lowercase=settings.lowercase)


def _folder(texts: Iterator[str], settings: DataSettings) -> Tokenizer:
    """The tokenizer of a pre-trained model, which no corpus changes."""
    folder: str = getattr(settings, "from_folder", "")
    if not folder:
        raise Problem(
            "The tokenizer folder is that of a trained model: name its folder in the setting from_folder, or "
            "set tokenizer to bpe (and scratch to true, for a recipe of pre-trained models)."
        )
    if not (Path(folder) / "tokenizer.json").is_file():
        raise Problem(
            f"There is no tokenizer.json in {folder}; name the folder of a trained model (for a model of "
            f"transformers, its AutoTokenizer's save_pretrained writes one)."
        )
    return Tokenizer.load(Path(folder) / "tokenizer.json")


_TOKENIZERS: dict[str, Callable[[Iterator[str], DataSettings], Tokenizer]] = {
    "bpe": _bpe,
    "characters": _characters,
    "wordpiece": _wordpiece,
    "folder": _folder,
}
