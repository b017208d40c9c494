"""Autoregressive models, which generate from left to right and compute the likelihood of given texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from noise2text.core.arguments import parse_flag, parse_whole_number
from noise2text.core.devices import device_guard
from noise2text.core.version import __version__
from noise2text.data.layouts.split_with_end import SplitWithEndLayout
from noise2text.data.layouts.template import encode_pieces
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveDecoder
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.generation.reranking import autoregressive_log_likelihood, batched_log_likelihoods
from noise2text.generation.token_search import SearchLimits
from noise2text.models.base import Model, require_lists
from noise2text.models.likelihood_bound import LikelihoodBound, summarize_pairs
from noise2text.nn.autoregressive import AutoregressiveNetwork

__all__ = ["AutoregressiveModel"]


class AutoregressiveModel(Model):
    """A model that generates from left to right, and computes the likelihood of given texts.

    Args:
        tokenizer: texts to tokens and back.
        network: the network that predicts the next token.
        generation_config: the defaults of `generate`.
        max_source, max_target: the longest texts in tokens.
        layout: how a source becomes tokens; by default it is its tokens alone.

    >>> import noise2text
    >>> from noise2text.data.tokenizer import learn_characters
    >>> recipe = noise2text.list_recipes()["transformer"]
    >>> tokenizer = learn_characters(["0123456789 abcdefghijklmnopqrstuvwxyz"])
    >>> model = recipe.build(recipe.preset("tiny"), tokenizer)
    >>> (text,) = model.generate(["7 april 1957"], beam=2, length=10).texts
    >>> len(text)
    10
    """

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
        super().__init__()
        self.tokenizer, self.generation_config, self.network = tokenizer, generation_config, network
        self.layout = layout or SplitWithEndLayout(tokenizer.pad, tokenizer.eos)
        self.max_source, self.max_target = max_source, max_target
        forbidden_tokens = torch.tensor(sorted(tokenizer.special_tokens - {tokenizer.eos}), dtype=torch.long)
        self.register_buffer("forbidden_tokens", forbidden_tokens, persistent=False)

    forbidden_tokens: torch.Tensor

    def build_decoder(
        self, config: Any, network: AutoregressiveNetwork | None = None
    ) -> AutoregressiveDecoder:
        """The decoder for this config, with the network of this model or with a wrapper of it."""
        return AutoregressiveDecoder(
            network or self.network,
            self.layout,
            config,
            bos=self.tokenizer.bos,
            limits=SearchLimits(
                self.tokenizer.eos, self.tokenizer.pad, self.forbidden_tokens, self.max_target
            ),
            max_source=self.max_source,
            prefix=encode_pieces([config.prefix], self.tokenizer)[0],
            executor=self.executor(),
        )

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False, batch: int = 64
    ) -> list[float]:
        """log p(target | text) of each pair, the end included; or its mean over the tokens and the end.

        It is −∞ for a target that this model cannot generate: one that is too long, or a non-empty one for an
        empty text. A text that is too long is truncated, as by `generate`.
        """
        require_lists("likelihood", texts, targets)
        per_token = parse_flag(per_token, "per_token", where="likelihood")
        batch = parse_whole_number(batch, "batch", where="likelihood")
        self.eval()
        sources = [row[: self.max_source] for row in self.tokenizer.encode(texts)]
        log_likelihood = partial(
            autoregressive_log_likelihood, self.network, bos=self.tokenizer.bos, per_token=per_token
        )
        with device_guard(self.device):
            return batched_log_likelihoods(
                log_likelihood,
                self.layout,
                sources,
                self.tokenizer.encode(targets),
                max_length=self.max_target,
                batch=batch,
                device=self.device,
            )

    def likelihood_bound(
        self,
        texts: Sequence[str],
        targets: Sequence[str],
        *,
        samples: int = 32,
        steps: int | None = None,
        seed: int = 0,
        batch: int = 32,
        **overrides: Any,
    ) -> LikelihoodBound:
        """−log p of the targets and their ends: exact, so nothing is sampled, and no setting matters."""
        log_probs = self.likelihood(texts, targets, batch=batch)
        return summarize_pairs(
            [None if math.isinf(value) else {"tokens": -value} for value in log_probs],
            [len(row) + 1 for row in self.tokenizer.encode(targets)],
            is_exact=True,
            signature=f"likelihood|exact|noise2text:{__version__}",
        )
