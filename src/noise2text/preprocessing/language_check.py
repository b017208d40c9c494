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
from itertools import chain
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
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_BEYOND_LATIN = re.compile("[^\0-\u024f]")
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
def _load_languages_of_words() -> dict[str, list[str]]:
    """The languages in which a word is frequent."""
    languages: dict[str, list[str]] = {}
    for language, words in tomllib.loads(_WORDS_FILE.read_text(encoding="utf-8")).items():
        for word in set(words.split()):
            languages.setdefault(word, []).append(language)
    return languages


def find_other_language(text: str, expected: str) -> str:
    """The name of the language or script that a text seems to be in, if not the expected one; else empty.

    >>> find_other_language("Where is the station?", "de"), find_other_language("Wo ist er?", "de")
    ('English', '')
    """
    if _BEYOND_LATIN.search(text) and (script := _find_script(text)):
        return script
    languages = _load_languages_of_words()
    known = [languages[word] for word in _WORD.findall(text.lower()) if word in languages]
    own = sum(expected in each for each in known)
    if len(known) <= max(1, 2 * own):  # no language has more words than there are
        return ""
    hits = Counter(chain.from_iterable(known))
    others = [language for language in LANGUAGE_NAMES if language != expected]
    other = max(others, key=hits.__getitem__)
    return LANGUAGE_NAMES[other] if hits[other] > max(1, 2 * own) else ""


def _find_script(text: str) -> str:
    """The script of most letters, if it is not Latin; else empty."""
    letters = filter(str.isalpha, _BEYOND_LATIN.findall(text))
    scripts = Counter(unicodedata.name(letter, "").split(" ")[0].split("-")[0] for letter in letters)
    for script in _SCRIPTS:
        if 2 * scripts[script] > sum(map(str.isalpha, text)):
            return script.capitalize() if script != "CJK" else "Chinese or Japanese"
    return ""
