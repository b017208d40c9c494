"""fairseq's dictionaries (dict.de.txt) as tokenizers.

A dictionary has one line per token, "token count", after four special tokens that are not in the file. Its
texts are tokens with spaces between them. A token that ends in @@ continues in the next one (subword-nmt):

    "das ist ver@@ rückt"  →  four tokens  →  "das ist verrückt"

Encoding splits at spaces, as fairseq does, and decoding joins the pieces (`--remove-bpe`).
"""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from noise2text.core.errors import Problem, abbreviate
from noise2text.data.tokenizer import Tokenizer

__all__ = ["load_fairseq_dictionary"]

FAIRSEQ_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
_NO_PREFIX = "\ue000"  # of private use: no token begins with it, so every token gets a space


def load_fairseq_dictionary(path: Path) -> Tokenizer:
    """The tokenizer of a dictionary; its token ids are fairseq's.

    Args:
        path: a dict.….txt of a folder that `fairseq-preprocess` wrote.
    """
    vocabulary = _read_dictionary(path)
    backend = tokenizers.Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    spaces = decoders.WordPiece(prefix=_NO_PREFIX, cleanup=False)
    backend.decoder = decoders.Sequence([spaces, decoders.Fuse(), decoders.Replace(Regex("@@( |$)"), "")])
    backend.add_special_tokens(list(FAIRSEQ_SPECIAL_TOKENS))
    return Tokenizer(backend)


def _read_dictionary(path: Path) -> dict[str, int]:
    """The id of each token."""
    try:
        lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{path} is missing or not UTF-8 text ({error}): copy it from fairseq's data-bin folder."
        ) from error
    vocabulary = {token: number for number, token in enumerate(FAIRSEQ_SPECIAL_TOKENS)}
    for number, line in enumerate(lines):
        token, _, count = line.rpartition(" ")
        if not token or not count.isdecimal():
            raise Problem(
                f"{path}, line {number + 1}: {abbreviate(line)} is not a token and its count; name a "
                f"dict.….txt of fairseq."
            )
        if token in vocabulary:
            raise Problem(f"{path}, line {number + 1}: {abbreviate(token)} is there twice; drop one.")
        vocabulary[token] = number + len(FAIRSEQ_SPECIAL_TOKENS)
    return vocabulary
