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
from functools import cache

from noise2text.generation.selection import Candidate, CandidateFilter
from noise2text.preprocessing.text_rules import TextRules

__all__ = ["FaithfulCopies", "SourceCopies"]

_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_REPEATED = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_]+")
_NONE: Counter[str] = Counter()  # of most texts; making one takes longer than looking for numbers


@dataclass(frozen=True)
class FaithfulCopies(CandidateFilter):
    """Another selector, for the candidates with the fewest copying errors if its choice is none of them."""

    rules: TextRules
    name = "faithful"

    def keep(self, candidates: Sequence[Candidate]) -> list[int]:
        """All candidates if the other selector chooses a faithful one, else the faithful ones."""
        return self._find_better(candidates, self.selector(candidates))

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        chosen = self.selector.select_all(sentences)
        pairs = zip(sentences, chosen, strict=True)
        found = {number: self._find_better(*pair) for number, pair in enumerate(pairs)}
        better = {number: indices for number, indices in found.items() if indices}
        if better:
            again = [[sentences[number][i] for i in indices] for number, indices in better.items()]
            for (number, indices), best in zip(better.items(), self.selector.select_all(again), strict=True):
                chosen[number] = indices[best]
        return chosen

    def _find_better(self, candidates: Sequence[Candidate], chosen: int) -> list[int]:
        """The candidates with the fewest errors, if the chosen one has more; else none."""
        best = candidates[chosen]
        if not SourceCopies.of(best.source, self.rules).count_errors(best.text):
            return []
        copies = {
            source: SourceCopies.of(source, self.rules) for source in {each.source for each in candidates}
        }
        pairs = [(each.source, each.text) for each in candidates]
        counts = {(source, text): copies[source].count_errors(text) for source, text in set(pairs)}
        errors = [counts[pair] for pair in pairs]
        fewest = min(errors)
        return [i for i, count in enumerate(errors) if count == fewest] if errors[chosen] > fewest else []


@dataclass(frozen=True)
class SourceCopies:
    """What an output of one source has to copy from it.

    Fields:
        source: the source.
        rules: the rules of the languages.
        figures: the numbers in figures.
        placeholders: of each name that stands in for another, how often the source has it and how an output
            writes it.
    """

    source: str
    rules: TextRules
    figures: Counter[str]
    placeholders: tuple[tuple[int, re.Pattern[str]], ...]

    @classmethod
    def of(cls, source: str, rules: TextRules) -> SourceCopies:
        """What outputs of this source have to copy."""
        found = (
            (len(reads.findall(source)), writes)
            for name, reads, writes in _name_patterns(rules)
            if name in source
        )
        # A name that no placeholder put there may be that of another: Maria is Mary in English.
        placeholders = tuple((count, writes) for count, writes in found if count)
        return cls(source, rules, _figures(source), placeholders)

    def count_errors(self, output: str) -> int:
        """How many numbers, placeholders and words of the output contradict the source.

        >>> from noise2text.preprocessing.text_rules import load_text_rules
        >>> copies = SourceCopies.of("Ich habe 3 Katzen.", load_text_rules("de-en"))
        >>> copies.count_errors("I have three cats."), copies.count_errors("I have 4 cats.")
        (0, 2)
        """
        figures, missing, invented = _figures(output), 0, 0
        if self.figures:
            missing = (self.figures - figures - _number_words(output, self.rules)).total()
        if figures:
            words = _number_words(self.source, self.rules)
            invented = 0 if words["?"] else (figures - self.figures - words).total()
        repeated = len(_REPEATED.findall(output))
        if repeated and _REPEATED.search(self.source):
            repeated = 0
        names = sum(abs(count - len(writes.findall(output))) for count, writes in self.placeholders)
        return missing + invented + repeated + names


def _figures(text: str) -> Counter[str]:
    """The numbers in figures, without separators; 8:00 is 8."""
    if not _DIGIT.search(text):
        return _NONE
    return Counter(re.sub(r"[.,:]", "", each.removesuffix(":00")) for each in _FIGURE.findall(text))


def _number_words(text: str, rules: TextRules) -> Counter[str]:
    words = _WORD.findall(text.lower())
    return Counter(rules.number_words[word] for word in words if word in rules.number_words)


@cache
def _name_patterns(rules: TextRules) -> list[tuple[str, re.Pattern[str], re.Pattern[str]]]:
    """Each name and place that stands in for others, how a source has it, and how an output writes it."""
    return [
        (each.reads, re.compile(rf"\b{re.escape(each.reads)}s?\b"), re.compile(each.writes))
        for kind in ("male", "female", "place")
        for each in rules.placeholders[kind]
    ]
