"""CoVoST: joined by recording, cleaned as in Demirag (2023)."""

from __future__ import annotations

import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noise2text.data.builders.covost import SENTENCES, TRANSLATIONS, clean_text, read_covost

from .conftest import Write, splits


@pytest.mark.parametrize(
    "text, clean",
    [
        ("Äpfel, Öl, Übung: süß!", "Aepfel, Oel, Uebung: suess!"),
        ("u\u0308ber", "ueber"),  # a combining mark is the same letter
        ("Das Café à la Garçon", "Das Cafe a la Garcon"),
        ("Sie [kam] (spät) {an}.", "Sie kam spaet an."),
        ("„Ja“, sagte er – ‚nein‘…", "„Ja“, sagte er – ‚nein‘..."),
        ("5 € + 3 $ = 8", "5 3 8"),
        ("Łódź и 東京", "odz"),
        ("I don't know; 1,000 - or so?", "I don't know; 1,000 - or so?"),
    ],
)
def test_letters_are_spelled_out_and_the_rest_goes(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@given(st.text())
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = clean_text(text)
    assert clean_text(once) == once
    assert not set(once) & set("()[]{}äöüß\n\t")


@given(st.text(string.ascii_letters + string.digits + ".,;:!?'\"-", min_size=1))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert clean_text(text) == text


def test_sentences_are_joined_with_translations_by_their_recording(write: Write) -> None:
    sentences = ['Schöne "Grüße".', "Ja.", "Nein.", "Wo?", "Wer?", "()"]
    translations = [
        "c.mp3\tNo.\tdev",
        "b.mp3\tYes.\ttrain_covost",
        'a.mp3\tKind "regards".\ttrain',
        "d.mp3\tWhere?\ttest",
        "e.mp3\tWho?\tdev_covost",
        "f.mp3\tNothing\ttest",
        "g.mp3\tNever read\ttrain",
    ]
    read = [f"client\t{name}.mp3\t{text}" for name, text in zip("abcdef", sentences, strict=True)]
    files = {
        SENTENCES: "\n".join(["client_id\tpath\tsentence", *read, ""]),
        TRANSLATIONS: "\n".join(["path\ttranslation\tsplit", *translations, ""]),
    }
    rows = list(read_covost(write(files)))
    assert splits(rows) == {
        "train": [('Schoene "Gruesse".', 'Kind "regards".'), ("Ja.", "Yes.")],
        "valid": [("Nein.", "No.")],
        "test": [("Wo?", "Where?")],
    }
    assert Counter(row.reason for row in rows if row.reason) == {
        "not in a split of CoVoST 2": 1,
        "a side is empty": 1,
    }
