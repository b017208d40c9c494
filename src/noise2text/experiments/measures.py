"""The measures of every arm, in its table or not: quality, diversity, collapse, length and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import get_setting, has_setting
from noise2text.data.corpus import Pair
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.metrics.diversity import div_4
from noise2text.metrics.evaluate import Score, bleu, exact_match
from noise2text.models import DiffusionModel, Model
from noise2text.models.output import GenerationOutput

__all__ = ["MEASURES", "Measure", "measure_model", "measure_texts"]


@dataclass(frozen=True)
class Measure:
    """The header of a column, its number of digits, and whether lower is better."""

    label: str
    digits: int = 2
    lower_is_better: bool = False


MEASURES: dict[str, Measure] = {
    "bleu": Measure("BLEU"),
    "exact": Measure("exact match", 1),
    "bleu_one_candidate": Measure("BLEU of one candidate"),
    "div_4": Measure("div-4"),
    "anisotropy": Measure("ANI", lower_is_better=True),
    "target_anisotropy": Measure("ANI of the targets' tokens", lower_is_better=True),
    "noise_factor": Measure("factor", 1),
    "length_match": Measure("% of requested length", 1),
    "sentences_per_second": Measure("sentences/s"),
    "decoding_seconds": Measure("decoding, s", lower_is_better=True),
    "training_seconds": Measure("training, s", 0, lower_is_better=True),
}


def measure_texts(
    output: GenerationOutput,
    pairs: Sequence[Pair],
    *,
    model: Model,
    requested_length: int | None,
    seconds: float,
) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers of the texts generated for the pairs, and the signatures of those that have one."""
    references = [pair.references for pair in pairs]
    first_candidates = [own[0] if own else "" for own in output.candidates]
    scores: dict[str, Score | None] = {
        "bleu": bleu(output.texts, references),
        "exact": exact_match(output.texts, references),
        "bleu_one_candidate": bleu(first_candidates, references),
        "div_4": div_4(output.candidates),
    }
    numbers = {name: score.score for name, score in scores.items() if score}
    numbers |= {"decoding_seconds": seconds, "sentences_per_second": len(pairs) / seconds}
    if requested_length is not None:
        lengths = [len(row) for row in model.tokenizer.encode(output.texts)]
        numbers["length_match"] = 100 * lengths.count(requested_length) / len(lengths)
    return numbers, {name: score.signature for name, score in scores.items() if score}


def measure_model(
    model: Model, config: Any, pairs: Sequence[Pair], facts: Mapping[str, float]
) -> dict[str, float]:
    """The numbers of a model itself, with those that its training recorded in `facts`.

    If targets use few of the tokens, the other tokens hide how far these have collapsed; hence the anisotropy
    of the targets' tokens alone.
    """
    numbers = dict(facts)
    if isinstance(model, DiffusionModel):
        vectors = model.denoiser.embedding.vectors.detach()
        numbers["anisotropy"] = anisotropy(vectors)
        target_tokens = {
            token for row in model.tokenizer.encode([pair.trg for pair in pairs]) for token in row
        }
        if len(target_tokens) > 1:
            numbers["target_anisotropy"] = anisotropy(vectors[sorted(target_tokens)])
    noise_factor = get_setting(config, "noise_factor") if has_setting(config, "noise_factor") else None
    return numbers if noise_factor is None else numbers | {"noise_factor": float(noise_factor)}
