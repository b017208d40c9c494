"""An experiment: a table of a paper as data.

An experiment has arms, the rows of the table. An arm is a model and its generation settings; arms that differ
only in generation share their model, which is trained once. A model may be trained on a corpus of its own,
such as a teacher's texts, and may start from another model's embeddings: teachers and such models belong to
the experiment, too, and are trained first.

There are two scales. `full` is the paper's: its presets, with the user's files. `tiny` uses synthetic dates
on two cores: each recipe's preset `tiny`, with the changes of the experiment. A table of several datasets is
one experiment per dataset, under one name (`columns`); the preset chooses among them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from noise2text.core.config import apply_overrides, describe
from noise2text.core.errors import Problem, suggest
from noise2text.models.registry import find_recipe

__all__ = [
    "DISTILLED",
    "SCALES",
    "SHUFFLED",
    "TINY_PRESET_CHANGES",
    "Arm",
    "Changes",
    "Experiment",
    "ModelSpec",
    "TrainedSetting",
    "hash_value",
]

SCALES = ("tiny", "full")
DISTILLED = "distilled"
"""The name of the corpus of a model that has a teacher."""
SHUFFLED = "shuffled"
"""The name of the corpus in which every source has the target of another."""
Changes = Mapping[str, Any]

TINY_PRESET_CHANGES: Mapping[str, Changes] = {
    "difformer": {
        "tokenizer": "characters",
        "max_source": 48,
        "max_target": 16,
        "ffn_dim": 256,
        "dropout": 0.0,
        "max_tokens": 1_024,
        "optim.steps": 600,
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
    "cmlm": {"optim.steps": 750, "validate_every": 750},
}
"""The changes to the recipes' presets at the tiny scale, for all experiments."""


@dataclass(frozen=True)
class TrainedSetting:
    """A generation setting whose value is that of a training setting of the model."""

    setting: str


@dataclass(frozen=True)
class ModelSpec:
    """A model to train: a recipe, changes to its preset (`tiny`: more at that scale), and what it needs."""

    recipe: str
    changes: Changes = field(default_factory=dict)
    tiny: Changes = field(default_factory=dict)
    teacher: ModelSpec | None = None  # whose texts are the targets, unless the user has such a corpus
    embeddings: ModelSpec | None = None  # whose embeddings are the initial ones
    preset: str = ""  # at the full scale, if it is not the experiment's
    pretrained: str = ""  # the name of the pre-trained model that it starts from at the full scale
    shuffled: bool = False  # learns targets of other sources, as a control

    @property
    def corpus(self) -> str:
        """The name of the corpus that it is trained on: train, distilled or shuffled."""
        if self.shuffled:
            return SHUFFLED
        return DISTILLED if self.teacher else "train"

    def dependencies(self) -> Iterator[ModelSpec]:
        """The models that must be trained before this one."""
        for other in (self.teacher, self.embeddings):
            if other is not None:
                yield from other.dependencies()
                yield other


@dataclass(frozen=True)
class Arm:
    """A row of the table: a model, its generation settings (`tiny`: more at that scale), and the paper's
    numbers.

    With `samples`, measures that compare the candidates of a source get samples of their own, generated with
    these settings instead. DiffuSeq measures quality with one text, and diversity with three samples. A
    system that always generates the same text has it three times.
    """

    name: str
    model: ModelSpec
    generation_changes: Changes = field(default_factory=dict)
    tiny: Changes = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)  # by measure
    samples: Changes | None = None
    num_samples: int = 3

    def generation_settings(self, scale: str) -> dict[str, Any]:
        """The changed generation settings at this scale."""
        return {**self.generation_changes, **(self.tiny if scale == "tiny" else {})}

    def sample_settings(self, scale: str) -> dict[str, Any] | None:
        """The changed generation settings of the samples for diversity, if it has any."""
        return None if self.samples is None else self.generation_settings(scale) | dict(self.samples)


@dataclass(frozen=True)
class Experiment:
    """A table of a paper: its arms, its measures and its presets.

    Dates are one word, and some measures say nothing about one word (BLEU of words between white space):
    `tiny_measures` are those of the tiny scale, if they are not the same.
    """

    name: str
    paper: str
    table: str
    summary: str
    claim: str  # what the paper concludes
    metric_note: str  # what the paper's numbers are
    arms: tuple[Arm, ...]
    measures: tuple[str, ...] = ("bleu", "exact_match")
    tiny_measures: tuple[str, ...] = ()
    presets: Mapping[str, str] = field(default_factory=dict)  # at the full scale, by recipe; else its default
    tiny: Mapping[str, Changes] = field(default_factory=dict)  # changes at the tiny scale, by recipe
    batch: int = 64
    sentences: int = 500  # of the test set of dates
    columns: Mapping[str, Experiment] = field(default_factory=dict)  # the table on each dataset, by preset
    chosen_preset: str = ""  # the user's choice

    def with_preset(self, preset: str | None, scale: str) -> Experiment:
        """The experiment with the user's preset: that dataset of the table, or this preset for all models."""
        if preset is None:
            return self
        if preset in self.columns:
            return replace(self.columns[preset], chosen_preset=preset)
        if self.columns:
            raise Problem(f"{self.name} has no preset {preset!r}; {suggest(preset, self.columns)}")
        if scale == "tiny":
            raise Problem("--preset chooses the presets of --scale full; at --scale tiny all are tiny.")
        recipes = {model.recipe for model in self.models() if not model.preset}
        for recipe in sorted(recipes):
            find_recipe(recipe).preset(preset)  # raises: this recipe has none of that name
        return replace(self, presets=dict.fromkeys(recipes, preset), chosen_preset=preset)

    def measures_at(self, scale: str) -> tuple[str, ...]:
        """The measures of the table at this scale."""
        return self.tiny_measures if scale == "tiny" and self.tiny_measures else self.measures

    def models(self) -> list[ModelSpec]:
        """All models to train, each after those that it needs."""
        found: list[ModelSpec] = []
        for arm in self.arms:
            found += [model for model in (*arm.model.dependencies(), arm.model) if model not in found]
        return found

    def preset(self, model: ModelSpec, scale: str) -> str:
        """The name of a model's preset."""
        if scale == "tiny":
            return "tiny"
        return model.preset or self.presets.get(model.recipe, find_recipe(model.recipe).default_preset)

    def changes(self, model: ModelSpec, scale: str, overrides: Changes) -> dict[str, Any]:
        """The changes to the preset, with `overrides` that the recipe has and the arms do not differ in."""
        merged = (
            {**TINY_PRESET_CHANGES.get(model.recipe, {}), **self.tiny.get(model.recipe, {})}
            if scale == "tiny"
            else {}
        )
        merged |= {**model.changes, **(model.tiny if scale == "tiny" else {})}
        config = find_recipe(model.recipe).preset(self.preset(model, scale))
        return merged | _applicable(overrides, config, model)

    def validate(self, scale: str, overrides: Changes) -> None:
        """Raise a Problem, before anything is trained, if a setting is unknown or has a bad value."""
        if scale not in SCALES:
            raise Problem(f"The scale must be {' or '.join(SCALES)}, not {scale!r}.")
        used: set[str] = set()
        for model in self.models():
            config = find_recipe(model.recipe).preset(self.preset(model, scale))
            origin = f"experiment {self.name}"
            for name, value in overrides.items():
                if len(_full_names(config, name)) > 1:
                    apply_overrides(config, {name: value}, origin=origin)  # raises: the name is ambiguous
                if _applicable({name: value}, config, model):
                    used.add(name)
            apply_overrides(config, self.changes(model, scale, overrides), origin=origin)
        for name in overrides:
            if name not in used:
                raise Problem(
                    f"No model of the experiment {self.name} has the setting {name!r}, or it is what they "
                    f"differ in: leave it out."
                )


def _applicable(overrides: Changes, config: Any, model: ModelSpec) -> dict[str, Any]:
    """Those overrides, by full name, that the config has and that the model does not set itself."""
    own = {full for name in model.changes for full in _full_names(config, name)}
    named = {full: value for name, value in overrides.items() for full in _full_names(config, name)}
    return {full: value for full, value in named.items() if full not in own}


def _full_names(config: Any, name: str) -> list[str]:
    """The full names of the settings that a full or short name may mean."""
    names = [full for full, _, _ in describe(config)]
    return [name] if name in names else [full for full in names if full.endswith(f".{name}")]


def hash_value(value: Any) -> str:
    """A short hash of a value that JSON can represent."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
