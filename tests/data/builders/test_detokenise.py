"""Moses tokens are undone by sacremoses, an implementation that nobody here wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from sacremoses import MosesDetokenizer

from noise2text.core.errors import Problem
from noise2text.data.builders.build import build_dataset
from noise2text.data.builders.detokenise import load_detokenizer
from noise2text.data.builders.iwslt14 import IWSLT14
from noise2text.data.builders.moses import load_sacremoses
from noise2text.data.builders.presplit import MULTI30K
from noise2text.data.builders.registry import DATASETS
from noise2text.data.corpus import Pair, read_pairs

from .conftest import write_files
from .test_iwslt14 import files

SENTENCES = {
    "en": ["It's a well-known story, isn't it?", 'He said, "yes" (I think).', "Rock & roll: 3,000 fans!", ""],
    "de": ["Das ist grün-blau, oder?", "Er sagte: (vielleicht) nicht!", "Am 3. Mai kamen 50 Leute."],
    "ro": ["Ce mai faci? – Bine, mulțumesc!"],
}


@pytest.mark.parametrize("dashes", [True, False])
@pytest.mark.parametrize("language", SENTENCES)
def test_what_was_tokenized_comes_back(language: str, dashes: bool) -> None:
    moses, detokenize = load_sacremoses(language), load_detokenizer(language)
    for text in SENTENCES[language]:
        tokens = moses.tokenize(text, split_dashes=dashes)
        assert detokenize(tokens) == text
        assert detokenize(tokens) == MosesDetokenizer(lang=language).detokenize(tokens.split())


def test_a_dataset_is_written_as_plain_text_and_says_so(tmp_path: Path) -> None:
    write_files(tmp_path, files(['Wahr, oder, "Grün-Blau"?'] * 30, ['Isn\'t it, "yes"?'] * 30))
    build_dataset(IWSLT14, tmp_path, out=tmp_path / "tokens")
    build_dataset(IWSLT14, tmp_path, out=tmp_path / "plain", detokenize=True)
    assert list(read_pairs(str(tmp_path / "tokens/train.jsonl")))[1] == Pair(
        "wahr , oder , &quot; grün-blau &quot; ?", "isn &apos;t it , &quot; yes &quot; ?"
    )
    assert list(read_pairs(str(tmp_path / "plain/train.jsonl")))[1] == Pair(
        'wahr, oder, "grün-blau"?', 'isn\'t it, "yes"?'
    )
    facts = {
        name: json.loads((tmp_path / name / "dataset.json").read_text(encoding="utf-8"))
        for name in ("tokens", "plain")
    }
    assert [facts[name]["detokenised"] for name in ("tokens", "plain")] == [False, True]
    assert facts["tokens"]["pairs"] == facts["plain"]["pairs"]


def test_every_dataset_of_moses_tokens_can_be_undone() -> None:
    for dataset in DATASETS.values():
        has_tokens = any("Moses" in step for step in dataset.processing_steps)
        assert (dataset.moses_languages is not None) == has_tokens, dataset.name


def test_plain_texts_and_a_missing_package_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = {file.name: "x\n" for file in MULTI30K.files}
    write_files(tmp_path / "raw", raw)
    with pytest.raises(Problem, match="multi30k are not Moses tokens"):
        build_dataset(MULTI30K, tmp_path / "raw", out=tmp_path / "out", detokenize=True)
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[datasets\]'"):
        load_detokenizer("de")
