"""A line as sentences, and a long sentence as clauses: pieces that a model of short sentences can take."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from noise2text.preprocessing.text_rules import TextRules

__all__ = ["MAX_WORD", "Clause", "split_clauses", "split_sentences"]

# A run is tried only from its start (?<!…), so that the time is linear in its length.
_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]+[\"'”“»)\]]*(?=\s+[\"'„“«(\[¿¡]*[^\W_a-zäöü])|(?<![!?])[!?]+(?=\s)|\n+"
)
_MARK = re.compile(r"[.!?…\n]")  # of those that end a sentence
_CLAUSE_END = re.compile(r"[,;:]\s+|(?<!\s)\s+[–—-]\s+")
_TRAILING_MARKS = " \t\n\r\f\v\x85\xa0\u2028\u2029,;:–—"
_INITIAL_OR_NUMBER = re.compile(r"(?:^|\s)(?:[^\W\d_]|\d+)$")
MIN_CLAUSE_WORDS = 3
MAX_WORD = 256  # characters; nothing longer is taken for a word


def split_sentences(text: str, rules: TextRules) -> list[str]:
    """The sentences of a line, without the spaces between them.

    A full stop ends a sentence if a capital or a figure follows, except after an abbreviation, an initial or
    a number ("am 3. Mai"). Question and exclamation marks always do, and so does a line break.

    >>> from noise2text.preprocessing.text_rules import load_text_rules
    >>> split_sentences("Hallo! Dr. Meier kommt am 3. Mai. Gut.", load_text_rules("de-en"))
    ['Hallo!', 'Dr. Meier kommt am 3. Mai.', 'Gut.']
    """
    sentences, start = [], 0
    if not _MARK.search(text, 0, len(text) - 1):  # a sentence ends nowhere before the end of the text
        return [sentence] if (sentence := text.strip()) else []
    for match in _SENTENCE_END.finditer(text):
        before = text[start : match.start()]
        if match[0] == "." and _ends_in_abbreviation(before, rules):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def _ends_in_abbreviation(text: str, rules: TextRules) -> bool:
    text = text[-MAX_WORD:]
    last = text.rpartition(" ")[2].lower().lstrip("(\"'„“")
    return last in rules.abbreviations or bool(_INITIAL_OR_NUMBER.search(text))


@dataclass(frozen=True)
class Clause:
    """A piece of a sentence, and the text that joins it to the piece before: empty for the first."""

    text: str
    joint: str = ""


def split_clauses(
    sentence: str, rules: TextRules, *, max_words: int, fits: Callable[[str], bool]
) -> list[Clause]:
    """The sentence in pieces of at most `max_words` words (0 for any number) that all fit.

    It is split where a clause ends: after a semicolon, colon, dash or comma, else before a conjunction. A
    piece without such a place stays whole if it fits, and is split in its middle if it does not. So nothing
    is lost; only a single word may be too long.
    """
    words = len(sentence.split())
    fitting = fits(sentence)
    if (fitting and (not max_words or words <= max_words)) or words < 2:
        return [Clause(sentence)]
    places = sorted(
        _find_clause_ends(sentence, rules), key=lambda place: abs(2 * place.start - len(sentence))
    )
    place = next(iter(places), None if fitting else _find_middle(sentence))
    if place is None:
        return [Clause(sentence)]
    first, second = sentence[: place.start].rstrip(_TRAILING_MARKS), sentence[place.end :].strip()
    if not first or not second:
        return [Clause(sentence)]
    left = split_clauses(first, rules, max_words=max_words, fits=fits)
    right = split_clauses(second, rules, max_words=max_words, fits=fits)
    return [*left, Clause(right[0].text, place.joint), *right[1:]]


@dataclass(frozen=True)
class _Place:
    start: int
    end: int
    joint: str


def _find_clause_ends(sentence: str, rules: TextRules) -> Iterator[_Place]:
    """The places where a clause ends, with enough words on both sides; conjunctions only without marks."""
    marks = [
        _Place(match.start(), match.end(), f"{match[0].rstrip()} ")
        for match in _CLAUSE_END.finditer(sentence)
    ]
    words = "|".join(sorted(rules.conjunctions))
    joints = [
        _Place(match.start(), match.start(), " ")
        for match in re.finditer(rf"(?<!\s)\s+(?=(?:{words})\s)", sentence)
    ]
    starts = [match.start() for match in re.finditer(r"\S+", sentence)]
    for places in (marks, joints):
        wide = [place for place in places if _is_wide(starts, place)]
        if wide:
            yield from wide
            return


def _is_wide(starts: Sequence[int], place: _Place) -> bool:
    """Whether enough words are on both sides; `starts` are those of all words."""
    before, after = bisect_left(starts, place.start), len(starts) - bisect_left(starts, place.end)
    return min(before, after) >= MIN_CLAUSE_WORDS


def _find_middle(sentence: str) -> _Place:
    spaces = [match.start() for match in re.finditer(r"\s+", sentence)]
    middle = min(spaces, key=lambda start: abs(2 * start - len(sentence)))
    return _Place(middle, middle, " ")
