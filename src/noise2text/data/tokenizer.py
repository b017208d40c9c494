"""Texts to token ids and back, with Hugging Face tokenizers.

- bpe         byte-level byte-pair encoding learned from a corpus (Sennrich et al., 2016):
              decode(encode(x)) = x for every text, whitespace included
- characters  one token per character of the corpus; any other character is [UNK]
- wordpiece   BERT's greedy longest match over a given vocabulary (Devlin et al., 2019);
              decoding repairs spaces

Special tokens never come from a text: the letters "[EOS]" in a corpus become the tokens of those letters.
Optional normalization is saved with the tokenizer; the statements above then hold for the normalized text. It
is that of Demirag (2023, 4.1.1): ä ö ü ß become ae oe ue ss, other accents
are stripped, and what remains is a–z, A–Z, 0–9, punctuation other than brackets, and single spaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from noise2text.core.arguments import parse_path, require_instance, require_texts
from noise2text.core.errors import Problem, abbreviate
from noise2text.core.json_files import read_ordinary_file

__all__ = ["Tokenizer", "learn_bpe", "learn_characters", "load_wordpiece"]

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "[SEP]", "[MASK]")
BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RARE_CHARACTER = "\U0010fffd"  # of private use: in no vocabulary of characters
MAX_SEQUENTIAL_TEXTS = 64  # up to this many texts, one thread is faster than starting several
GPT2_SPECIAL_TOKEN = "<|endoftext|>"  # its only one; T5, BART and Marian have <pad>, </s> and perhaps <s>
SPECIAL_TOKEN_NAMES = (
    ("[PAD]", "<pad>", GPT2_SPECIAL_TOKEN),
    ("[UNK]", "<unk>", GPT2_SPECIAL_TOKEN),
    ("[BOS]", "[CLS]", "<s>", "<pad>", GPT2_SPECIAL_TOKEN),
    ("[EOS]", "[SEP]", "</s>", GPT2_SPECIAL_TOKEN),
    ("[SEP]", "</s>", GPT2_SPECIAL_TOKEN),
    ("[MASK]", "<mask>", "<pad>", GPT2_SPECIAL_TOKEN),
)
"""The names of pad, unk, bos, eos, sep and mask; the first one that a vocabulary has is taken."""


class Tokenizer:
    """Texts to token ids and back; the ids of the special tokens are attributes (`pad`, `bos`, `eos`, …).

    Every model has one, as `model.tokenizer`; `Tokenizer.load` reads the tokenizer.json of a model folder or
    of a Hugging Face model. `encode` takes a list of texts and returns a list of token ids for each of them,
    without special tokens; `decode` is its inverse.

    Args:
        backend: a tokenizer of Hugging Face's `tokenizers`.

    >>> from noise2text.data.tokenizer import learn_characters
    >>> tokenizer = learn_characters(["7 may 1957"])
    >>> tokenizer.decode(tokenizer.encode(["7 may", "19"]))
    ['7 may', '19']
    >>> tokenizer.pad, len(tokenizer)
    (0, 14)
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        require_instance(
            backend, tokenizers.Tokenizer, where="Tokenizer", example="one, or use Tokenizer.load"
        )
        backend.encode_special_tokens = True  # "[EOS]" in a text is 5 characters; tokenizer.json lacks this
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._size = 1 + max(backend.get_vocab().values())
        named: list[int] = []
        for names in SPECIAL_TOKEN_NAMES:
            found = [number for name in names if (number := backend.token_to_id(name)) is not None]
            if not found:
                wanted = " ".join(BERT_SPECIAL_TOKENS)
                raise Problem(f"the vocabulary has no {' or '.join(names)}; use one that has {wanted}")
            named.append(found[0])
        self.pad, self.unk, self.bos, self.eos, self.sep, self.mask = named
        added = backend.get_added_tokens_decoder()
        self._merges_bytes = _merges_bytes(backend)
        self.special_tokens = frozenset([*named, *(n for n, token in added.items() if token.special)])

    def __len__(self) -> int:
        return self._size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without special tokens and without truncation."""
        try:
            if isinstance(texts, str):
                raise TypeError
            return [row.ids for row in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]
        except TypeError as error:
            require_texts(texts, where="Tokenizer.encode")
            number = next((n for n, text in enumerate(texts, 1) if not _is_encodable(text)), 0)
            raise Problem(
                f"Text {number} is not a string that UTF-8 can hold; correct or drop it."
            ) from error

    def has_fewer_tokens(self, text: str, limit: int) -> bool:
        """Whether a text has fewer tokens than the limit; most texts need not be encoded for that."""
        if self._merges_bytes and len(text.encode("utf-8", "surrogatepass")) < limit:
            return True
        return len(self.encode([text])[0]) < limit

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of token ids, without special tokens."""
        try:
            if len(rows) <= MAX_SEQUENTIAL_TEXTS:
                return [self._backend.decode(list(row)) for row in rows]
            return [str(text) for text in self._backend.decode_batch([list(row) for row in rows])]
        except (TypeError, OverflowError) as error:
            raise Problem(
                "Tokenizer.decode takes a list of token ids for each text, such as [[5, 6]], not "
                f"{abbreviate(rows)}."
            ) from error

    def split(self, row: Sequence[int]) -> list[str]:
        """The text of each token of a row on its own, spaces included; special tokens by their names."""
        try:
            return [
                (self._backend.id_to_token(token) or "")
                if token in self.special_tokens
                else self._backend.decode([token])
                for token in row
            ]
        except (TypeError, OverflowError) as error:
            raise Problem(
                f"Tokenizer.split takes a list of token ids, such as [5, 6], not {abbreviate(row)}."
            ) from error

    @property
    def token_texts(self) -> list[str]:
        """The text of each token on its own, by its id; special tokens have an empty text."""
        return self.decode([[number] for number in range(len(self))])

    @property
    def surrounding_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens that a pre-trained model expects before and after a text; none if learned here."""
        plain, with_special_tokens = (
            self._backend.encode("a", add_special_tokens=added).ids for added in (False, True)
        )
        starts = range(len(with_special_tokens) - len(plain) + 1)
        start = next(at for at in starts if with_special_tokens[at : at + len(plain)] == plain)
        return tuple(with_special_tokens[:start]), tuple(with_special_tokens[start + len(plain) :])

    @property
    def marks_continuations(self) -> bool:
        """Whether tokens that continue a word are marked (##…), as in WordPiece."""
        return isinstance(self._backend.model, models.WordPiece)

    @property
    def attaches_leading_space(self) -> bool:
        """Whether the space before a word belongs to its first token, as in byte-level BPE."""
        return isinstance(self._backend.pre_tokenizer, pre_tokenizers.ByteLevel)

    @property
    def fingerprint(self) -> str:
        """A digest that is equal for two tokenizers only if they do the same."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()

    def to_json(self) -> str:
        """The contents of tokenizer.json, which Hugging Face tokenizers can read."""
        return str(self._backend.to_str(pretty=True))

    def save(self, path: Path) -> None:
        """Write tokenizer.json."""
        parse_path(path, where="Tokenizer.save", kind="file").write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer in a tokenizer.json."""
        path = parse_path(path, where="Tokenizer.load", kind="file")
        if not path.is_file():
            raise Problem(f"There is no tokenizer at {path}; name the tokenizer.json of a model folder.")
        return cls.from_json(read_ordinary_file(path), path)

    @classmethod
    def from_json(cls, contents: bytes, path: Path) -> Tokenizer:
        """The tokenizer in the contents of a tokenizer.json; `path` names the file in messages."""
        try:
            tokenizer = cls(tokenizers.Tokenizer.from_str(contents.decode("utf-8")))
            tokenizer.encode([_RARE_CHARACTER])  # fails if the token for unknown characters is missing
            return tokenizer
        except Problem as problem:
            raise Problem(f"{path}: {problem}.") from problem
        except Exception as error:  # the library has no narrower exception for an unreadable file
            reason = str(error)[:200]
            raise Problem(f"{path} is damaged or not a tokenizer ({reason}); copy the file again.") from error


def _merges_bytes(backend: tokenizers.Tokenizer) -> bool:
    """Whether every token is one or more bytes of the text, as in byte-level BPE without normalization."""
    splitter, model = backend.pre_tokenizer, backend.model
    return (
        isinstance(splitter, pre_tokenizers.ByteLevel)
        and not splitter.add_prefix_space
        and backend.normalizer is None
        and isinstance(model, models.BPE)
        and not model.byte_fallback
    )


def _is_encodable(text: object) -> bool:
    return isinstance(text, str) and not any("\ud800" <= character <= "\udfff" for character in text)


def learn_bpe(
    texts: Iterable[str], *, size: int, normalize: bool = False, lowercase: bool = False
) -> Tokenizer:
    """A byte-level BPE of at most `size` tokens; merged pairs occur at least twice in the texts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    minimum = len(SPECIAL_TOKENS) + len(alphabet)
    if size < minimum:
        raise Problem(f"A BPE vocabulary of {size} is too small; bytes and special tokens need {minimum}.")
    backend = tokenizers.Tokenizer(models.BPE())
    if normalize or lowercase:
        backend.normalizer = _make_normalizer(normalize=normalize, lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend)


def learn_characters(texts: Iterable[str], *, normalize: bool = False, lowercase: bool = False) -> Tokenizer:
    """A tokenizer with one token per character of the texts, ordered by code point."""
    normalizer = None
    if normalize or lowercase:
        normalizer = _make_normalizer(normalize=normalize, lowercase=lowercase)
    characters: set[str] = set()
    for text in texts:
        characters.update(normalizer.normalize_str(text) if normalizer else text)
    if not characters:
        raise Problem("There is no character to learn from; give a corpus with text in it.")
    vocabulary = {token: number for number, token in enumerate((*SPECIAL_TOKENS, *sorted(characters)))}
    # BPE without merges splits every text into characters, faster than a pattern would.
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="[UNK]"))
    if normalizer:
        backend.normalizer = normalizer
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return Tokenizer(backend)


def load_wordpiece(vocab: Path, *, normalize: bool = False, lowercase: bool = True) -> Tokenizer:
    """BERT's tokenizer over a vocab.txt with one token per line."""
    vocabulary = _read_vocabulary(Path(vocab))
    backend = tokenizers.Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    bert = normalizers.BertNormalizer(lowercase=lowercase)
    backend.normalizer = normalizers.Sequence([*_transliterating_normalizers(), bert]) if normalize else bert
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # The library cleans up word by word and leaves "don ' t"; transformers repairs it over the whole text.
    apostrophe = decoders.Replace(" ' ", "'")
    backend.decoder = decoders.Sequence([decoders.WordPiece(cleanup=True), decoders.Fuse(), apostrophe])
    backend.add_special_tokens(list(BERT_SPECIAL_TOKENS))
    return Tokenizer(backend)


def _read_vocabulary(path: Path) -> dict[str, int]:
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
    missing = [token for token in BERT_SPECIAL_TOKENS if token not in vocabulary]
    if missing:
        raise Problem(f"{path} has no {' or '.join(missing)}; name BERT's vocab.txt, one token per line.")
    return vocabulary


def _transliterating_normalizers() -> list[normalizers.Normalizer]:
    """The steps of Demirag's normalization; decomposition comes first, so that ä is a and U+0308."""
    return [
        normalizers.NFD(),
        normalizers.Replace(Regex("(?<=[aouAOU])\u0308"), "e"),
        normalizers.Replace("ß", "ss"),
        normalizers.Replace("ẞ", "SS"),
        normalizers.StripAccents(),
        # „ and ‚ open German quotations; Unicode classifies them as brackets.
        normalizers.Replace(Regex(r"[^a-zA-Z0-9\p{P}\s]|[\p{Ps}\p{Pe}&&[^„‚]]"), ""),
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
    ]


def _make_normalizer(*, normalize: bool, lowercase: bool) -> normalizers.Normalizer:
    steps = [
        *(_transliterating_normalizers() if normalize else []),
        *([normalizers.Lowercase()] if lowercase else []),
    ]
    return normalizers.Sequence(steps)
