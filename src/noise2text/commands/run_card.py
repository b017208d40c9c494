"""The model card of a run, from its own validation scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noise2text.commands.run_data import TrainingData
from noise2text.metrics.evaluate import bleu, exact_match
from noise2text.models.card import CardScore, ModelFacts, make_card, write_card

__all__ = ["write_run_card"]


def write_run_card(
    out: Path, *, recipe: str, config: Any, data: TrainingData, num_parameters: int, step: int, training: str
) -> None:
    """Write the card of the model in a run's folder, with the scores of the validation after `step`."""
    facts = ModelFacts(
        name=out.resolve().name,
        recipe=recipe,
        num_parameters=num_parameters,
        vocabulary=len(data.tokenizer),
        config=config,
        generation_config=config.generation,
        scores=_collect_scores(out, data, step),
        training=f"Trained on {len(data.train):,} pairs. {training}",
    )
    write_card(out, make_card(facts))


def _collect_scores(out: Path, data: TrainingData, step: int) -> list[CardScore]:
    """BLEU and exact match of the validation after `step`, with their signatures."""
    logged: dict[str, float] = {}
    for line in (out / "metrics.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        logged = record if record["step"] == step and "valid_bleu" in record else logged
    valid = Path(json.loads((out / "run.json").read_text("utf-8"))["valid"]).name
    references = [pair.references for pair in data.validation_pairs]
    targets = [pair.trg for pair in data.validation_pairs]
    dataset = f"{valid}, the first {len(references):,} pairs"
    metrics = {"bleu": ("valid_bleu", bleu), "exact_match": ("valid_exact", exact_match)}
    return [
        CardScore(name, logged[key], metric(targets, references).signature, dataset)
        for name, (key, metric) in metrics.items()
        if key in logged
    ]
