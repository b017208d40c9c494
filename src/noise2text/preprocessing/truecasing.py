"""Texts in capitals or in lower case, written as the model's training texts write them.

A text is changed only if it is written in one case throughout. Then a function word is in lower case, a known
name has its capital, and any other word takes the form that the tokenizer knows better: the one of fewer
tokens, on a tie the one whose token was learned earlier, since BPE learns frequent tokens first. The first
word gets a capital.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from noise2text.data.tokenizer import Tokenizer
from noise2text.preprocessing.placeholders import has_address
from noise2text.preprocessing.text_rules import TextRules

__all__ = ["is_in_one_case", "restore_case"]

_WORD = re.compile(r"[^\W\d_]+")
_CAPITALIZED = re.compile(r"[A-Z][a-z]")
_VERBATIM = re.compile(r"\S+@\S+|\S*://\S+|www\.\S+")
MIN_CAPITALS = 5  # fewer letters, such as USA or OK, may be an acronym


def is_in_one_case(text: str) -> bool:
    """Whether all letters are capitals, or all are in lower case; a few capitals alone do not count."""
    if has_address(text):
        text = _VERBATIM.sub("", text)
    if _CAPITALIZED.search(text):
        return False
    letters = "".join(_WORD.findall(text))
    return bool(letters) and (
        letters.islower() or (letters.replace("ß", "").isupper() and len(letters) >= MIN_CAPITALS)
    )


def restore_case(sentence: str, rules: TextRules, tokenizer: Tokenizer) -> str:
    """A sentence that is in one case with ordinary capitals; any other sentence as it is.

    >>> import noise2text
    >>> from noise2text.preprocessing.text_rules import load_text_rules
    >>> tokenizer = noise2text.load("de-en", device="cpu").tokenizer
    >>> restore_case("WO IST DER BAHNHOF?", load_text_rules("de-en"), tokenizer)
    'Wo ist der Bahnhof?'
    """
    if not is_in_one_case(sentence):
        return sentence
    names = (
        rules.male_names | rules.female_names | rules.months | rules.place_names.keys() | rules.titles.keys()
    )
    named = {name.lower(): name for name in names}

    def write(match: re.Match[str]) -> str:
        lower = match[0].lower()
        if lower in rules.function_words or lower in named:
            return named.get(lower, lower)
        return min((lower, lower.capitalize()), key=lambda form: _rarity(form, tokenizer))

    written = _outside_verbatim(sentence, lambda part: _WORD.sub(write, part))
    first = _WORD.search(written)
    if first is None or _VERBATIM.match(written):
        return written
    return written[: first.start()] + first[0][0].upper() + written[first.start() + 1 :]


def _outside_verbatim(text: str, change: Callable[[str], str]) -> str:
    """The text with every part changed that is no address."""
    parts = re.split(f"({_VERBATIM.pattern})", text)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _rarity(word: str, tokenizer: Tokenizer) -> tuple[int, int]:
    """The number of tokens of a word inside a sentence, and the last one's id."""
    prefix = " " if tokenizer.attaches_leading_space else ""
    row = tokenizer.encode([prefix + word])[0]
    return len(row), max(row, default=0)
