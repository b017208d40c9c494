"""Systems that write from left to right, and say how likely a text is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from noise2text.core.devices import send
from noise2text.data.layouts.split_with_end import Ended
from noise2text.data.layouts.template import encode_pieces
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveSettings, LeftToRight
from noise2text.generation.likelihood import log_likelihood, log_likelihoods
from noise2text.generation.parallel import Draft
from noise2text.generation.search import Rules
from noise2text.generation.selection import Selector
from noise2text.models.model import SELECTORS, System, require_lists
from noise2text.nn.incremental_decoder import Writer

__all__ = ["Autoregressive"]


class Autoregressive(System):
    """A model that writes from left to right; it can also say how likely a given text is."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        writer: Writer,
        how: AutoregressiveSettings,
        max_source: int,
        max_target: int,
        layout: Ended | None = None,
    ) -> None:
        """Without a `layout` a source is its tokens alone."""
        super().__init__()
        self.tokenizer, self.how, self.writer = tokenizer, how, writer
        self.layout = layout or Ended(tokenizer.pad, tokenizer.eos)
        self.max_source, self.max_target = max_source, max_target
        forbidden = torch.tensor(sorted(tokenizer.specials - {tokenizer.eos}), dtype=torch.long)
        self.register_buffer("forbidden", forbidden, persistent=False)

    forbidden: torch.Tensor

    def drafts(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> list[Draft]:
        return self.decode(self.writer, rows, how, seed=seed, places=places, trace=trace)

    def decode(
        self,
        writer: Writer,
        rows: Sequence[Sequence[int]],
        how: Any,
        *,
        seed: int,
        places: Sequence[int],
        trace: bool,
    ) -> list[Draft]:
        """What a writer, this system's or one around it, makes of the sources at these places."""
        rules = Rules(self.tokenizer.eos, self.tokenizer.pad, self.forbidden, self.max_target)
        captures = self.recorded()
        source, known = self.sources(rows, places, few=captures is not None)
        drafts = LeftToRight(writer, self.tokenizer.bos, rules, captures).decode(
            source.to(self.device),
            how,
            prefix=encode_pieces([how.prefix], self.tokenizer)[0],
            seed=seed,
            places=send(known, self.device),
            trace=trace,
        )
        return drafts[: len(rows)]

    def selector(self, how: Any) -> Selector:
        return SELECTORS[how.select](how)

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False, batch: int = 64
    ) -> list[float]:
        """log p(target | text) of each pair, the end included; or its mean over the tokens and the end.

        A target that this model cannot write has −∞: one that is too long, or any but the empty one
        to an empty text. A text that is too long is cut, as for `generate`.
        """
        require_lists("likelihood", texts, targets)
        self.rest()
        sources = [row[: self.max_source] for row in self.tokenizer.encode(texts)]
        return log_likelihoods(
            partial(log_likelihood, self.writer, bos=self.tokenizer.bos, per_token=per_token),
            self.layout,
            sources,
            self.tokenizer.encode(targets),
            longest=self.max_target,
            batch=batch,
            device=self.device,
        )
