"""Systems that write from left to right, and say how likely a text is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from noise2text.core.devices import copy_to_device
from noise2text.data.layouts.split_with_end import SplitWithEndLayout
from noise2text.data.layouts.template import encode_pieces
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveDecoder, AutoregressiveGenerationConfig
from noise2text.generation.likelihood import autoregressive_log_likelihood, batched_log_likelihoods
from noise2text.generation.parallel import Candidates
from noise2text.generation.search import SearchLimits
from noise2text.generation.selection import Selector
from noise2text.models.model import SELECTORS, Model, require_lists
from noise2text.nn.autoregressive import AutoregressiveNetwork

__all__ = ["AutoregressiveModel"]


class AutoregressiveModel(Model):
    """A model that writes from left to right; it can also say how likely a given text is."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        network: AutoregressiveNetwork,
        generation_config: AutoregressiveGenerationConfig,
        max_source: int,
        max_target: int,
        layout: SplitWithEndLayout | None = None,
    ) -> None:
        """Without a `layout` a source is its tokens alone."""
        super().__init__()
        self.tokenizer, self.generation_config, self.network = tokenizer, generation_config, network
        self.layout = layout or SplitWithEndLayout(tokenizer.pad, tokenizer.eos)
        self.max_source, self.max_target = max_source, max_target
        forbidden = torch.tensor(sorted(tokenizer.special_tokens - {tokenizer.eos}), dtype=torch.long)
        self.register_buffer("forbidden", forbidden, persistent=False)

    forbidden: torch.Tensor

    def decode_batch(
        self,
        rows: Sequence[Sequence[int]],
        generation_config: Any,
        *,
        seed: int,
        indices: Sequence[int],
        trace: bool,
    ) -> list[Candidates]:
        return self.decode(self.network, rows, generation_config, seed=seed, indices=indices, trace=trace)

    def decode(
        self,
        network: AutoregressiveNetwork,
        rows: Sequence[Sequence[int]],
        generation_config: Any,
        *,
        seed: int,
        indices: Sequence[int],
        trace: bool,
    ) -> list[Candidates]:
        """What a writer, this system's or one around it, makes of the sources at these places."""
        limits = SearchLimits(self.tokenizer.eos, self.tokenizer.pad, self.forbidden, self.max_target)
        graphs = self.usable_graphs()
        source, known = self.make_source_batch(rows, indices, pad_to_bucket=graphs is not None)
        decoded = AutoregressiveDecoder(network, self.tokenizer.bos, limits, graphs).decode(
            source.to(self.device),
            generation_config,
            prefix=encode_pieces([generation_config.prefix], self.tokenizer)[0],
            seed=seed,
            indices=copy_to_device(known, self.device),
            trace=trace,
        )
        return decoded[: len(rows)]

    def selector(self, generation_config: Any) -> Selector:
        return SELECTORS[generation_config.select](generation_config)

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False, batch: int = 64
    ) -> list[float]:
        """log p(target | text) of each pair, the end included; or its mean over the tokens and the end.

        A target that this model cannot write has −∞: one that is too long, or any but the empty one
        to an empty text. A text that is too long is cut, as for `generate`.
        """
        require_lists("likelihood", texts, targets)
        self.ensure_eval()
        sources = [row[: self.max_source] for row in self.tokenizer.encode(texts)]
        return batched_log_likelihoods(
            partial(autoregressive_log_likelihood, self.network, bos=self.tokenizer.bos, per_token=per_token),
            self.layout,
            sources,
            self.tokenizer.encode(targets),
            max_length=self.max_target,
            batch=batch,
            device=self.device,
        )
