"""A source between the special tokens that a pre-trained model expects: T5's x </s>, BART's <s> x </s>.

The target is as in `split_with_end`. The tokens come from the model's tokenizer
(`Tokenizer.surrounding_tokens`).
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.data.layouts.base import Source
from noise2text.data.layouts.split_with_end import SplitWithEndLayout
from noise2text.data.ragged import RaggedRows

__all__ = ["MarkedSourceLayout"]


@dataclass(frozen=True)
class MarkedSourceLayout(SplitWithEndLayout):
    """Source and target apart; the source is between special tokens, the target's last token is its end."""

    prefix_tokens: tuple[int, ...]
    suffix_tokens: tuple[int, ...]

    def make_source(self, rows: RaggedRows, *, width: int = 0) -> Source:
        added = len(self.prefix_tokens) + len(self.suffix_tokens)
        return super().make_source(rows.surround(self.prefix_tokens, self.suffix_tokens), width=width + added)
