"""A line as sentences, and a long sentence as clauses: pieces that a model of short sentences can take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from noise2text.generation.text_rules import TextRules

__all__ = ["Clause", "split_clauses", "split_sentences"]

_SENTENCE_END = re.compile(r"[.!?…]+[\"'”“»)\]]*(?=\s+[\"'„“«(\[¿¡]*[^\W_a-zäöü])|[!?]+(?=\s)|\n+")
_INITIAL_OR_NUMBER = re.compile(r"(?:^|\s)(?:[^\W\d_]|\d+)$")
MIN_CLAUSE_WORDS = 3


def split_sentences(text: str, rules: TextRules) -> list[str]:
    """The sentences of a line, without the spaces between them.

    A full stop ends a sentence if a capital or a figure follows, except after an abbreviation, an initial or
    a number ("am 3. Mai"). Question and exclamation marks always do, and so does a line break.

    >>> from noise2text.generation.text_rules import load_text_rules
    >>> split_sentences("Hallo! Dr. Meier kommt am 3. Mai. Gut.", load_text_rules("de-en"))
    ['Hallo!', 'Dr. Meier kommt am 3. Mai.', 'Gut.']
    """
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        before = text[start : match.start()]
        if match[0] == "." and _ends_in_abbreviation(before, rules):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def _ends_in_abbreviation(text: str, rules: TextRules) -> bool:
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
    first, second = sentence[: place.start].rstrip(" ,;:–—"), sentence[place.end :].lstrip()
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
        for match in re.finditer(r"[,;:]\s+|\s+[–—-]\s+", sentence)
    ]
    words = "|".join(sorted(rules.conjunctions))
    joints = [
        _Place(match.start(), match.start(), " ") for match in re.finditer(rf"\s+(?=(?:{words})\s)", sentence)
    ]
    for places in (marks, joints):
        wide = [place for place in places if _is_wide(sentence, place)]
        if wide:
            yield from wide
            return


def _is_wide(sentence: str, place: _Place) -> bool:
    sides = sentence[: place.start], sentence[place.end :]
    return all(len(side.split()) >= MIN_CLAUSE_WORDS for side in sides)


def _find_middle(sentence: str) -> _Place:
    spaces = [match.start() for match in re.finditer(r"\s+", sentence)]
    middle = min(spaces, key=lambda start: abs(2 * start - len(sentence)))
    return _Place(middle, middle, " ")
