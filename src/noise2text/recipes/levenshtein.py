"""The Levenshtein Transformer (Gu et al., NeurIPS 2019): refine a draft by deletion and insertion.

    noise2text train levenshtein --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Split layout + a transformer whose decoder looks both ways + heads that delete, open gaps and fill them; the
three losses of imitating the oracle. Generation starts with nothing and ends when nothing changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.core.config import option, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Split
from noise2text.data.layouts.template import encode_pieces
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.parallel import Draft, Step
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import System
from noise2text.models.baseline_config import LevenshteinSettings
from noise2text.models.levenshtein import EditObjective, Marks, Page, Policies, Refiner
from noise2text.models.registry import Recipe, unchanged
from noise2text.recipes.cmlm import EditorSettings, editor_of, never_written

__all__ = ["PRESETS", "RECIPE", "EditSettings", "Levenshtein", "build", "objective"]


@dataclass(frozen=True)
class EditSettings(EditorSettings):
    """Section 4.1 of the paper, and the released code where it is silent."""

    tokens: int = option(65_536, "padded tokens of the longer side in a batch")
    vocabulary: int = option(32_768, "how many tokens a learned BPE has")
    most: int = option(255, "most placeholders that a gap gets in an iteration")
    from_nothing: float = option(0.0, "β, share of the pairs whose insertion starts from an empty draft")
    iterations: int = option(9, "how often a draft is refined, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1, "most", "iterations")
        require_share(self, "from_nothing")


_WMT = EditSettings()

PRESETS: dict[str, EditSettings] = {
    "wmt14-en-de": _WMT,
    "wmt16-ro-en": _WMT,
    "gigaword": _WMT,
    "qqp": dataclasses.replace(_WMT, steps=50_000),
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
        most=16,
        steps=1_400,
        tokens=1_024,
        learning_rate=2e-3,
        warmup=100,
        decay="cosine",
        log_every=50,
        validate_every=350,
        save_every=350,
        validation_sentences=100,
    ),
}


class Levenshtein(System):
    """A model that edits a draft until it is content."""

    layout: Split
    how: LevenshteinSettings

    def __init__(self, settings: EditSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.layout = tokenizer, Split(tokenizer.pad)
        self.max_source, self.max_target = settings.max_source, settings.max_target
        self.how = LevenshteinSettings(iterations=settings.iterations)
        self.marks = Marks(tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.mask)
        editor = editor_of(settings, tokenizer, target_positions=settings.max_target + 2)
        self.policies = Policies(editor, width=settings.width, most=settings.most)
        self.register_buffer("forbidden", never_written(tokenizer), persistent=False)

    forbidden: Tensor

    @torch.inference_mode()
    def drafts(
        self,
        rows: Sequence[Sequence[int]],
        how: LevenshteinSettings,
        *,
        seed: int,
        places: Sequence[int],
        trace: bool,
    ) -> list[Draft]:
        prefix, suffix = encode_pieces([how.prefix, how.suffix], self.tokenizer)
        given = len(prefix) + len(suffix)
        if given >= self.max_target:
            raise Problem(
                f"Prefix and suffix have {given} of {self.max_target} tokens: that leaves nothing to write."
            )
        refiner = Refiner(self.policies, self.marks, self.forbidden, self.max_target)
        memory = self.policies.editor.read(self.layout.source(Rows.of(rows)).to(self.device))
        steps: list[tuple[float, list[list[int]], list[list[int]]]] = []
        start = refiner.start(prefix, suffix, sentences=len(rows))
        for number, (opened, page) in enumerate(refiner.refine(start, memory, how)):
            if trace:
                steps.append((1 - number / how.iterations, self._read(opened), self._read(page)))
        written = (page.bound == 0) & (page.tokens != self.marks.pad)
        scores = (page.scores * written).sum(1) / written.sum(1).clamp(min=1)
        return [
            Draft([row], [score], [Step(time, [noisy[i]], [clean[i]]) for time, noisy, clean in steps])
            for i, (row, score) in enumerate(zip(self._read(page), scores.tolist(), strict=True))
        ]

    def _read(self, page: Page) -> list[list[int]]:
        """What stands between the marks."""
        lengths = (page.tokens != self.marks.pad).sum(1).tolist()
        return [row[1 : length - 1] for row, length in zip(page.tokens.tolist(), lengths, strict=True)]

    def selector(self, how: LevenshteinSettings) -> Selector:
        return BestScore()


def build(settings: EditSettings, tokenizer: Tokenizer) -> Levenshtein:
    """The untrained system."""
    return Levenshtein(settings, tokenizer)


def objective(settings: EditSettings, system: Levenshtein) -> EditObjective:
    """What the system is trained on: the oracle's edits."""
    return EditObjective(
        system.policies,
        system.marks,
        forbidden=system.forbidden,
        smoothing=settings.label_smoothing,
        from_nothing=settings.from_nothing,
    )


RECIPE = Recipe(
    name="levenshtein",
    paper="Levenshtein Transformer (Gu et al., 2019)",
    section="3",
    line="Refines a draft by deleting tokens, opening gaps and filling them, until nothing changes.",
    presets=PRESETS,
    default="wmt14-en-de",
    resolve=unchanged,
    build=build,
    objective=objective,
)
