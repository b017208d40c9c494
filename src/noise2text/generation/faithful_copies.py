"""A selector that prefers candidates whose numbers are the source's, and which repeat no word.

    errors(s) = numbers of the source that s lacks + figures of s that the source lacks
              + placeholders that are not in s as often as in the source + words of s that follow themselves

If the other selector's choice has more errors than another candidate, it selects again, among those of the
fewest. Otherwise its choice stands, since leaving candidates out would change what MBR compares. A number may
also be a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from noise2text.generation.selection import Candidate, CandidateFilter
from noise2text.preprocessing.text_rules import TextRules

__all__ = ["FaithfulCopies", "count_copy_errors"]

_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_REPEATED = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class FaithfulCopies(CandidateFilter):
    """Another selector, for the candidates with the fewest copying errors if its choice is none of them."""

    rules: TextRules
    name = "faithful"

    def keep(self, candidates: Sequence[Candidate]) -> list[int]:
        """All candidates if the other selector chooses a faithful one, else the faithful ones."""
        faithful = self._find_faithful(candidates)
        return [] if self.selector(candidates) in faithful else faithful

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        chosen = self.selector.select_all(sentences)
        for number, candidates in enumerate(sentences):
            faithful = self._find_faithful(candidates)
            if chosen[number] not in faithful:
                chosen[number] = faithful[self.selector([candidates[i] for i in faithful])]
        return chosen

    def _find_faithful(self, candidates: Sequence[Candidate]) -> list[int]:
        errors = [count_copy_errors(each.source, each.text, self.rules) for each in candidates]
        return [i for i, count in enumerate(errors) if count == min(errors)]


def count_copy_errors(source: str, output: str, rules: TextRules) -> int:
    """How many numbers, placeholders and words of the output contradict the source.

    >>> from noise2text.preprocessing.text_rules import load_text_rules
    >>> rules = load_text_rules("de-en")
    >>> count_copy_errors("Ich habe 3 Katzen.", "I have three cats.", rules)
    0
    >>> count_copy_errors("Ich habe 3 Katzen.", "I have 4 cats.", rules)
    2
    """
    figures, written = _figures(source), _figures(output)
    words, written_words = _number_words(source, rules), _number_words(output, rules)
    missing = (figures - written - written_words).total()
    invented = 0 if words["?"] else (written - figures - words).total()
    repeated = len(_REPEATED.findall(output)) if not _REPEATED.search(source) else 0
    return missing + invented + repeated + _count_stand_in_errors(source, output, rules)


def _figures(text: str) -> Counter[str]:
    """The numbers in figures, without separators; 8:00 is 8."""
    return Counter(re.sub(r"[.,:]", "", each.removesuffix(":00")) for each in _FIGURE.findall(text))


def _number_words(text: str, rules: TextRules) -> Counter[str]:
    words = map(str.lower, _WORD.findall(text))
    return Counter(rules.number_words[word] for word in words if word in rules.number_words)


def _count_stand_in_errors(source: str, output: str, rules: TextRules) -> int:
    """How often names and places that stand in for others are lacking or too many; numbers count above."""
    errors = 0
    for placeholder in (each for kind in ("male", "female", "place") for each in rules.placeholders[kind]):
        expected = len(re.findall(rf"\b{re.escape(placeholder.reads)}s?\b", source))
        if expected:  # without it, a name may be that of another: Maria is Mary in English
            errors += abs(expected - len(re.findall(placeholder.writes, output)))
    return errors
