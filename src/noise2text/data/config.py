"""The section `data` of a recipe's config: how texts become tokens, and how long they may be."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option
from noise2text.core.errors import Problem

__all__ = ["DataConfig", "FolderTokenizerDataConfig"]

_TOKENIZERS = ("bpe", "characters", "wordpiece")


@dataclass(frozen=True)
class DataConfig(Config):
    """The section `data` of a recipe's config: the tokenizer and the longest texts.

    Its fields are settings; `noise2text config difformer` prints them with their help.

    >>> from noise2text import DataConfig
    >>> DataConfig(tokenizer="characters", max_source=48).max_target
    128
    """

    tokenizer: str = option(
        "bpe",
        "bpe (learned), characters (learned) or wordpiece (from vocabulary_file)",
        choices=_TOKENIZERS,
    )
    vocabulary: int = option(10_000, "number of tokens of a learned BPE", minimum=1)
    vocabulary_file: str = option("", "path of WordPiece's vocab.txt")
    normalize: bool = option(
        False, "spell out umlauts and ß, strip accents, drop brackets (Demirag, 2023, 4.1.1)"
    )
    lowercase: bool = option(False, "lowercase all text")
    max_source: int = option(
        128, "longest source in tokens; longer ones are truncated and counted", minimum=1
    )
    max_target: int = option(
        128, "longest target in tokens; longer ones are truncated and counted", minimum=1
    )

    def __post_init__(self) -> None:
        if self.tokenizer == "wordpiece" and not self.vocabulary_file:
            raise Problem(
                "The tokenizer wordpiece needs the setting vocabulary_file, the path of a vocab.txt."
            )


@dataclass(frozen=True)
class FolderTokenizerDataConfig(DataConfig):
    """The same for recipes that can take the tokenizer of a trained model."""

    tokenizer: str = option(
        "bpe",
        "bpe, characters, wordpiece, or folder (that of model.from_folder)",
        choices=(*_TOKENIZERS, "folder"),
    )
