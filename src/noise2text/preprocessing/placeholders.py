"""Values that must be copied, and what the model reads in their place.

A model that has seen few numbers, prices, addresses and names invents them. It reads a placeholder instead, a
word that it is known to copy, and the value takes the place of the placeholder in what it writes:

    Lukas zahlt 12,99 €.  →  Tom zahlt 30 Dollar.  →  Tom pays 30 dollars.  →  Lukas pays 12.99 euros.

Whole numbers up to 12 stay: the model knows them, as words too. Every placeholder is used once per sentence;
values beyond that stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from noise2text.preprocessing.restoration import Restoration
from noise2text.preprocessing.text_rules import Placeholder, TextRules

__all__ = ["Value", "find_values", "has_address", "replace_values"]

_NUMBER = r"\d+(?:[.,]\d+)*"
_NAME = r"[^\W\d_a-zäöüß][\w-]*[\w]"
_FIGURE = re.compile(r"\d")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"]*[\w/]")
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d{2}) ?Uhr|:(\d{2}))\b")
_HOUR = re.compile(r"\b(1[3-9]|2[0-4]) ?Uhr\b")  # earlier hours the model knows
_PHONE = re.compile(r"\+?\d[\d/-]*(?: [\d/-]*\d{2,})+\b|\+?\d{6,}")
_YEAR = re.compile(r"(?<![\d.,])(?:1\d|20)\d\d(?![\d%]|[.,]\d)")
_PLAIN_NUMBER = re.compile(rf"(?<![\w.,]){_NUMBER}(?![\w])")
_INTRODUCTIONS = ("heiße", "heißt", "namens")
_INTRODUCED = re.compile(rf"\b(?:{'|'.join(_INTRODUCTIONS)}) ({_NAME})")
_WORD = re.compile(r"\w+")
MAX_PLAIN_NUMBER = 12


@dataclass(frozen=True)
class Value:
    """A part of a sentence to be copied: where it is, its kind, and how the output writes it."""

    start: int
    end: int
    kind: str  # names the placeholders of the rules
    written: str
    ending: str = ""  # what the placeholder keeps of the source, such as the s of a genitive


def replace_values(sentence: str, rules: TextRules) -> tuple[str, tuple[Restoration, ...]]:
    """The sentence with placeholders for its values, and what puts the values into the output."""
    values = find_values(sentence, rules)
    if not values:
        return sentence, ()
    free = {kind: list(each) for kind, each in rules.placeholders.items()}
    pieces, restorations, position = [], [], 0
    for value in values:
        placeholder = _take_placeholder(free, value.kind, sentence)
        if placeholder is None:
            continue
        pieces += [sentence[position : value.start], placeholder.reads + value.ending]
        position = value.end
        restorations.append(Restoration(re.compile(placeholder.writes), _writer(value)))
    # A restored value may look like another's placeholder (a real "30"): marks keep them apart until the end.
    return "".join([*pieces, sentence[position:]]), _shield(restorations)


def _take_placeholder(free: dict[str, list[Placeholder]], kind: str, sentence: str) -> Placeholder | None:
    """The next placeholder of a kind that is not in the sentence itself; it is then taken for all kinds."""
    for placeholder in free[kind]:
        figure = placeholder.reads.split(" ")[0].rstrip(".")
        if not re.search(rf"\b{re.escape(figure)}\b", sentence):
            for each in free.values():
                each[:] = [other for other in each if other.reads.split(" ")[0].rstrip(".") != figure]
            return placeholder
    return None


def _writer(value: Value) -> Callable[[re.Match[str]], str]:
    def write(match: re.Match[str]) -> str:
        ordinal = value.kind == "day" and match[0].endswith("th")
        return value.written + (_ordinal_ending(int(value.written)) if ordinal else "")

    return write


def _ordinal_ending(number: int) -> str:
    return "th" if 10 < number < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _shield(restorations: list[Restoration]) -> tuple[Restoration, ...]:
    """The restorations as one, so that no value is taken for the placeholder of another."""
    if not restorations:
        return ()
    groups = "|".join(f"(?P<v{n}>{each.pattern.pattern})" for n, each in enumerate(restorations))

    def write(match: re.Match[str]) -> str:
        number = int(str(match.lastgroup)[1:])
        return restorations[number].write(match)

    return (Restoration(re.compile(groups), write),)


def find_values(sentence: str, rules: TextRules) -> list[Value]:
    """The values of a sentence from left to right; of two that overlap, the one of the earlier kind.

    >>> from noise2text.preprocessing.text_rules import load_text_rules
    >>> [value.written for value in find_values("Lukas zahlt um 14:35 Uhr 3,50 €.", load_text_rules("de-en"))]
    ['Lukas', '14:35', '3.50 euros']
    """
    found: list[Value] = []
    taken = bytearray(len(sentence))  # 1 where a value was found
    for value in _find_all(sentence, rules):
        if taken.find(1, value.start, value.end) < 0:
            found.append(value)
            taken[value.start : value.end] = b"\1" * (value.end - value.start)
    return sorted(found, key=lambda value: value.start)


def _find_all(sentence: str, rules: TextRules) -> Iterator[Value]:
    patterns = _Patterns.of(rules)
    if has_address(sentence):
        for pattern, kind in ((_EMAIL, "male"), (_URL, "place")):
            for match in pattern.finditer(sentence):
                yield Value(*match.span(), kind, match[0])
    if _FIGURE.search(sentence):
        yield from _find_times(sentence)
        yield from _find_money(sentence, rules, patterns)
        yield from _find_numbers(sentence, patterns)
    if not patterns.words_of_names.isdisjoint(_WORD.findall(sentence)):  # finding names takes much longer
        yield from _find_names(sentence, rules, patterns)


def has_address(text: str) -> bool:
    """Whether the text may have an address of a mailbox or a page in it: nothing else has such marks."""
    return "@" in text or "://" in text or "www." in text


@dataclass(frozen=True)
class _Patterns:
    """The patterns of values that depend on the languages.

    Fields:
        money_after, money_before: a number and a currency, or a sign before a number.
        day: the day of a month.
        title: a title and a name.
        names: by kind, known first names.
        place: known places.
        words_of_names: the words that a title, a name or a place begins with, or that introduce a name; a
            sentence without any of them has no name.
    """

    money_after: re.Pattern[str]
    money_before: re.Pattern[str]
    day: re.Pattern[str]
    title: re.Pattern[str]
    names: Mapping[str, re.Pattern[str]]
    place: re.Pattern[str]
    words_of_names: frozenset[str]

    @staticmethod
    @cache
    def of(rules: TextRules) -> _Patterns:
        """The patterns of these languages."""
        months = "|".join(sorted(rules.months))
        kinds = {"male": _any_of(rules.male_names), "female": _any_of(rules.female_names)}
        known_names = (*rules.titles, *rules.male_names, *rules.female_names, *rules.place_names)
        first_words = [_WORD.findall(name)[0] for name in known_names]
        return _Patterns(
            money_after=re.compile(
                rf"({_NUMBER})(?:,[-–]+)? ?({_any_of(map(re.escape, rules.currencies))})(?!\w)",
                re.IGNORECASE,
            ),
            money_before=re.compile(rf"([€$£]) ?({_NUMBER})"),
            day=re.compile(rf"\b(\d{{1,2}})\.(?= (?:{months})\b)"),
            title=re.compile(rf"(?<!e )\b({'|'.join(rules.titles)}) ((?:Dr\. |Prof\. )*{_NAME})"),
            # Only a verb follows the first word of a German sentence, so a second capital there is a surname.
            names={
                kind: re.compile(rf"^({known}) {_NAME}\b|\b({known})(s?)\b") for kind, known in kinds.items()
            },
            place=re.compile(rf"\b({'|'.join(sorted(rules.place_names, key=len, reverse=True))})\b"),
            words_of_names=frozenset([*first_words, *(f"{word}s" for word in first_words), *_INTRODUCTIONS]),
        )


def _any_of(words: Iterable[str]) -> str:
    """A pattern of one of the words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


def _find_times(sentence: str) -> Iterator[Value]:
    for match in _CLOCK.finditer(sentence):
        yield Value(*match.span(), "time", f"{match[1]}:{match[2] or match[3]}")
    for match in _HOUR.finditer(sentence):
        yield Value(*match.span(), "time", f"{match[1]}:00")


def _find_money(sentence: str, rules: TextRules, patterns: _Patterns) -> Iterator[Value]:
    for match in patterns.money_after.finditer(sentence):
        yield Value(*match.span(), "money", _write_money(match[1], match[2], rules))
    for match in patterns.money_before.finditer(sentence):
        yield Value(*match.span(), "money", _write_money(match[2], match[1], rules))


def _write_money(number: str, unit: str, rules: TextRules) -> str:
    name = rules.currencies[unit.lower()]
    return f"{_write_number(number)} {name.removesuffix('s') if number == '1' else name}"


def _find_numbers(sentence: str, patterns: _Patterns) -> Iterator[Value]:
    for match in _PHONE.finditer(sentence):
        yield Value(*match.span(), "number", match[0])
    for match in patterns.day.finditer(sentence):
        yield Value(*match.span(), "day", match[1])
    for match in _YEAR.finditer(sentence):
        yield Value(*match.span(), "year", match[0])
    for match in _PLAIN_NUMBER.finditer(sentence):
        if not match[0].isdigit() or len(match[0]) > 2 or int(match[0]) > MAX_PLAIN_NUMBER:
            yield Value(*match.span(), "number", _write_number(match[0]))


def _write_number(number: str) -> str:
    """A German number as English writes it: 1.250 is 1,250 and 3,5 is 3.5; others stay, as 10.12.2024."""
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+,\d+", number):
        return number.translate(str.maketrans(".,", ",."))
    return number


def _find_names(sentence: str, rules: TextRules, patterns: _Patterns) -> Iterator[Value]:
    for match in patterns.title.finditer(sentence):
        kind = "female" if rules.titles[match[1]] == "Ms." else "male"
        yield Value(*match.span(), kind, f"{rules.titles[match[1]]} {match[2]}")
    for kind, pattern in patterns.names.items():
        for match in pattern.finditer(sentence):
            ending = match[3] or ""
            written = match[0].removesuffix(ending) if ending else match[0]
            yield Value(*match.span(), kind, written, ending)
    for match in _INTRODUCED.finditer(sentence):
        yield Value(*match.span(1), "male", match[1])
    for match in patterns.place.finditer(sentence):
        yield Value(*match.span(), "place", rules.place_names[match[1]])
