"""Undo Moses tokens: pairs of a dataset while it is built, or the texts of a model trained on it.

    "it &apos;s a well @-@ known story , isn &apos;t it ?"  →  "it's a well-known story, isn't it?"

sacremoses (the extra `datasets`) ports the detokenizer from Perl. Lower case stays lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import Dataset, DatasetRow
from noise2text.data.corpus import Pair

__all__ = ["Detokenize", "detokenize_rows", "load_detokenizer", "require_moses_languages"]

Detokenize = Callable[[str], str]


def load_detokenizer(language: str) -> Detokenize:
    """The function that makes plain text of a line of Moses tokens in this language."""
    try:
        from sacremoses import MosesDetokenizer
    except ImportError as error:
        raise Problem("Detokenising needs sacremoses: pip install 'noise2text[datasets]'.") from error
    detokenizer = MosesDetokenizer(lang=language)
    return lambda text: str(detokenizer.detokenize(text.split(), unescape=True))


def require_moses_languages(dataset: Dataset) -> tuple[str, str]:
    """The languages of source and target; a Problem if the dataset's texts are not Moses tokens."""
    if dataset.moses_languages is None:
        raise Problem(f"The texts of {dataset.name} are not Moses tokens: leave out --detokenise.")
    return dataset.moses_languages


def detokenize_rows(dataset: Dataset, rows: Iterable[DatasetRow]) -> Iterator[DatasetRow]:
    """The rows with plain text."""
    source, target = map(load_detokenizer, require_moses_languages(dataset))
    for row in rows:
        if row.pair is None:
            yield row
            continue
        references = tuple(map(target, row.pair.refs))
        yield DatasetRow(row.split, Pair(source(row.pair.src), target(row.pair.trg), references), row.reason)
