"""A dictionary of fairseq gives fairseq's token ids, and texts as its --remove-bpe joins them."""

from __future__ import annotations

from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.data.fairseq_dictionary import load_fairseq_dictionary
from noise2text.data.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    path = tmp_path / "dict.de.txt"
    path.write_text("das 9\nver@@ 7\nrückt 5\n## 4\nmadeupword0000 0\n", "utf-8")
    return load_fairseq_dictionary(path)


def test_ids_are_the_lines_after_four_special_tokens(tokenizer: Tokenizer) -> None:
    assert (tokenizer.pad, tokenizer.eos, tokenizer.unk) == (1, 2, 3)
    assert tokenizer.encode(["das  ver@@ rückt\n", "Das"]) == [[4, 5, 6], [3]]
    assert len(tokenizer) == 9


def test_texts_are_joined_like_fairseqs(tokenizer: Tokenizer) -> None:
    """(sentence + " ").replace("@@ ", "").rstrip(), without <s>, <pad> and </s>."""
    rows = [[4, 5, 6], [5], [7, 7, 4], [4, 5, 5, 6, 2, 1, 1], []]
    assert tokenizer.decode(rows) == ["das verrückt", "ver", "## ## das", "das ververrückt", ""]


def test_a_saved_dictionary_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.decode(loaded.encode(["das ver@@ rückt"])) == ["das verrückt"]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"das 9\nrot\n", "line 2: 'rot' is not a token and its count"),
        (b"das 9\n\n", "line 2: '' is not a token"),
        (b"das viel\n", "line 1: 'das viel' is not a token"),
        (b"das 9\ndas 9\n", "line 2: 'das' is there twice"),
        (b"das 9\n<s> 1\n", "line 2: '<s>' is there twice"),
        (b"\xff 9\n", "missing or not UTF-8"),
    ],
)
def test_other_files_are_refused(contents: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_bytes(contents)
    with pytest.raises(Problem, match=message):
        load_fairseq_dictionary(path)
