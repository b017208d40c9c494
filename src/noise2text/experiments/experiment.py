"""What a study is: a table of a paper as data.

A study has arms, the rows of the table. An arm is a model and a way to generate; arms that differ only in how
they generate share their model, which is trained once. A model may learn from a teacher's texts, and may
start from another model's embeddings: both are models of the same study, trained before it.

There are two scales. `full` is the paper's: its presets, and the user's files. `tiny` is the dates on two
cores: each recipe's preset `tiny`, changed by what the study says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from noise2text.core.config import change
from noise2text.core.errors import Problem
from noise2text.models.registry import find_recipe

__all__ = ["DATES", "SCALES", "Arm", "Changes", "Model", "Own", "Study", "fingerprint"]

SCALES = ("tiny", "full")
Changes = Mapping[str, Any]

DATES: Mapping[str, Changes] = {
    "difformer": {
        "tokenizer": "characters",
        "max_source": 48,
        "max_target": 16,
        "ffn": 256,
        "dropout": 0.0,
        "tokens": 1_024,
        "steps": 600,
        "learning_rate": 2e-3,
        "warmup": 100,
        "log_every": 50,
        "validate_every": 600,
        "save_every": 200,
        "validation_sentences": 100,
        "noise_beam": 1,
    },
    "transformer": {"validate_every": 600},
    "levenshtein": {"validate_every": 900},
    "cmlm": {"steps": 750, "validate_every": 750},
}
"""What the tiny scale changes in the recipes' presets, for all studies."""


@dataclass(frozen=True)
class Own:
    """A generation setting that takes its value from the settings that the model was trained with."""

    setting: str


@dataclass(frozen=True)
class Model:
    """What is trained: a recipe, what is changed in its preset (further in `tiny`), what it learns from."""

    recipe: str
    changes: Changes = field(default_factory=dict)
    tiny: Changes = field(default_factory=dict)
    teacher: Model | None = None  # its texts are the targets
    embeddings: Model | None = None  # its embeddings are where training starts

    def needs(self) -> Iterator[Model]:
        """The models that have to be trained before this one."""
        for other in (self.teacher, self.embeddings):
            if other is not None:
                yield from other.needs()
                yield other


@dataclass(frozen=True)
class Arm:
    """A row of the table: a model, how it generates (in `tiny` further), and the paper's numbers."""

    name: str
    model: Model
    how: Changes = field(default_factory=dict)
    tiny: Changes = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)  # by measure

    def generation(self, scale: str) -> dict[str, Any]:
        """The changed generation settings at this scale."""
        return {**self.how, **(self.tiny if scale == "tiny" else {})}


@dataclass(frozen=True)
class Study:
    """A table of a paper: its arms, its measures (the first one is ranked), and the presets of each scale."""

    name: str
    paper: str
    table: str
    line: str
    finding: str  # what the paper concludes
    about: str  # what the paper's numbers are
    arms: tuple[Arm, ...]
    measures: tuple[str, ...] = ("bleu", "exact")
    presets: Mapping[str, str] = field(default_factory=dict)  # of full, by recipe; else the recipe's default
    tiny: Mapping[str, Changes] = field(default_factory=dict)  # changes of tiny, by recipe
    batch: int = 64
    sentences: int = 500  # of the dates' test set

    def models(self) -> list[Model]:
        """Every model that has to be trained, once, each after those that it needs."""
        found: list[Model] = []
        for arm in self.arms:
            found += [model for model in (*arm.model.needs(), arm.model) if model not in found]
        return found

    def preset(self, model: Model, scale: str) -> str:
        """The preset that a model starts from."""
        return (
            "tiny" if scale == "tiny" else self.presets.get(model.recipe, find_recipe(model.recipe).default)
        )

    def changes(self, model: Model, scale: str, further: Changes) -> dict[str, Any]:
        """What is changed in it; of `further` what the recipe has and the arms do not differ in."""
        made = {**DATES.get(model.recipe, {}), **self.tiny.get(model.recipe, {})} if scale == "tiny" else {}
        made |= {**model.changes, **(model.tiny if scale == "tiny" else {})}
        known = vars(find_recipe(model.recipe).settings(self.preset(model, scale)))
        free = set(known) - set(model.changes)
        return made | {name: value for name, value in further.items() if name in free}

    def check(self, scale: str, further: Changes) -> None:
        """Refuse, before anything is trained, settings that no model has or that do not fit one."""
        if scale not in SCALES:
            raise Problem(f"The scale is one of {', '.join(SCALES)}, not {scale!r}.")
        used: set[str] = set()
        for model in self.models():
            made = self.changes(model, scale, further)
            settings = find_recipe(model.recipe).settings(self.preset(model, scale))
            change(settings, made, where=f"experiment {self.name}")
            used |= {name for name in further if made.get(name) == further[name]}
        for name in further:
            if name not in used:
                raise Problem(
                    f"No model of the experiment {self.name} has the setting {name!r}, or it is what they "
                    f"differ in."
                )


def fingerprint(value: Any) -> str:
    """A short name of what JSON can hold."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
