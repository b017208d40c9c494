"""Values that must be copied, and what the model reads in their place.

A model that has seen few numbers, prices, addresses and names invents them. It reads a placeholder instead, a
word that it is known to copy, and the value takes the place of the placeholder in what it writes:

    Lukas zahlt 12,99 €.  →  Tom zahlt 30 Dollar.  →  Tom pays 30 dollars.  →  Lukas pays 12.99 euros.

Whole numbers up to 12 stay: the model knows them, as words too. Every placeholder is used once per sentence;
values beyond that stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from noise2text.preprocessing.restoration import Restoration
from noise2text.preprocessing.text_rules import Placeholder, TextRules

__all__ = ["Value", "find_values", "replace_values"]

_NUMBER = r"\d+(?:[.,]\d+)*"
_EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_URL = r"(?:https?://|www\.)[^\s<>\"]*[\w/]"
_PHONE = r"\+?\d[\d/-]*(?: [\d/-]*\d{2,})+\b|\+?\d{6,}"
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
    free = {kind: list(each) for kind, each in rules.placeholders.items()}
    pieces, restorations, position = [], [], 0
    for value in find_values(sentence, rules):
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
    for pattern, kind in ((_EMAIL, "male"), (_URL, "place")):
        for match in re.finditer(pattern, sentence):
            yield Value(*match.span(), kind, match[0])
    yield from _find_times(sentence)
    yield from _find_money(sentence, rules)
    yield from _find_numbers(sentence, rules)
    yield from _find_names(sentence, rules)


def _find_times(sentence: str) -> Iterator[Value]:
    clock = r"\b(\d{1,2})(?:[:.](\d{2}) ?Uhr|:(\d{2}))\b"
    for match in re.finditer(clock, sentence):
        yield Value(*match.span(), "time", f"{match[1]}:{match[2] or match[3]}")
    for match in re.finditer(r"\b(1[3-9]|2[0-4]) ?Uhr\b", sentence):  # earlier hours the model knows
        yield Value(*match.span(), "time", f"{match[1]}:00")


def _find_money(sentence: str, rules: TextRules) -> Iterator[Value]:
    units = "|".join(re.escape(unit) for unit in sorted(rules.currencies, key=len, reverse=True))
    after = rf"({_NUMBER})(?:,[-–]+)? ?({units})(?!\w)"
    before = rf"([€$£]) ?({_NUMBER})"
    for match in re.finditer(after, sentence, re.IGNORECASE):
        yield Value(*match.span(), "money", _write_money(match[1], match[2], rules))
    for match in re.finditer(before, sentence):
        yield Value(*match.span(), "money", _write_money(match[2], match[1], rules))


def _write_money(number: str, unit: str, rules: TextRules) -> str:
    name = rules.currencies[unit.lower()]
    return f"{_write_number(number)} {name.removesuffix('s') if number == '1' else name}"


def _find_numbers(sentence: str, rules: TextRules) -> Iterator[Value]:
    months = "|".join(sorted(rules.months))
    for match in re.finditer(_PHONE, sentence):
        yield Value(*match.span(), "number", match[0])
    for match in re.finditer(rf"\b(\d{{1,2}})\.(?= (?:{months})\b)", sentence):
        yield Value(*match.span(), "day", match[1])
    for match in re.finditer(r"(?<![\d.,])(?:1\d|20)\d\d(?![\d%]|[.,]\d)", sentence):
        yield Value(*match.span(), "year", match[0])
    for match in re.finditer(rf"(?<![\w.,]){_NUMBER}(?![\w])", sentence):
        if not match[0].isdigit() or len(match[0]) > 2 or int(match[0]) > MAX_PLAIN_NUMBER:
            yield Value(*match.span(), "number", _write_number(match[0]))


def _write_number(number: str) -> str:
    """A German number as English writes it: 1.250 is 1,250 and 3,5 is 3.5; others stay, as 10.12.2024."""
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+,\d+", number):
        return number.translate(str.maketrans(".,", ",."))
    return number


def _find_names(sentence: str, rules: TextRules) -> Iterator[Value]:
    name = r"[^\W\d_a-zäöüß][\w-]*[\w]"
    titles = "|".join(rules.titles)
    for match in re.finditer(rf"(?<!e )\b({titles}) ((?:Dr\. |Prof\. )*{name})", sentence):
        kind = "female" if rules.titles[match[1]] == "Ms." else "male"
        yield Value(*match.span(), kind, f"{rules.titles[match[1]]} {match[2]}")
    for kind, names in (("male", rules.male_names), ("female", rules.female_names)):
        known = "|".join(sorted(names, key=len, reverse=True))
        # Only a verb follows the first word of a German sentence, so a second capital there is a surname.
        for match in re.finditer(rf"^({known}) {name}\b|\b({known})(s?)\b", sentence):
            ending = match[3] or ""
            written = match[0].removesuffix(ending) if ending else match[0]
            yield Value(*match.span(), kind, written, ending)
    for match in re.finditer(rf"\b(?:heiße|heißt|namens) ({name})", sentence):
        yield Value(*match.span(1), "male", match[1])
    places = "|".join(sorted(rules.place_names, key=len, reverse=True))
    for match in re.finditer(rf"\b({places})\b", sentence):
        yield Value(*match.span(), "place", rules.place_names[match[1]])
