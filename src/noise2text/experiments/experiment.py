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

from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.models.registry import find_recipe

__all__ = [
    "SCALES",
    "TINY_PRESET_CHANGES",
    "Arm",
    "Changes",
    "Experiment",
    "ModelSpec",
    "TrainedSetting",
    "fingerprint",
]

SCALES = ("tiny", "full")
Changes = Mapping[str, Any]

TINY_PRESET_CHANGES: Mapping[str, Changes] = {
    "difformer": {
        "tokenizer": "characters",
        "max_source": 48,
        "max_target": 16,
        "ffn_dim": 256,
        "dropout": 0.0,
        "max_tokens": 1_024,
        "steps": 600,
        "lr": 2e-3,
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
class TrainedSetting:
    """A generation setting that takes its value from the settings that the model was trained with."""

    setting: str


@dataclass(frozen=True)
class ModelSpec:
    """What is trained: a recipe, what is changed in its preset (further in `tiny`), what it learns from."""

    recipe: str
    changes: Changes = field(default_factory=dict)
    tiny: Changes = field(default_factory=dict)
    teacher: ModelSpec | None = None  # its texts are the targets
    embeddings: ModelSpec | None = None  # its embeddings are where training starts

    def dependencies(self) -> Iterator[ModelSpec]:
        """The models that have to be trained before this one."""
        for other in (self.teacher, self.embeddings):
            if other is not None:
                yield from other.dependencies()
                yield other


@dataclass(frozen=True)
class Arm:
    """A row of the table: a model, how it generates (in `tiny` further), and the paper's numbers."""

    name: str
    model: ModelSpec
    generation_changes: Changes = field(default_factory=dict)
    tiny: Changes = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)  # by measure

    def generation_settings(self, scale: str) -> dict[str, Any]:
        """The changed generation settings at this scale."""
        return {**self.generation_changes, **(self.tiny if scale == "tiny" else {})}


@dataclass(frozen=True)
class Experiment:
    """A table of a paper: its arms, its measures (the first one is ranked), and the presets of each scale."""

    name: str
    paper: str
    table: str
    summary: str
    claim: str  # what the paper concludes
    metric_note: str  # what the paper's numbers are
    arms: tuple[Arm, ...]
    measures: tuple[str, ...] = ("bleu", "exact")
    presets: Mapping[str, str] = field(default_factory=dict)  # of full, by recipe; else the recipe's default
    tiny: Mapping[str, Changes] = field(default_factory=dict)  # changes of tiny, by recipe
    batch: int = 64
    sentences: int = 500  # of the dates' test set

    def models(self) -> list[ModelSpec]:
        """Every model that has to be trained, once, each after those that it needs."""
        found: list[ModelSpec] = []
        for arm in self.arms:
            found += [model for model in (*arm.model.dependencies(), arm.model) if model not in found]
        return found

    def preset(self, model: ModelSpec, scale: str) -> str:
        """The preset that a model starts from."""
        return (
            "tiny"
            if scale == "tiny"
            else self.presets.get(model.recipe, find_recipe(model.recipe).default_preset)
        )

    def changes(self, model: ModelSpec, scale: str, overrides: Changes) -> dict[str, Any]:
        """What is changed in it; of `overrides` what the recipe has and the arms do not differ in."""
        merged = (
            {**TINY_PRESET_CHANGES.get(model.recipe, {}), **self.tiny.get(model.recipe, {})}
            if scale == "tiny"
            else {}
        )
        merged |= {**model.changes, **(model.tiny if scale == "tiny" else {})}
        known = vars(find_recipe(model.recipe).preset(self.preset(model, scale)))
        overridable = set(known) - set(model.changes)
        return merged | {name: value for name, value in overrides.items() if name in overridable}

    def validate(self, scale: str, overrides: Changes) -> None:
        """Refuse, before anything is trained, settings that no model has or that do not fit one."""
        if scale not in SCALES:
            raise Problem(f"The scale is one of {', '.join(SCALES)}, not {scale!r}.")
        used: set[str] = set()
        for model in self.models():
            merged = self.changes(model, scale, overrides)
            config = find_recipe(model.recipe).preset(self.preset(model, scale))
            apply_overrides(config, merged, origin=f"experiment {self.name}")
            used |= {name for name in overrides if merged.get(name) == overrides[name]}
        for name in overrides:
            if name not in used:
                raise Problem(
                    f"No model of the experiment {self.name} has the setting {name!r}, or it is what they "
                    f"differ in."
                )


def fingerprint(value: Any) -> str:
    """A short name of what JSON can hold."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
