"""The Levenshtein Transformer (Gu et al., NeurIPS 2019): refine a draft by deletion and insertion.

    noise2text train levenshtein --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Split layout + a transformer whose decoder looks both ways + heads that delete, open gaps and fill them; the
three losses of imitating the oracle. Generation starts with nothing and ends when nothing changes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from torch import Tensor

from noise2text.core.config import option, require_at_least, require_fraction
from noise2text.core.errors import Problem
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.layouts.template import encode_pieces
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import Model
from noise2text.models.baseline_config import LevenshteinGenerationConfig
from noise2text.models.levenshtein import (
    EditPolicies,
    LevenshteinDecoder,
    LevenshteinObjective,
    SpecialTokens,
)
from noise2text.models.registry import Recipe, keep_config
from noise2text.recipes.cmlm import DraftTransformerConfig, build_draft_transformer, forbidden_tokens

__all__ = ["PRESETS", "RECIPE", "LevenshteinModel", "LevenshteinTrainingConfig", "build", "objective"]


@dataclass(frozen=True)
class LevenshteinTrainingConfig(DraftTransformerConfig):
    """Section 4.1 of the paper, and the released code where it is silent."""

    max_tokens: int = option(65_536, "padded tokens of the longer side in a batch")
    vocabulary: int = option(32_768, "how many tokens a learned BPE has")
    max_placeholders: int = option(255, "most placeholders that a gap gets in an iteration")
    empty_draft_rate: float = option(0.0, "β, share of the pairs whose insertion starts from an empty draft")
    iterations: int = option(9, "how often a draft is refined, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "max_placeholders", "iterations")
        require_fraction(self, "empty_draft_rate")


_WMT = LevenshteinTrainingConfig()

PRESETS: dict[str, LevenshteinTrainingConfig] = {
    "wmt14-en-de": _WMT,
    "wmt16-ro-en": _WMT,
    "gigaword": _WMT,
    "qqp": dataclasses.replace(_WMT, steps=50_000),
    "iwslt14-de-en": dataclasses.replace(_WMT, ffn_dim=1024, heads=4, max_tokens=8_192, vocabulary=10_000),
    "tiny": dataclasses.replace(
        _WMT,
        tokenizer="characters",
        max_source=48,
        max_target=16,
        model_dim=128,
        ffn_dim=256,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_placeholders=16,
        steps=1_400,
        max_tokens=1_024,
        lr=2e-3,
        warmup=100,
        lr_schedule="cosine",
        log_every=50,
        validate_every=350,
        save_every=350,
        validation_sentences=100,
    ),
}


class LevenshteinModel(Model):
    """A model that edits a draft until it is content."""

    layout: SplitLayout
    generation_config: LevenshteinGenerationConfig

    def __init__(self, config: LevenshteinTrainingConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.layout = tokenizer, SplitLayout(tokenizer.pad)
        self.max_source, self.max_target = config.max_source, config.max_target
        self.generation_config = LevenshteinGenerationConfig(iterations=config.iterations)
        self.special_tokens = SpecialTokens(tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.mask)
        transformer = build_draft_transformer(config, tokenizer, target_positions=config.max_target + 2)
        self.policies = EditPolicies(
            transformer, model_dim=config.model_dim, max_placeholders=config.max_placeholders
        )
        self.register_buffer("forbidden", forbidden_tokens(tokenizer), persistent=False)

    forbidden: Tensor

    def build_decoder(self, config: LevenshteinGenerationConfig) -> LevenshteinDecoder:
        prefix, suffix = encode_pieces([config.prefix, config.suffix], self.tokenizer)
        given = len(prefix) + len(suffix)
        if given >= self.max_target:
            raise Problem(
                f"Prefix and suffix have {given} of {self.max_target} tokens: that leaves nothing to write."
            )
        return LevenshteinDecoder(
            self.policies,
            self.special_tokens,
            self.forbidden,
            self.max_target,
            layout=self.layout,
            config=config,
            prefix=prefix,
            suffix=suffix,
        )

    def selector(self, generation_config: LevenshteinGenerationConfig) -> Selector:
        return BestScore()


def build(config: LevenshteinTrainingConfig, tokenizer: Tokenizer) -> LevenshteinModel:
    """The untrained system."""
    return LevenshteinModel(config, tokenizer)


def objective(config: LevenshteinTrainingConfig, model: LevenshteinModel) -> LevenshteinObjective:
    """What the system is trained on: the oracle's edits."""
    return LevenshteinObjective(
        model.policies,
        model.special_tokens,
        forbidden=model.forbidden,
        label_smoothing=config.label_smoothing,
        empty_draft_rate=config.empty_draft_rate,
    )


RECIPE = Recipe(
    name="levenshtein",
    paper="Levenshtein Transformer (Gu et al., 2019)",
    section="3",
    summary="Refines a draft by deleting tokens, opening gaps and filling them, until nothing changes.",
    presets=PRESETS,
    default_preset="wmt14-en-de",
    resolve=keep_config,
    build=build,
    objective=objective,
)
