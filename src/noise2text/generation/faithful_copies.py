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
from operator import eq

from noise2text.generation.selection import Candidate, CandidateFilter
from noise2text.preprocessing.text_rules import TextRules

__all__ = ["FaithfulCopies", "SourceCopies"]

_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_REPEATED = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_]+")
_WORD_OR_FIGURE = re.compile(r"\w+")
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
        copies = {
            source: SourceCopies.of(source, self.rules) for source in {each.source for each in candidates}
        }
        if not copies[candidates[chosen].source].count_errors(candidates[chosen].text):
            return []
        pairs = [(each.source, each.text) for each in candidates]
        counts = {(source, text): copies[source].count_errors(text) for source, text in set(pairs)}
        errors = [counts[pair] for pair in pairs]
        fewest = min(errors)
        return [i for i, count in enumerate(errors) if count == fewest] if errors[chosen] > fewest else []


@dataclass(frozen=True)
class SourceCopies:
    """What an output of one source has to copy from it.

    Fields:
        rules: the rules of the languages.
        figures: the numbers in figures.
        number_words: the numbers in words; "?" counts words that may be a number or not.
        placeholders: of each name that stands in for another, how often the source has it and how an output
            writes it.
        repeats_words: whether a word of the source follows itself.
    """

    rules: TextRules
    figures: Counter[str]
    number_words: Counter[str]
    placeholders: tuple[tuple[int, re.Pattern[str]], ...]
    repeats_words: bool

    @classmethod
    def of(cls, source: str, rules: TextRules) -> SourceCopies:
        """What outputs of this source have to copy."""
        patterns = _name_patterns(rules) if _any_name_pattern(rules).search(source) else []
        found = ((len(reads.findall(source)), writes) for reads, writes in patterns)
        return cls(
            rules,
            _figures(source),
            _number_words(source, rules),
            # A name that no placeholder put there may be that of another: Maria is Mary in English.
            tuple((count, writes) for count, writes in found if count),
            bool(_REPEATED.search(source)),
        )

    def count_errors(self, output: str) -> int:
        """How many numbers, placeholders and words of the output contradict the source.

        >>> from noise2text.preprocessing.text_rules import load_text_rules
        >>> copies = SourceCopies.of("Ich habe 3 Katzen.", load_text_rules("de-en"))
        >>> copies.count_errors("I have three cats."), copies.count_errors("I have 4 cats.")
        (0, 2)
        """
        figures, words = _figures(output), _number_words(output, self.rules)
        missing = (self.figures - figures - words).total() if self.figures else 0
        may_invent = not figures or self.number_words["?"]
        invented = 0 if may_invent else (figures - self.figures - self.number_words).total()
        parts = _WORD_OR_FIGURE.findall(output.lower())
        may_repeat = not self.repeats_words and any(map(eq, parts, parts[1:]))
        repeated = len(_REPEATED.findall(output)) if may_repeat else 0
        names = sum(abs(count - len(writes.findall(output))) for count, writes in self.placeholders)
        return missing + invented + repeated + names


def _figures(text: str) -> Counter[str]:
    """The numbers in figures, without separators; 8:00 is 8."""
    if not _DIGIT.search(text):
        return _NONE
    return Counter(re.sub(r"[.,:]", "", each.removesuffix(":00")) for each in _FIGURE.findall(text))


def _number_words(text: str, rules: TextRules) -> Counter[str]:
    words = _WORD.findall(text.lower())
    if rules.number_words.keys().isdisjoint(words):
        return _NONE
    return Counter(rules.number_words[word] for word in words if word in rules.number_words)


@cache
def _name_patterns(rules: TextRules) -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    """How a source has each name and place that stands in for others, and how an output writes it."""
    return [
        (re.compile(rf"\b{re.escape(each.reads)}s?\b"), re.compile(each.writes))
        for kind in ("male", "female", "place")
        for each in rules.placeholders[kind]
    ]


@cache
def _any_name_pattern(rules: TextRules) -> re.Pattern[str]:
    """Finds any of the names; most sources have none."""
    return re.compile("|".join(reads.pattern for reads, _ in _name_patterns(rules)))
