"""A tokenizer gives texts back, and no text can bring in a special token."""

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import (
    MAX_SEQUENTIAL_TEXTS,
    Tokenizer,
    learn_bpe,
    learn_characters,
    load_wordpiece,
)

from ..folders import SPECIALS, hugging_face_tokenizer

TEXTS = [
    "the cat sat on the mat; the dog sat too",
    "Größe, naïve café (brackets)",
    "[PAD] [EOS] [MASK]",
    "the [EOS] tokens are only text",
] * 3
VOCABULARY = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "!",
    "'",
    ",",
    ".",
    "[",
    "]",
    "the",
    "cat",
    "sat",
    "don",
    "t",
    "play",
    "##ing",
    "##s",
    "pad",
    "eos",
    "##e",
    "gro",
    "##sse",
    "cafe",
    "Cat",
]
INJECTED = "[PAD] [UNK][BOS] [EOS] a[SEP] [MASK] [CLS] <s> </s>"


def wordpiece(folder: Path, *, normalize: bool = False, lowercase: bool = True) -> Tokenizer:
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return load_wordpiece(folder / "vocab.txt", normalize=normalize, lowercase=lowercase)


@pytest.fixture(params=["bpe", "characters", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    makers = {
        "bpe": lambda: learn_bpe(TEXTS, size=320),
        "characters": lambda: learn_characters(TEXTS),
        "wordpiece": lambda: wordpiece(tmp_path),
    }
    return makers[request.param]()


BPE = learn_bpe(TEXTS, size=320)
NORMALIZING_BPE = learn_bpe(TEXTS, size=320, normalize=True)
CHARACTERS = learn_characters(TEXTS)


@settings(deadline=None, max_examples=300)
@given(st.text() | st.from_regex(r"(\s|\[EOS\]|the|ä|\r|\x00){0,9}", fullmatch=True))
def test_bpe_gives_back_every_text_exactly(text: str) -> None:
    [row] = BPE.encode([text])
    assert BPE.decode([row]) == [text]
    assert not BPE.special_tokens & set(row)


@settings(deadline=None)
@given(st.text(alphabet=sorted(set("".join(TEXTS)))))
def test_characters_give_back_every_text_of_their_alphabet(text: str) -> None:
    [row] = CHARACTERS.encode([text])
    assert len(row) == len(text)
    assert CHARACTERS.decode([row]) == [text]


def test_an_unseen_character_is_unknown() -> None:
    assert CHARACTERS.encode(["aяяa"]) == [
        [*CHARACTERS.encode(["a"])[0], *[CHARACTERS.unk] * 2, *CHARACTERS.encode(["a"])[0]]
    ]


def test_wordpiece_is_the_library_s(tmp_path: Path) -> None:
    ours = wordpiece(tmp_path)
    oracle = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"))
    texts = ["The cat sat.", "Don't play, playings!", "CAFÉ xyz 你好", "the  cat\t\u00a0sat", "", "[ x"]
    expected = oracle.encode_batch(texts, add_special_tokens=False)
    assert ours.encode(texts) == [row.ids for row in expected]
    decoded = oracle.decode_batch([row.ids for row in expected])
    assert ours.decode(ours.encode(texts)) == [text.replace(" ' ", "'") for text in decoded]
    assert ours.decode(ours.encode(["The cats don't play."])) == ["the cats don't play."]


def test_wordpiece_keeps_case_when_asked(tmp_path: Path) -> None:
    cased = wordpiece(tmp_path, lowercase=False)
    assert cased.decode(cased.encode(["the Cat"])) == ["the Cat"]


def test_bert_s_specials_serve(tmp_path: Path) -> None:
    ours = wordpiece(tmp_path)
    assert (ours.pad, ours.unk, ours.bos, ours.eos, ours.sep, ours.mask) == (0, 2, 3, 4, 4, 5)
    assert len(ours) == len(VOCABULARY)


def test_split_gives_the_text_of_each_token(tmp_path: Path) -> None:
    bpe = learn_bpe(["the cat sat", "the cat sat"], size=300)
    (row,) = bpe.encode(["the cat"])
    assert bpe.split(row) == ["the", " cat"]
    assert bpe.split([*row, bpe.mask]) == ["the", " cat", "[MASK]"]


def test_learned_specials_come_first() -> None:
    for learned in (BPE, CHARACTERS):
        assert [learned.pad, learned.unk, learned.bos, learned.eos, learned.sep, learned.mask] == list(
            range(6)
        )
        assert learned.special_tokens == frozenset(range(6))
    assert len(BPE) <= 320
    assert len(CHARACTERS) == 6 + len(set("".join(TEXTS)))


def test_no_text_brings_in_a_special_token(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    for either in (tokenizer, Tokenizer.load(tmp_path / "tokenizer.json")):
        for row in either.encode([INJECTED, *INJECTED.split()]):
            assert not either.special_tokens - {either.unk} & set(row)


def test_special_tokens_are_not_decoded(tokenizer: Tokenizer) -> None:
    [row] = tokenizer.encode(["the cat"])
    framed = [tokenizer.bos, *row, tokenizer.eos, tokenizer.mask, tokenizer.unk, tokenizer.pad, tokenizer.pad]
    assert tokenizer.decode([framed, [tokenizer.pad], []]) == ["the cat", "", ""]
    assert tokenizer.decode([list(np.array(framed))]) == ["the cat"]


def test_many_texts_are_decoded_as_each_of_them_is(tokenizer: Tokenizer) -> None:
    rows = [
        [number % len(tokenizer), (7 * number) % len(tokenizer)] for number in range(3 * MAX_SEQUENTIAL_TEXTS)
    ]
    assert tokenizer.decode(rows) == [tokenizer.decode([row])[0] for row in rows]


def test_nothing_is_cut_padded_or_added(tokenizer: Tokenizer) -> None:
    short, long, empty = tokenizer.encode(["the", "the " * 3000, ""])
    assert len(short) < 5
    assert len(long) >= 3000
    assert empty == []
    assert tokenizer.encode([]) == []


@settings(deadline=None)
@given(st.text(max_size=30), st.integers(0, 60))
def test_fewer_tokens_are_those_that_encoding_gives(text: str, limit: int) -> None:
    for tokenizer in (BPE, NORMALIZING_BPE, CHARACTERS):
        assert tokenizer.has_fewer_tokens(text, limit) == (len(tokenizer.encode([text])[0]) < limit)


def test_batches_encode_as_single_texts(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(TEXTS) == [tokenizer.encode([text])[0] for text in TEXTS]


def test_a_saved_tokenizer_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.special_tokens == tokenizer.special_tokens
    assert len(again) == len(tokenizer)
    assert again.encode(TEXTS) == tokenizer.encode(TEXTS)


def test_learning_is_deterministic_and_depends_on_the_texts() -> None:
    texts = [f"{a}{b} {b}{a}{a} word{a}" for a in "abcdefgh" for b in "ijklmnop"] * 2
    prints = {learn_bpe(iter(texts), size=400).fingerprint for _ in range(4)}
    assert len(prints) == 1
    assert learn_bpe(texts[:9], size=400).fingerprint not in prints
    assert len({learn_characters(order).fingerprint for order in (texts, texts[::-1])}) == 1


def test_a_problem_in_the_corpus_comes_through_learning() -> None:
    def texts() -> Iterator[str]:
        yield "a text"
        raise Problem("corpus.tsv, line 2: bad")

    for learn in (lambda: learn_bpe(texts(), size=300), lambda: learn_characters(texts())):
        with pytest.raises(Problem, match="line 2"):
            learn()


NORMALIZED = {
    "Größe über Öl, Ärger, STRAẞE, Fuß": "Groesse ueber Oel, Aerger, STRASSE, Fuss",
    unicodedata.normalize("NFD", "Größe Älter"): "Groesse Aelter",
    "naïve café, Ångström, piñata, ça": "naive cafe, Angstroem, pinata, ca",
    "a (b) [c] {d} ⟨e⟩": "a b c d e",
    "„Ja“, sagte er – 5 €!": "„Ja“, sagte er – 5 !",
    " a\t\u00a0 b \n": "a b",
    "да 你好 😀 1": "1",
    "(你)": "",
}


@pytest.mark.parametrize("text, expected", NORMALIZED.items())
def test_normalization_is_the_thesis_s_and_is_saved(text: str, expected: str, tmp_path: Path) -> None:
    learn_bpe(TEXTS, size=300, normalize=True).save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.decode(loaded.encode([text])) == [expected]
    characters = learn_characters([text, "x"], normalize=True)
    assert characters.decode(characters.encode([text])) == [expected]
    assert characters.unk not in characters.encode([text])[0]


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_normalized_text_is_plain_and_normalizes_to_itself(text: str) -> None:
    [plain] = NORMALIZING.decode(NORMALIZING.encode([text]))
    assert NORMALIZING.decode(NORMALIZING.encode([plain])) == [plain]
    assert plain == " ".join(plain.split())
    for character in plain:
        ascii_letter = character.isascii() and character.isalnum()
        assert ascii_letter or character == " " or unicodedata.category(character).startswith("P")
        assert character not in "()[]{}"


NORMALIZING = learn_bpe(TEXTS, size=300, normalize=True)


def test_lowercasing() -> None:
    for learned in (learn_bpe(TEXTS, size=300, lowercase=True), learn_characters(TEXTS, lowercase=True)):
        assert learned.decode(learned.encode(["GRÖßE"])) == ["größe"]
    both = learn_characters(["Äpfel"], normalize=True, lowercase=True)
    assert both.decode(both.encode(["ÄPFEL"])) == ["aepfel"]


def test_wordpiece_normalizes_too(tmp_path: Path) -> None:
    german = wordpiece(tmp_path, normalize=True)
    assert german.decode(german.encode(["(Große) café"])) == ["grosse cafe"]


def test_a_file_that_is_no_tokenizer_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for missing in (path, tmp_path):
        with pytest.raises(Problem, match="There is no tokenizer"):
            Tokenizer.load(missing)
    tokenizer.save(path)
    whole = path.read_bytes()
    other = json.dumps({"architectures": ["BertModel"]}).encode()
    for content in (b"", whole[:-30], whole[: len(whole) // 2], b"\xff\xfe", other, b"[]"):
        path.write_bytes(content)
        with pytest.raises(Problem, match="damaged or not a tokenizer"):
            Tokenizer.load(path)
    path.write_bytes(whole.replace(b"[MASK]", b"[MUSK]"))
    with pytest.raises(Problem, match=r"tokenizer\.json: the vocabulary has no \[MASK\]"):
        Tokenizer.load(path)


def test_a_vocabulary_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    with pytest.raises(Problem, match="There is no vocabulary"):
        load_wordpiece(path)
    path.write_text("the\ncat\n")
    with pytest.raises(Problem, match=r"has no \[PAD\] or \[UNK\] or \[CLS\]"):
        load_wordpiece(path)
    path.write_text("\n".join([*VOCABULARY, "the"]))
    with pytest.raises(Problem, match="line 28: 'the' is on line 13 too"):
        load_wordpiece(path)
    path.write_bytes(b"\xff")
    with pytest.raises(Problem, match="UTF-8"):
        load_wordpiece(path)


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(Problem, match="262"):
        learn_bpe(TEXTS, size=261)
    assert len(learn_bpe(TEXTS, size=262)) == 262
    with pytest.raises(Problem, match="no character"):
        learn_characters(["", ""])


def test_a_text_that_is_none_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(Problem, match="Text 2"):
        tokenizer.encode(["a", "\ud800"])


@pytest.mark.parametrize(
    ("family", "before", "after", "begin"),
    [
        ("gpt2", "", "", "<|endoftext|>"),
        ("t5", "", "</s>", "<pad>"),
        ("bart", "<s>", "</s>", "<s>"),
        ("marian", "", "</s>", "<pad>"),
    ],
)
def test_a_pre_trained_models_tokenizer_has_its_own_special_tokens_and_frame(
    family: str, before: str, after: str, begin: str, tmp_path: Path
) -> None:
    inner = hugging_face_tokenizer(family)
    inner.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    number = inner.token_to_id
    expected = tuple((number(mark),) if mark else () for mark in (before, after))
    assert loaded.surrounding_tokens == expected
    assert loaded.bos == number(begin)
    assert loaded.eos == number("<|endoftext|>" if family == "gpt2" else "</s>")
    assert loaded.special_tokens == {number(mark) for mark in SPECIALS[family]}
    (row,) = loaded.encode(["7. mai"])
    assert not loaded.special_tokens & set(row)
    assert loaded.decode([[*expected[0], *row, loaded.eos, loaded.pad]]) == ["7. mai"]


def test_a_learned_tokenizer_has_no_frame(tokenizer: Tokenizer) -> None:
    assert tokenizer.surrounding_tokens == ((), ())
    assert learn_bpe(["a b"], size=300).surrounding_tokens == ((), ())
