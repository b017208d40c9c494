"""A source between the tokens that a pre-trained model is used to: T5's x </s>, BART's <s> x </s>.

The target is as in `ended`. Which tokens they are is in the model's own tokenizer (`Tokenizer.frame`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from noise2text.data.layouts.canvas import Source
from noise2text.data.layouts.split_with_end import Ended
from noise2text.data.ragged import Rows

__all__ = ["Framed"]


@dataclass(frozen=True)
class Framed(Ended):
    """Source and target apart; the source stands between given tokens, the target's last token is its end."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    def source(self, rows: Rows, *, width: int = 0) -> Source:
        tokens, _ = rows.padded(width, pad=self.pad)  # (B, S)
        first = torch.tensor(self.before, dtype=torch.long).expand(len(tokens), -1)
        room = torch.full((len(tokens), len(self.after)), self.pad)
        tokens = torch.cat([first, tokens, room], dim=1)
        ends = torch.from_numpy(rows.lengths)[:, None] + len(self.before)
        last = torch.tensor(self.after, dtype=torch.long).expand(len(tokens), -1)
        tokens = tokens.scatter(1, ends + torch.arange(len(self.after)), last)
        return Source(tokens, torch.arange(tokens.shape[1]) >= ends + len(self.after))
