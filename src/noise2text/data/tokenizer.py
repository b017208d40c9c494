"""Texts into token numbers and back, by Hugging Face tokenizers.

- bpe         byte-level byte-pair encoding learned from a corpus (Sennrich et al., 2016):
              decode(encode(x)) = x for every text, whitespace included
- characters  one token a character of the corpus; any other is [UNK]
- wordpiece   BERT's greedy longest match over a given vocabulary (Devlin et al., 2019); decoding mends spaces

Text is text: a corpus that holds the letters "[EOS]" yields the tokens of those letters, never the special
one. Normalisation, when asked for, is saved with the tokenizer, and the laws above then hold for the
normalised text. It is the one of the thesis on DiffuSeq for translation (section 4.1.1): ä ö ü ß become ae oe
ue ss, other accents are stripped, and what is left is a–z, A–Z, 0–9, punctuation other than brackets, and
single spaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from noise2text.core.errors import Problem

__all__ = ["Tokenizer", "learn_bpe", "learn_characters", "load_wordpiece"]

SPECIALS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "[SEP]", "[MASK]")
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FEW = 64  # texts that are decoded sooner than the threads are awake that would share the work
GPT2_SPECIAL = "<|endoftext|>"  # begins and ends; T5, BART and Marian have <pad>, </s> and perhaps <s>


class Tokenizer:
    """Texts to token numbers and back; the special tokens are attributes, and never come from a text."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.encode_special_tokens = True  # a text's "[EOS]" is five characters; not saved by the library
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        self._size = 1 + max(inner.get_vocab().values())
        self.pad = self._special("[PAD]", "<pad>", GPT2_SPECIAL)
        self.unk = self._special("[UNK]", "<unk>", GPT2_SPECIAL)
        self.bos = self._special("[BOS]", "[CLS]", "<s>", "<pad>", GPT2_SPECIAL)
        self.eos = self._special("[EOS]", "[SEP]", "</s>", GPT2_SPECIAL)
        self.sep = self._special("[SEP]", "</s>", GPT2_SPECIAL)
        self.mask = self._special("[MASK]", "<mask>", "<pad>", GPT2_SPECIAL)
        named = {self.pad, self.unk, self.bos, self.eos, self.sep, self.mask}
        added = inner.get_added_tokens_decoder()
        self.specials = frozenset(named | {number for number, token in added.items() if token.special})

    def _special(self, *names: str) -> int:
        """The number of the first special token that the vocabulary has."""
        for number in map(self._inner.token_to_id, names):
            if number is not None:
                return int(number)
        raise Problem(
            f"the vocabulary has no {' or '.join(names)}; use one that has {' '.join(BERT_SPECIALS)}"
        )

    def __len__(self) -> int:
        return self._size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, without special ones, however many they are."""
        try:
            return [row.ids for row in self._inner.encode_batch_fast(list(texts), add_special_tokens=False)]
        except TypeError as error:
            number = next((n for n, text in enumerate(texts, 1) if not _encodable(text)), 0)
            raise Problem(
                f"Text {number} is not a string that UTF-8 can hold; correct or drop it."
            ) from error

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of tokens, special ones left out."""
        if len(rows) <= FEW:
            return [self._inner.decode(list(row)) for row in rows]
        return [str(text) for text in self._inner.decode_batch([list(row) for row in rows])]

    @property
    def spellings(self) -> list[str]:
        """What each token says when it stands alone, by its number; special ones say nothing."""
        return self.decode([[number] for number in range(len(self))])

    @property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What a pre-trained model is used to see before and after a text; nothing if learned here."""
        plain, framed = (self._inner.encode("a", add_special_tokens=added).ids for added in (False, True))
        starts = range(len(framed) - len(plain) + 1)
        start = next(at for at in starts if framed[at : at + len(plain)] == plain)
        return tuple(framed[:start]), tuple(framed[start + len(plain) :])

    @property
    def marks_continuations(self) -> bool:
        """Whether a piece that goes on a word is spelt ##…, as in WordPiece; others mark what begins one."""
        return isinstance(self._inner.model, models.WordPiece)

    @property
    def joins_spaces(self) -> bool:
        """Whether a word brings the space before it along, as in byte-level BPE."""
        return isinstance(self._inner.pre_tokenizer, pre_tokenizers.ByteLevel)

    @property
    def fingerprint(self) -> str:
        """A digest that two tokenizers share only if they do the same."""
        return hashlib.sha256(self._inner.to_str().encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Writes tokenizer.json, which any program with Hugging Face tokenizers can read."""
        Path(path).write_text(self._inner.to_str(pretty=True), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer in a tokenizer.json."""
        try:
            inner = tokenizers.Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise Problem(
                f"There is no tokenizer at {path} ({error.strerror}); name a model folder."
            ) from error
        except Exception as error:  # the library raises nothing narrower for a file that it cannot read
            raise Problem(f"{path} is damaged or not a tokenizer ({error}); copy the file again.") from error
        try:
            return cls(inner)
        except Problem as problem:
            raise Problem(f"{path}: {problem}.") from problem


def _encodable(text: object) -> bool:
    return isinstance(text, str) and not any("\ud800" <= character <= "\udfff" for character in text)


def learn_bpe(
    texts: Iterable[str], *, size: int, normalise: bool = False, lowercase: bool = False
) -> Tokenizer:
    """Byte-level BPE of at most `size` tokens, the same for the same texts; merges occur at least twice."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(SPECIALS) + len(alphabet)
    if size < least:
        raise Problem(f"A BPE vocabulary of {size} is too small; bytes and special tokens need {least}.")
    inner = tokenizers.Tokenizer(models.BPE())
    inner.normalizer = _normalizer(normalise=normalise, lowercase=lowercase)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIALS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return Tokenizer(inner)


def learn_characters(texts: Iterable[str], *, normalise: bool = False, lowercase: bool = False) -> Tokenizer:
    """A token for each character that occurs in the texts, in the order of their code points."""
    normalizer = _normalizer(normalise=normalise, lowercase=lowercase)
    characters: set[str] = set()
    for text in texts:
        characters.update(normalizer.normalize_str(text) if normalizer else text)
    if not characters:
        raise Problem("There is no character to learn from; give a corpus with text in it.")
    vocabulary = {token: number for number, token in enumerate((*SPECIALS, *sorted(characters)))}
    # BPE without merges: every character is a word's last piece, and no pattern has to find them.
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="[UNK]"))
    if normalizer:
        inner.normalizer = normalizer
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(list(SPECIALS))
    return Tokenizer(inner)


def load_wordpiece(vocab: Path, *, normalise: bool = False, lowercase: bool = True) -> Tokenizer:
    """BERT's tokenizer over a vocab.txt of one token a line."""
    vocabulary = _vocabulary(Path(vocab))
    inner = tokenizers.Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    bert = normalizers.BertNormalizer(lowercase=lowercase)
    inner.normalizer = normalizers.Sequence([*_thesis(), bert]) if normalise else bert
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # The library cleans up word by word and leaves "don ' t"; transformers then mends it over the whole text.
    apostrophe = decoders.Replace(" ' ", "'")
    inner.decoder = decoders.Sequence([decoders.WordPiece(cleanup=True), decoders.Fuse(), apostrophe])
    inner.add_special_tokens(list(BERT_SPECIALS))
    return Tokenizer(inner)


def _vocabulary(path: Path) -> dict[str, int]:
    try:
        lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    except OSError as error:
        raise Problem(
            f"There is no vocabulary at {path} ({error.strerror}); name BERT's vocab.txt."
        ) from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not valid UTF-8; name BERT's vocab.txt.") from error
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(lines):
        token = line.removesuffix("\r")
        if token in vocabulary:
            raise Problem(
                f"{path}, line {number + 1}: {token!r} is on line {vocabulary[token] + 1} too; drop one."
            )
        vocabulary[token] = number
    missing = [token for token in BERT_SPECIALS if token not in vocabulary]
    if missing:
        raise Problem(f"{path} has no {' or '.join(missing)}; name BERT's vocab.txt, one token a line.")
    return vocabulary


def _thesis() -> list[normalizers.Normalizer]:
    """The steps of the thesis's normalisation; letters are taken apart first, so that ä is a and U+0308."""
    return [
        normalizers.NFD(),
        normalizers.Replace(Regex("(?<=[aouAOU])\u0308"), "e"),
        normalizers.Replace("ß", "ss"),
        normalizers.Replace("ẞ", "SS"),
        normalizers.StripAccents(),
        # „ and ‚ open German quotations; Unicode files them with the brackets.
        normalizers.Replace(Regex(r"[^a-zA-Z0-9\p{P}\s]|[\p{Ps}\p{Pe}&&[^„‚]]"), ""),
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
    ]


def _normalizer(*, normalise: bool, lowercase: bool) -> normalizers.Normalizer | None:
    steps = [*(_thesis() if normalise else []), *([normalizers.Lowercase()] if lowercase else [])]
    return normalizers.Sequence(steps) if steps else None
