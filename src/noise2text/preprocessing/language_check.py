"""Which language a text seems to be in, by its script and its most frequent short words.

The check is small and says nothing when unsure: a text needs two known words of another language, and more
than twice as many of it as of the expected one; or most of its letters in another script.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path

__all__ = ["LANGUAGE_NAMES", "find_other_language"]

LANGUAGE_NAMES = {
    "de": "German",
    "en": "English",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "nl": "Dutch",
    "pt": "Portuguese",
    "pl": "Polish",
    "sv": "Swedish",
    "tr": "Turkish",
}

_WORDS_FILE = Path(__file__).with_name("frequent_words.toml")
_SCRIPTS = (
    "CYRILLIC",
    "GREEK",
    "ARABIC",
    "HEBREW",
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "HANGUL",
    "DEVANAGARI",
    "THAI",
)


@cache
def _load_frequent_words() -> dict[str, frozenset[str]]:
    words = tomllib.loads(_WORDS_FILE.read_text(encoding="utf-8"))
    return {language: frozenset(each.split()) for language, each in words.items()}


def find_other_language(text: str, expected: str) -> str:
    """The name of the language or script that a text seems to be in, if not the expected one; else empty.

    >>> find_other_language("Where is the station?", "de"), find_other_language("Wo ist er?", "de")
    ('English', '')
    """
    letters = [character for character in text if character.isalpha()]
    scripts = Counter(unicodedata.name(letter, "").split(" ")[0].split("-")[0] for letter in letters)
    for script in _SCRIPTS:
        if 2 * scripts[script] > len(letters):
            return script.capitalize() if script != "CJK" else "Chinese or Japanese"
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower())
    hits = {
        language: sum(word in known for word in words) for language, known in _load_frequent_words().items()
    }
    own = hits.pop(expected, 0)
    other = max(hits, key=hits.__getitem__)
    return LANGUAGE_NAMES[other] if hits[other] >= 2 and hits[other] > 2 * own else ""
