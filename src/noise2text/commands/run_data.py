"""The data of a run: the tokenizer and the memory-mapped tokens, prepared from raw files if needed.

    FOLDER/tokenizer.json  FOLDER/train/  FOLDER/valid/

`train` writes this folder inside its run; `noise2text prepare` writes it once for several runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from noise2text.core.errors import Problem
from noise2text.core.files import write_atomically
from noise2text.data.corpus import Pair, ReadCounts, read_pairs, write_pairs
from noise2text.data.token_store import TokenStore, prepare
from noise2text.data.tokenizer import Tokenizer, learn_bpe, learn_characters, load_wordpiece

__all__ = ["TrainingData", "load_data"]


@dataclass(frozen=True)
class TrainingData:
    """A tokenizer and the tokens of both sets; `validation_pairs` are the first validation pairs as text."""

    tokenizer: Tokenizer
    train: TokenStore
    valid: TokenStore
    validation_pairs: list[Pair]


def load_data(
    train: str,
    valid: str,
    folder: Path,
    config: Any,
    *,
    skip_bad: bool,
    show_line: Callable[[str], None],
) -> TrainingData:
    """The data of a run; raw files are prepared into `folder` unless that has been done."""
    train, valid = _spool_stdin(train, folder), _spool_stdin(valid, folder)
    tokenizer = _load_tokenizer(train, folder, config, skip_bad=skip_bad, show_line=show_line)
    return TrainingData(
        tokenizer,
        _prepare_tokens(train, folder / "train", tokenizer, config, skip_bad=skip_bad, show_line=show_line),
        tokens := _prepare_tokens(
            valid, folder / "valid", tokenizer, config, skip_bad=skip_bad, show_line=show_line
        ),
        list(
            _read_validation_pairs(
                valid, tokens, tokenizer, config.run.validation_sentences, skip_bad=skip_bad
            )
        ),
    )


def _is_prepared(path: str) -> bool:
    return (Path(path) / "prepared.json").exists()


def _spool_stdin(path: str, folder: Path) -> str:
    """The path, or a copy of standard input, since a corpus is read more than once."""
    if path != "-":
        return path
    file = folder / "standard-input.jsonl"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda draft: write_pairs(draft, read_pairs("-")))
    return str(file)


def _load_tokenizer(
    train: str, folder: Path, config: Any, *, skip_bad: bool, show_line: Callable[[str], None]
) -> Tokenizer:
    if _is_prepared(train):
        return Tokenizer.load(Path(train).parent / "tokenizer.json")
    path = folder / "tokenizer.json"
    if not path.exists():
        texts = _texts(read_pairs(train, skip_bad=skip_bad))
        tokenizer = _TOKENIZER_BUILDERS[config.data.tokenizer](texts, config)
        show_line(f"tokenizer: {config.data.tokenizer}, {len(tokenizer):,} tokens")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, tokenizer.save)
    return Tokenizer.load(path)


def _prepare_tokens(
    path: str,
    folder: Path,
    tokenizer: Tokenizer,
    config: Any,
    *,
    skip_bad: bool,
    show_line: Callable[[str], None],
) -> TokenStore:
    if _is_prepared(path):
        return _require_lengths(TokenStore.load(Path(path), tokenizer=tokenizer), path, config)
    if not _is_prepared(str(folder)):
        counts = ReadCounts()
        pairs = read_pairs(path, skip_bad=skip_bad, counts=counts)
        limits = {"max_source": config.data.max_source, "max_target": config.data.max_target}
        report = prepare(pairs, tokenizer, folder, counts=counts, **limits).report
        show_line(
            f"{os.path.basename(path)}: {report.pairs:,} pairs, {report.skipped:,} skipped, "
            f"{report.truncated_sources:,} sources and {report.truncated_targets:,} targets cut"
        )
    return TokenStore.load(folder, tokenizer=tokenizer)


def _require_lengths(tokens: TokenStore, path: str, config: Any) -> TokenStore:
    """The tokens; refuses pairs that are longer than the config allows."""
    source, target = tokens.lengths.max(axis=0).tolist()
    if source > config.data.max_source or target > config.data.max_target:
        raise Problem(
            f"{path} has pairs of up to {source} and {target} tokens, but max_source and max_target are "
            f"{config.data.max_source} and {config.data.max_target}: raise them, or prepare the corpus anew."
        )
    return tokens


def _read_validation_pairs(
    path: str, tokens: TokenStore, tokenizer: Tokenizer, count: int, *, skip_bad: bool
) -> Iterator[Pair]:
    """The first validation pairs as text, decoded from tokens if the data is prepared."""
    if not _is_prepared(path):
        yield from islice(read_pairs(path, skip_bad=skip_bad), count)
        return
    sources, targets = tokens.get_pairs(np.arange(min(count, len(tokens))))
    for src, trg in zip(*(tokenizer.decode(list(rows)) for rows in (sources, targets)), strict=True):
        yield Pair(src, trg)


def _texts(pairs: Iterable[Pair]) -> Iterator[str]:
    for pair in pairs:
        yield pair.src
        yield pair.trg


def _learn_bpe(texts: Iterator[str], config: Any) -> Tokenizer:
    return learn_bpe(
        texts, size=config.data.vocabulary, normalise=config.data.normalise, lowercase=config.data.lowercase
    )


def _learn_characters(texts: Iterator[str], config: Any) -> Tokenizer:
    return learn_characters(texts, normalise=config.data.normalise, lowercase=config.data.lowercase)


def _load_wordpiece(texts: Iterator[str], config: Any) -> Tokenizer:
    path = Path(config.data.vocabulary_file)
    if not path.is_file():
        raise Problem(f"There is no vocabulary file {path}; name a vocab.txt in the setting vocabulary_file.")
    return load_wordpiece(path, normalise=config.data.normalise, lowercase=config.data.lowercase)


def _load_from_folder(texts: Iterator[str], config: Any) -> Tokenizer:
    """The tokenizer of a trained model; the texts do not change it."""
    folder: str = getattr(config.model, "from_folder", "")
    if not folder:
        raise Problem(
            "The tokenizer folder is that of a trained model: name its folder in the setting from_folder, or "
            "set tokenizer to bpe (and from_scratch to true, for a recipe of pre-trained models)."
        )
    if not (Path(folder) / "tokenizer.json").is_file():
        raise Problem(
            f"There is no tokenizer.json in {folder}; name the folder of a trained model (for a model of "
            f"transformers, its AutoTokenizer's save_pretrained writes one)."
        )
    return Tokenizer.load(Path(folder) / "tokenizer.json")


_TOKENIZER_BUILDERS: dict[str, Callable[[Iterator[str], Any], Tokenizer]] = {
    "bpe": _learn_bpe,
    "characters": _learn_characters,
    "wordpiece": _load_wordpiece,
    "folder": _load_from_folder,
}
