"""Source and target at fixed positions of one canvas (Demirag, 2023, footnote 9):

    [BOS] source [PAD] … [PAD] [SEP] target [EOS] [PAD] … [PAD]

The source is padded to its maximum length, so every position of the canvas is always the same position of the
target. A schedule that depends on the position needs this, and it makes it easier to align target words with
source words. The source's padding is given, never noised.
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
    """A joint canvas whose separator is always at the same position."""

    max_source: int  # tokens reserved for the source

    @property
    def target_start(self) -> int:
        """The position of the target's first token."""
        return self.max_source + 2

    def separator_positions(self, source: Source) -> Tensor:
        return source.tokens.new_full((len(source.tokens), 1), self.max_source + 1)

    def required_width(self, sources: RaggedRows, targets: RaggedRows) -> int:
        source, target = int(sources.lengths.max()), int(targets.lengths.max())
        return max(self.max_source + target + NUM_SPECIAL_TOKENS, self.width + source - self.max_source)
