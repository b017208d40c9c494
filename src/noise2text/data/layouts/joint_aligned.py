"""Source and target at fixed places of one canvas (thesis, footnote 9):

    [BOS] source [PAD] … [PAD] [SEP] target [EOS] [PAD] … [PAD]

The source is filled up to its greatest length before the target begins, so a place on the canvas is always
the same place of the target: what a schedule by position needs, and what makes it easy to find the words of
the source that a word of the target goes with. The source's padding is given, never noised.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from noise2text.data.layouts.canvas import Source
from noise2text.data.layouts.joint import MARKS, Joint
from noise2text.data.ragged import Rows

__all__ = ["Fixed"]


@dataclass(frozen=True)
class Fixed(Joint):
    """A joint canvas whose separator does not move."""

    room: int  # for the source

    @property
    def first(self) -> int:
        """The place of the target's first token."""
        return self.room + 2

    def separators(self, source: Source) -> Tensor:
        return source.tokens.new_full((len(source.tokens), 1), self.room + 1)

    def needs(self, sources: Rows, targets: Rows) -> int:
        source, target = int(sources.lengths.max()), int(targets.lengths.max())
        return max(self.room + target + MARKS, self.width + source - self.room)
