"""Source and target at fixed places of one canvas (thesis, footnote 9):

    [BOS] source [PAD] … [PAD] [SEP] target [EOS] [PAD] … [PAD]

The source is filled up to its greatest length before the target begins, so a place on the canvas is always
the same place of the target: what a schedule by position needs, and what makes it easy to find the words of
the source that a word of the target goes with. The source's padding is given, never noised.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from noise2text.data.layouts.base import Source
from noise2text.data.layouts.joint import NUM_SPECIAL_TOKENS, JointLayout
from noise2text.data.ragged import RaggedRows

__all__ = ["AlignedJointLayout"]


@dataclass(frozen=True)
class AlignedJointLayout(JointLayout):
    """A joint canvas whose separator does not move."""

    max_source: int  # for the source

    @property
    def target_start(self) -> int:
        """The place of the target's first token."""
        return self.max_source + 2

    def separator_positions(self, source: Source) -> Tensor:
        return source.tokens.new_full((len(source.tokens), 1), self.max_source + 1)

    def required_width(self, sources: RaggedRows, targets: RaggedRows) -> int:
        source, target = int(sources.lengths.max()), int(targets.lengths.max())
        return max(self.max_source + target + NUM_SPECIAL_TOKENS, self.width + source - self.max_source)
