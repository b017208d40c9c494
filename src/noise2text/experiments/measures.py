"""The measures of an arm: any metric of `evaluate`, diversity, collapse, length and time.

A measure has the name that `noise2text evaluate --metrics` has for it. BERTScore and COMET are computed by a
model: they are measured if the user says which (`--metrics bertscore=FOLDER`).

dist-1 and the number of words are of the reported texts; the other measures of diversity are of several
candidates per source, those of the arm or samples of their own (`Arm.samples`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from noise2text.core.config import get_setting, has_setting
from noise2text.data.corpus import Pair
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.diffusion.schedules import AdjustableRescaled
from noise2text.metrics.diversity import DIVERSITY_METRICS, DiversityMetric
from noise2text.metrics.evaluate import METRICS_BY_NAME, Metric, bleu, find_metrics
from noise2text.models import DiffusionModel, Model

__all__ = [
    "MEASURES",
    "ArmTexts",
    "Measure",
    "TextMeasures",
    "measure_model",
    "measure_training",
]

ALWAYS = ("bleu", "exact_match")  # also if the table does not show them
DIVERSITY: dict[str, DiversityMetric] = {kind.name: kind for kind in DIVERSITY_METRICS}
OF_ONE_TEXT = ("dist_1", "dist_1_diffuseq", "words")  # the others need several candidates per source


@dataclass(frozen=True)
class Measure:
    """The header of a column, its number of digits, and whether lower is better."""

    label: str
    digits: int = 2
    lower_is_better: bool = False


MEASURES: dict[str, Measure] = {
    **{name: Measure(own.label, 2, own.lower_is_better) for name, own in METRICS_BY_NAME.items()},
    **{name: Measure(own.label, 2, name.startswith("self_bleu")) for name, own in DIVERSITY.items()},
    "exact_match": Measure("exact match", 1),
    "bertscore": Measure("BERTScore"),
    "comet": Measure("COMET"),
    "comet-qe": Measure("COMET-QE"),
    "bleu_one_candidate": Measure("BLEU of one candidate"),
    "empty_texts": Measure("% of empty texts", 1, lower_is_better=True),
    "nll": Measure("nll", lower_is_better=True),
    "nll_text": Measure("nll without padding", lower_is_better=True),
    "anisotropy": Measure("ANI", lower_is_better=True),
    "target_anisotropy": Measure("ANI of the targets' tokens", lower_is_better=True),
    "parameters": Measure("parameters, millions", lower_is_better=True),
    "noise_factor": Measure("factor", 1),
    "length_match": Measure("% of requested length", 1),
    "sentences_per_second": Measure("sentences/s"),
    "decoding_seconds": Measure("decoding, s", lower_is_better=True),
    "training_seconds": Measure("training, s", 0, lower_is_better=True),
}


@dataclass(frozen=True)
class ArmTexts:
    """What an arm generated for each source: the text, its candidates, and samples for diversity."""

    texts: Sequence[str]
    candidates: Sequence[Sequence[str]]
    samples: Sequence[Sequence[str]] | None = None  # None: the candidates are also the samples


class TextMeasures:
    """The measures to compute of texts: those of a table, and those that the user names."""

    def __init__(self, measures: Iterable[str], more: str | None = None) -> None:
        self.identities = {name: name for name in (*ALWAYS, *measures) if name in METRICS_BY_NAME}
        self.metrics: dict[str, Metric] = {name: METRICS_BY_NAME[name] for name in self.identities}
        self.diversity = {name: DIVERSITY[name] for name in measures if name in DIVERSITY}
        self.added: list[str] = []
        for name in [each.strip() for each in (more or "").split(",") if each.strip()]:
            self._add(name)

    def _add(self, name: str) -> None:
        kind = name.lower().replace("-", "_")
        if kind in DIVERSITY:
            self.diversity[kind] = DIVERSITY[kind]
            self.added.append(kind)
            return
        (metric,) = find_metrics(name)
        kind = name.partition("=")[0].lower() if "=" in name else metric.name
        self.metrics[kind], self.identities[kind] = metric, name
        self.added.append(kind)

    @property
    def wanted(self) -> dict[str, str]:
        """What identifies each measure: its name and, for a metric that is a model, its folder."""
        return self.identities | {name: name for name in self.diversity}

    def compute(
        self, texts: ArmTexts, pairs: Sequence[Pair], done: Mapping[str, str]
    ) -> tuple[dict[str, float], dict[str, str]]:
        """The numbers of the texts except for those that are done already, and their signatures."""
        references, sources = [pair.references for pair in pairs], [pair.src for pair in pairs]
        found = {
            name: metric(texts.texts, references, sources)
            for name, metric in self.metrics.items()
            if done.get(name) != self.identities[name]
        }
        for name, kind in self.diversity.items():
            score = None if name in done else kind(_candidates_for(name, texts))
            if score is not None:
                found[name] = score
        if not done:
            first_candidates = [own[0] if own else "" for own in texts.candidates]
            found["bleu_one_candidate"] = bleu(first_candidates, references)
        numbers = {name: score.score for name, score in found.items()}
        numbers["empty_texts"] = 100 * fmean(not text.strip() for text in texts.texts)
        return numbers, {name: score.signature for name, score in found.items()}


def _candidates_for(measure: str, texts: ArmTexts) -> Sequence[Sequence[str]]:
    if measure in OF_ONE_TEXT:
        return [[text] for text in texts.texts]
    return texts.candidates if texts.samples is None else texts.samples


def measure_model(model: Model, config: Any, pairs: Sequence[Pair]) -> dict[str, float]:
    """The numbers of a model itself.

    If targets use few of the tokens, the other tokens hide how far these have collapsed; hence the anisotropy
    of the targets' tokens alone.
    """
    count = model.origin.num_parameters if model.origin else sum(p.numel() for p in model.parameters())
    numbers = {"parameters": count / 1e6}
    if isinstance(model, DiffusionModel):
        vectors = model.denoiser.embedding.vectors.detach()
        numbers["anisotropy"] = anisotropy(vectors)
        target_tokens = {
            token for row in model.tokenizer.encode([pair.trg for pair in pairs]) for token in row
        }
        if len(target_tokens) > 1:
            numbers["target_anisotropy"] = anisotropy(vectors[sorted(target_tokens)])
    noise_factor = get_setting(config, "noise_factor") if has_setting(config, "noise_factor") else None
    searched = [float(part.factor) for part in model.modules() if isinstance(part, AdjustableRescaled)]
    for factor in (noise_factor, *searched):  # one that was searched in training takes the config's place
        if factor is not None:
            numbers["noise_factor"] = float(factor)
    return numbers


def measure_training(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The last logged −log p(y | ẑ₀) of a training, with and without padding, from its metrics."""
    found: dict[str, float] = {}
    for line in lines:
        found |= {name: float(line[name]) for name in ("nll", "nll_text") if line.get(name) is not None}
    return found
