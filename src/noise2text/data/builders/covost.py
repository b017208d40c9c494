"""CoVoST 2, German to English: sentences of Common Voice, cleaned as by Demirag (2023, 4.1.1).

    ä ö ü ß → ae oe ue ss → no accents → letters, digits and punctuation, without brackets

Common Voice has the sentences, CoVoST their translations and splits; both refer to the same recordings.
Demirag removes letters other than A to Z and a to z. Punctuation is what Unicode calls punctuation, so
typographic quotation marks and dashes stay; symbols such as € are removed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row, skip_row
from noise2text.data.builders.raw_files import RawFile, RawFiles

__all__ = ["COVOST", "clean_text", "read_covost"]

SENTENCES, TRANSLATIONS = "validated.tsv", "covost_v2.de_en.tsv"
TRANSLITERATION = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ẞ": "SS"}
)
OPENING_QUOTES = "„‚"  # Unicode classifies them as brackets
SPLITS = {"train": "train", "train_covost": "train", "dev": "valid", "test": "test"}


def read_covost(raw: RawFiles) -> Iterator[DatasetRow]:
    """The sentences of the recordings that have a translation, in the order of Common Voice."""
    columns = ("path", "translation", "split")
    translations = {
        path: (translation, split)
        for path, translation, split in raw.read_table(TRANSLATIONS, columns, quoted=False)
    }
    for path, sentence in raw.read_table(SENTENCES, ("path", "sentence"), quoted=False):
        translation, part = translations.get(path, ("", ""))
        split = SPLITS.get(part)
        if split is None:
            yield skip_row("not in a split of CoVoST 2")
        else:
            yield make_row(split, clean_text(sentence), clean_text(translation))


def clean_text(text: str) -> str:
    """The text with only Demirag's characters."""
    composed = unicodedata.normalize("NFC", text).translate(TRANSLITERATION)
    letters = (letter for letter in unicodedata.normalize("NFKD", composed) if _is_kept(letter))
    return " ".join("".join(letters).split())


def _is_kept(letter: str) -> bool:
    if letter.isascii():
        return letter.isalnum() or letter.isspace() or _is_punctuation(letter)
    return letter in OPENING_QUOTES or _is_punctuation(letter)


def _is_punctuation(letter: str) -> bool:
    category = unicodedata.category(letter)
    return category.startswith("P") and category not in ("Ps", "Pe")


COVOST = Dataset(
    name="covost",
    task="translation, German to English",
    papers=("Demirag (2023)",),
    files=(
        RawFile(SENTENCES, "https://commonvoice.mozilla.org/datasets (German, version 4)"),
        RawFile(TRANSLATIONS, "https://dl.fbaipublicfiles.com/covost/covost_v2.de_en.tsv.tar.gz"),
    ),
    sizes=(PublishedSizes(127_638, 13_510, 13_510, "Demirag (2023), table 4.1"),),
    license="CC0",
    processing_steps=(
        "the splits of CoVoST 2, training with its own additions (train_covost)",
        "ä, ö, ü and ß spelled ae, oe, ue and ss; no accents",
        "only letters, digits and punctuation marks stay, no brackets and no parentheses",
    ),
    read_rows=read_covost,
)
