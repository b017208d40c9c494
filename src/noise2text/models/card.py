"""Model cards: the README.md of a model folder, which the Hugging Face hub shows.

A YAML head for the hub (library, tags, license, languages, datasets, scores), and then for people: what the
model is, how to use it, its scores with their signatures, and the settings that it was trained with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.core.files import write_text_file
from noise2text.core.plain_yaml import parse_yaml
from noise2text.core.version import __version__
from noise2text.models.base import Model

__all__ = ["CARD_FILE", "CardScore", "ModelFacts", "make_card", "update_head", "write_card"]

CARD_FILE = "README.md"
MARK = "<!-- Written by noise2text; remove this line to keep your own changes. -->"
TASK = {"type": "text2text-generation", "name": "Text-to-text generation"}


@dataclass(frozen=True)
class CardScore:
    """A score for a card: the metric, its value and signature, and the texts that it was measured on."""

    metric: str  # as the hub calls it, such as bleu
    value: float
    signature: str
    dataset: str


@dataclass(frozen=True)
class ModelFacts:
    """What a card says about a model."""

    name: str
    recipe: str
    num_parameters: int
    vocabulary: int
    config: Any
    generation_config: Any
    scores: Sequence[CardScore] = ()
    training: str = ""  # one sentence on its data

    @classmethod
    def of(cls, model: Model, name: str, **facts: Any) -> ModelFacts:
        """The facts of a model that was loaded from a folder."""
        if model.origin is None:
            raise Problem(
                "This model was not loaded from a folder, so its recipe is unknown: use noise2text.save."
            )
        return cls(
            name=name,
            recipe=model.origin.recipe,
            num_parameters=model.origin.num_parameters,
            vocabulary=len(model.tokenizer),
            config=model.origin.config,
            generation_config=model.generation_config,
            **facts,
        )


def write_card(folder: Path, card: str) -> None:
    """Write the card into a model folder, unless someone has written another there."""
    file = folder / CARD_FILE
    if not file.exists() or MARK in file.read_text("utf-8", errors="replace"):
        write_text_file(file, card)


def make_card(facts: ModelFacts, head: Mapping[str, Any] | None = None) -> str:
    """The card of a model; `head` adds to its YAML head, such as license, language and datasets."""
    fields: dict[str, Any] = {
        "library_name": "noise2text",
        "tags": ["noise2text", "diffusion", "text2text-generation", facts.recipe],
    }
    if facts.scores:
        fields["metrics"] = list(dict.fromkeys(score.metric for score in facts.scores))
        fields["model-index"] = [{"name": facts.name, "results": _make_results(facts.scores)}]
    body = "\n\n".join(
        part
        for part in (
            MARK,
            f"# {facts.name}",
            f"A {facts.recipe} model of {facts.num_parameters:,} parameters with a vocabulary of "
            f"{facts.vocabulary:,} tokens. {facts.training}".strip(),
            _describe_use(facts.name),
            _describe_scores(facts.scores),
            _describe_settings(facts),
        )
        if part
    )
    return _join(fields | dict(head or {}), body + "\n")


def update_head(card: str, head: Mapping[str, Any]) -> str:
    """The card with these fields in its YAML head."""
    fields, body = _split(card)
    return _join(fields | dict(head), body) if head else card


def _split(card: str) -> tuple[dict[str, Any], str]:
    """The head and the rest; a card without a head has an empty one."""
    if not card.startswith("---\n") or "\n---\n" not in card[3:]:
        return {}, card
    head, _, body = card[4:].partition("\n---\n")
    fields = parse_yaml(head, what=f"The head of the model card, {CARD_FILE},") or {}
    if not isinstance(fields, dict):
        raise Problem(f"The head of the model card, {CARD_FILE}, must hold `name: value` lines: correct it.")
    return fields, body.lstrip("\n")


def _join(fields: Mapping[str, Any], body: str) -> str:
    return f"---\n{_to_yaml(dict(fields))}---\n\n{body}"


def _make_results(scores: Sequence[CardScore]) -> list[dict[str, Any]]:
    """The scores as the hub reads them, one result per dataset."""
    return [
        {
            "task": TASK,
            "dataset": {"name": dataset, "type": "text"},
            "metrics": [
                {"type": score.metric, "value": round(score.value, 2), "name": score.signature}
                for score in scores
                if score.dataset == dataset
            ],
        }
        for dataset in dict.fromkeys(score.dataset for score in scores)
    ]


def _describe_use(name: str) -> str:
    return f"""## How to use it

```python
import noise2text  # pip install "noise2text[hub]"

model = noise2text.load("{name}")  # its name on the hub, or its folder
print(model("Your text."))
```"""


def _describe_scores(scores: Sequence[CardScore]) -> str:
    if not scores:
        return ""
    rows = "\n".join(
        f"| {score.dataset} | {score.metric} | {score.value:.2f} | `{score.signature.replace('|', ' ')}` |"
        for score in scores
    )
    return f"## Scores\n\n| texts | metric | score | signature |\n|---|---|---|---|\n{rows}"


def _describe_settings(facts: ModelFacts) -> str:
    sections = {
        name: values
        for name, values in dataclasses.asdict(facts.config).items()
        if name in ("model", "diffusion", "optim") and values
    }
    seed = getattr(getattr(facts.config, "run", None), "seed", None)
    settings = {"recipe": facts.recipe, **({} if seed is None else {"seed": seed}), **sections}
    generation = dataclasses.asdict(facts.generation_config)
    return (
        f"## Settings\n\nTrained with noise2text {__version__}:\n\n```yaml\n{_to_yaml(settings)}```\n\n"
        f"It generates with these settings, each of which is an argument of `model.generate`:\n\n"
        f"```yaml\n{_to_yaml(generation)}```"
    )


def _to_yaml(values: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(_plain(values), sort_keys=False, allow_unicode=True)
    return text


def _plain(value: Any) -> Any:
    """The value with lists for tuples, which YAML writes plainly."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
