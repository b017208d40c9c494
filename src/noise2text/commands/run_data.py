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
from random import Random
from typing import Any

import numpy as np

from noise2text.core.errors import Problem
from noise2text.core.files import write_atomically
from noise2text.data.corpus import Pair, ReadCounts, read_pairs, write_pairs
from noise2text.data.corpus_paths import is_pipe
from noise2text.data.token_store import METADATA_FILE, TokenStore, prepare
from noise2text.data.tokenizer import Tokenizer, learn_bpe, learn_characters, load_wordpiece

__all__ = [
    "MAX_BPE_CHARACTERS",
    "MAX_BPE_TEXTS",
    "TrainingData",
    "learn_bpe_from_sample",
    "load_data",
    "sample_texts",
]

MAX_BPE_TEXTS = 1_000_000
"""How many texts BPE is learned from: those of half a million pairs, or a sample of more."""

MAX_BPE_CHARACTERS = 500_000_000
"""The most characters that these texts have together."""


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
    train, valid = (
        _copy_pipe(path, folder / f"piped-{name}.jsonl", skip_bad=skip_bad) if is_pipe(path) else path
        for name, path in (("train", train), ("valid", valid))
    )
    train_folder, valid_folder = (
        Path(path) if (Path(path) / METADATA_FILE).exists() else folder / name
        for name, path in (("train", train), ("valid", valid))
    )
    tokenizer = _load_tokenizer(train, train_folder, config, skip_bad=skip_bad, show_line=show_line)
    train_tokens, valid_tokens = (
        _load_tokens(path, tokens, tokenizer, config, skip_bad=skip_bad, show_line=show_line)
        for path, tokens in ((train, train_folder), (valid, valid_folder))
    )
    count = config.run.validation_sentences
    if valid_folder == Path(valid):
        validation_pairs = _decode_pairs(valid_tokens, tokenizer, count)
    else:
        validation_pairs = list(islice(read_pairs(valid, skip_bad=skip_bad), count))
    return TrainingData(tokenizer, train_tokens, valid_tokens, validation_pairs)


def _copy_pipe(pipe: str, file: Path, *, skip_bad: bool) -> str:
    """The path of a copy of standard input, a FIFO or <(…), since a corpus is read more than once."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda draft: write_pairs(draft, read_pairs(pipe, skip_bad=skip_bad)))
    return str(file)


def _load_tokenizer(
    path: str, folder: Path, config: Any, *, skip_bad: bool, show_line: Callable[[str], None]
) -> Tokenizer:
    """The tokenizer beside the folder of the training tokens; if there is neither, it is learned first."""
    file = folder.parent / "tokenizer.json"
    if not file.exists() and not (folder / METADATA_FILE).exists():
        pairs = read_pairs(path, skip_bad=skip_bad)
        texts = (text for pair in pairs for text in (pair.src, pair.trg))
        tokenizer = _TOKENIZER_BUILDERS[config.data.tokenizer](texts, config)
        show_line(f"tokenizer: {config.data.tokenizer}, {len(tokenizer):,} tokens")
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, tokenizer.save)
    return Tokenizer.load(file)


def _load_tokens(
    path: str,
    folder: Path,
    tokenizer: Tokenizer,
    config: Any,
    *,
    skip_bad: bool,
    show_line: Callable[[str], None],
) -> TokenStore:
    """The tokens in the folder; if there are none, the pairs of the file are prepared first."""
    max_source, max_target = config.data.max_source, config.data.max_target
    if (folder / METADATA_FILE).exists():
        tokens = TokenStore.load(folder, tokenizer=tokenizer)
        source, target = tokens.lengths.max(axis=0).tolist()
        if source > max_source or target > max_target:
            raise Problem(
                f"{folder} has pairs of up to {source} and {target} tokens, but max_source and max_target "
                f"are {max_source} and {max_target}: raise them, or prepare the corpus again."
            )
        return tokens
    counts = ReadCounts()
    pairs = read_pairs(path, skip_bad=skip_bad, counts=counts)
    tokens = prepare(pairs, tokenizer, folder, max_source=max_source, max_target=max_target, counts=counts)
    report = tokens.report
    show_line(
        f"{os.path.basename(path)}: {report.pairs:,} pairs, {report.skipped:,} skipped, "
        f"{report.truncated_sources:,} sources and {report.truncated_targets:,} targets truncated"
    )
    return tokens


def _decode_pairs(tokens: TokenStore, tokenizer: Tokenizer, count: int) -> list[Pair]:
    """The first pairs as text."""
    sides = tokens.get_pairs(np.arange(min(count, len(tokens))))
    return list(map(Pair, *(tokenizer.decode(list(rows)) for rows in sides)))


def sample_texts(texts: Iterable[str], *, limit: int, max_characters: int = MAX_BPE_CHARACTERS) -> list[str]:
    """All texts in order, or if there are more, `limit` of them, each with the same chance.

    Where these have more characters than `max_characters`, half of them are kept, as often as needed.
    """
    sample: list[str] = []
    random, characters = Random(0), 0
    for number, text in enumerate(texts):
        place = random.randrange(number + 1) if number >= limit else number
        if place >= limit:
            continue
        characters += len(text)
        if place < len(sample):
            characters -= len(sample[place])
            sample[place] = text
        else:
            sample.append(text)
        if characters > max_characters and len(sample) > 1:
            limit = len(sample) // 2
            sample = random.sample(sample, limit)
            characters = sum(map(len, sample))
    return sample


def learn_bpe_from_sample(texts: Iterable[str], config: Any, *, max_texts: int = MAX_BPE_TEXTS) -> Tokenizer:
    """The BPE of the config's size, learned from the texts or, if there are more, from a sample of them."""
    sample = sample_texts(texts, limit=max_texts)
    return learn_bpe(
        sample, size=config.data.vocabulary, normalize=config.data.normalize, lowercase=config.data.lowercase
    )


def _learn_characters(texts: Iterator[str], config: Any) -> Tokenizer:
    return learn_characters(texts, normalize=config.data.normalize, lowercase=config.data.lowercase)


def _load_wordpiece(texts: Iterator[str], config: Any) -> Tokenizer:
    path = Path(config.data.vocabulary_file)
    if not path.is_file():
        raise Problem(f"There is no vocabulary file {path}; name a vocab.txt in the setting vocabulary_file.")
    return load_wordpiece(path, normalize=config.data.normalize, lowercase=config.data.lowercase)


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
    "bpe": learn_bpe_from_sample,
    "characters": _learn_characters,
    "wordpiece": _load_wordpiece,
    "folder": _load_from_folder,
}
