"""A source between the special tokens that a pre-trained model expects: T5's x </s>, BART's <s> x </s>.

The target is as in `split_with_end`. The tokens come from the model's tokenizer
(`Tokenizer.surrounding_tokens`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

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
        tokens, _ = rows.pad_to(width, pad=self.pad)  # (B, S)
        first = torch.tensor(self.prefix_tokens, dtype=torch.long).expand(len(tokens), -1)
        room = torch.full((len(tokens), len(self.suffix_tokens)), self.pad)
        tokens = torch.cat([first, tokens, room], dim=1)
        ends = torch.from_numpy(rows.lengths)[:, None] + len(self.prefix_tokens)
        last = torch.tensor(self.suffix_tokens, dtype=torch.long).expand(len(tokens), -1)
        tokens = tokens.scatter(1, ends + torch.arange(len(self.suffix_tokens)), last)
        return Source(tokens, torch.arange(tokens.shape[1]) >= ends + len(self.suffix_tokens))
