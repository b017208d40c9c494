"""CMLM with mask-predict (Ghazvininejad et al., EMNLP 2019): hidden target tokens are predicted in parallel.

    noise2text train cmlm --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + a transformer whose decoder looks both ways + length prediction; the surprise at the hidden
tokens + 0.1 · length. Generation predicts all tokens of several lengths, then the least certain ones again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.core.config import option, require_heads, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Split
from noise2text.data.layouts.template import Template, find_template
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.parallel import Draft
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import System
from noise2text.models.baseline_config import MaskPredictSettings
from noise2text.models.cmlm import MaskedObjective, MaskPredict
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.denoiser import Memory
from noise2text.nn.draft_transformer import Editor
from noise2text.nn.embeddings import Space
from noise2text.nn.length_predictor import Lengths, top
from noise2text.training.config import TrainingSettings

__all__ = [
    "PRESETS",
    "RECIPE",
    "Cmlm",
    "CmlmSettings",
    "EditorSettings",
    "build",
    "editor_of",
    "never_written",
    "objective",
]


@dataclass(frozen=True)
class EditorSettings(TrainingSettings):
    """A transformer of the base shape, trained as the papers of CMLM and the Levenshtein Transformer do."""

    width: int = option(512, "of the transformer's states and embeddings")
    ffn: int = option(2048, "width of the feed-forward networks")
    heads: int = option(8, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that read the draft")
    dropout: float = option(0.3, "dropout")
    label_smoothing: float = option(0.1, "share of the loss that is spread over the vocabulary")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self)
        require_least(self, 1, "ffn", "encoder_layers", "decoder_layers")
        require_share(self, "dropout", "label_smoothing")


@dataclass(frozen=True)
class CmlmSettings(EditorSettings):
    """Section 4.1 of the paper."""

    tokens: int = option(131_072, "padded tokens of the longer side in a batch")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    average: int = option(5, "average the weights of so many best validations into the final model")
    best_by: str = option("loss", "what the best model is best in: bleu (generated) or loss")
    vocabulary: int = option(32_768, "how many tokens a learned BPE has")
    length_factor: float = option(0.1, "weight of the length loss")
    iterations: int = option(10, "T, as the model's default")
    length_beam: int = option(5, "ℓ, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1, "iterations", "length_beam")
        require_least(self, 0, "length_factor")


_WMT = CmlmSettings()

PRESETS: dict[str, CmlmSettings] = {
    "wmt14-en-de": _WMT,
    "wmt16-en-ro": _WMT,
    "iwslt14-de-en": dataclasses.replace(_WMT, ffn=1024, heads=4, tokens=8_192, vocabulary=10_000),
    "tiny": dataclasses.replace(
        _WMT,
        tokenizer="characters",
        max_source=48,
        max_target=16,
        width=128,
        ffn=256,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        steps=1_500,
        tokens=1_536,
        learning_rate=2e-3,
        betas=(0.9, 0.98),
        warmup=100,
        decay="cosine",
        average=1,
        best_by="bleu",
        length_beam=1,
        log_every=50,
        validate_every=500,
        save_every=500,
        validation_sentences=100,
    ),
}


class Cmlm(System):
    """A masked language model of the target that predicts its length first."""

    layout: Split
    how: MaskPredictSettings

    def __init__(self, settings: CmlmSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.layout = tokenizer, Split(tokenizer.pad)
        self.max_source, self.max_target = settings.max_source, settings.max_target
        self.how = MaskPredictSettings(iterations=settings.iterations, length_beam=settings.length_beam)
        self.editor = editor_of(settings, tokenizer, target_positions=settings.max_target)
        self.lengths = Lengths(settings.width, longest=settings.max_target, source=settings.max_source)
        self.register_buffer("forbidden", never_written(tokenizer), persistent=False)

    forbidden: Tensor

    def drafts(
        self,
        rows: Sequence[Sequence[int]],
        how: MaskPredictSettings,
        *,
        seed: int,
        places: Sequence[int],
        trace: bool,
    ) -> list[Draft]:
        given = find_template(how, self.tokenizer, how.length or self.max_target)
        return MaskPredict(self.editor, self.layout, self.tokenizer.mask, self.forbidden).decode(
            self.layout.source(Rows.of(rows)).to(self.device),
            how,
            lambda memory: self._propose(memory, how, given),
            given=given,
            trace=trace,
        )

    def _propose(self, memory: Memory, how: MaskPredictSettings, given: Template) -> tuple[Tensor, Tensor]:
        length = given.least if given.is_exact and how.length is None else how.length
        if length is None:
            return self.lengths.propose(memory, how.length_beam, top)
        if length > self.max_target:
            raise Problem(
                f"The length must be at most {self.max_target}, this model's longest, not {length}."
            )
        lengths = torch.full_like(memory.padding[:, :1], length, dtype=torch.long)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)

    def selector(self, how: MaskPredictSettings) -> Selector:
        return BestScore()


def never_written(tokenizer: Tokenizer) -> Tensor:
    """True for the tokens (V,) that are never written."""
    forbidden = torch.zeros(len(tokenizer), dtype=torch.bool)
    forbidden[sorted(tokenizer.specials)] = True
    return forbidden


def editor_of(settings: EditorSettings, tokenizer: Tokenizer, *, target_positions: int) -> Editor:
    """The untrained network of these settings."""
    return Editor(
        Space(len(tokenizer), settings.width),
        width=settings.width,
        ffn=settings.ffn,
        heads=settings.heads,
        encoder_layers=settings.encoder_layers,
        decoder_layers=settings.decoder_layers,
        dropout=settings.dropout,
        source_positions=settings.max_source,
        target_positions=target_positions,
    )


def build(settings: CmlmSettings, tokenizer: Tokenizer) -> Cmlm:
    """The untrained system."""
    return Cmlm(settings, tokenizer)


def objective(settings: CmlmSettings, system: Cmlm) -> MaskedObjective:
    """What the system is trained on: the hidden tokens, and the length."""
    return MaskedObjective(
        system.editor,
        system.lengths,
        mask=system.tokenizer.mask,
        smoothing=settings.label_smoothing,
        length_factor=settings.length_factor,
    )


RECIPE = Recipe(
    name="cmlm",
    paper="Mask-Predict (Ghazvininejad et al., 2019)",
    section="2",
    line="Conditional masked language model: tokens in parallel, the least certain ones again.",
    presets=PRESETS,
    default="wmt14-en-de",
    resolve=unchanged,
    build=build,
    objective=objective,
)
