"""Quasar-T: from a document to the question that it answers (DiffuSeq, section 4.1 and appendix D.1).

Lin et al. (2018) give the answers of each question and some documents. A document is used only if an answer
occurs in it letter for letter, anywhere in its tokens joined by spaces. Answers are lower case, so "Chile"
does not contain the answer "chile", but "www.allchile.com" does.

The papers' 116,953 training and 2,048 validation pairs are the 119K that DiffuSeq takes from the training
questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, zip_longest

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row, skip_row
from noise2text.data.builders.ordered_split import split_by_order
from noise2text.data.builders.raw_files import RawFile, RawFiles

__all__ = ["QUASAR_T", "read_questions"]

ADDRESS = "https://thunlp.oss-cn-qingdao.aliyuncs.com/OpenQA_data.tar.gz"
FILES = tuple(f"quasart/{part}.{kind}" for part in ("train", "test") for kind in ("txt", "json"))


def read_questions(raw: RawFiles, *, valid: int, test: int) -> Iterator[DatasetRow]:
    """Documents with their questions: validation, then training, then the test questions."""
    yield from split_by_order(_read_documents(raw, "train"), test=0, valid=valid)
    answered = (row for row in _read_documents(raw, "test") if row.pair is not None)
    yield from (replace(row, split="test") for row in islice(answered, test))


def _read_documents(raw: RawFiles, part: str) -> Iterator[DatasetRow]:
    """One row for each document of each question."""
    for one, other in zip_longest(
        raw.read_json(f"quasart/{part}.txt"), raw.read_json(f"quasart/{part}.json")
    ):
        if one is None or other is None:
            raise Problem(
                f"{part}.txt and {part}.json differ in length; line n of each is about one question."
            )
        location, answers = one[0], _get_answers(one[1], one[0])
        for document in _require_list(other[1], other[0]):
            src, trg = _get_text(document, "document", location), _get_text(document, "question", location)
            if any(answer in src for answer in answers):
                yield make_row("", src, trg)
            else:
                yield skip_row("no answer occurs in the document")


def _get_answers(question: object, location: str) -> list[str]:
    """The answers of a question; in the file, each is a text or a list of words."""
    if not isinstance(question, dict) or "answers" not in question:
        raise Problem(f'{location} has no "answers"; is this the file of Lin et al. (2018)?')
    texts = [_join_words(answer) for answer in _require_list(question["answers"], location)]
    return [text for text in texts if text.strip()]


def _get_text(document: object, key: str, location: str) -> str:
    if not isinstance(document, dict) or key not in document:
        raise Problem(
            f'A document that belongs to {location} has no "{key}"; is this the file of Lin et al. (2018)?'
        )
    return _join_words(document[key])


def _require_list(value: object, location: str) -> list[object]:
    if not isinstance(value, list):
        raise Problem(f"{location} has no list where one is expected; is this the file of Lin et al. (2018)?")
    return value


def _join_words(words: object) -> str:
    return " ".join(map(str, words)) if isinstance(words, list) else str(words)


QUASAR_T = Dataset(
    name="quasar-t",
    task="question generation",
    papers=("DiffuSeq", "SeqDiffuSeq", "Difformer"),
    files=tuple(RawFile(name, ADDRESS) for name in FILES),
    sizes=(PublishedSizes(116_953, 2_048, 10_000, "Difformer, table 20, and SeqDiffuSeq, table 4"),),
    license="BSD 2-Clause",
    processing_steps=(
        "a document is paired with its question if one of the answers occurs in it, letter for letter",
        "of the training questions' pairs, by file order, the first 2,048 are validation, the rest training",
        "the first 10,000 pairs of the test questions are the test",
    ),
    read_rows=partial(read_questions, valid=2_048, test=10_000),
)
