"""A job of generation: which model generates, with which settings, and which selector chooses its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noise2text.core.config import apply_overrides, describe
from noise2text.core.errors import Problem
from noise2text.generation.alternatives import FLOOR, draw_enough_candidates
from noise2text.generation.reranking import LikelihoodSelector, require_reduction
from noise2text.generation.selection import Selector, WithoutCopies
from noise2text.models import AutoregressiveModel, Model
from noise2text.models.fingerprint import fingerprint_model
from noise2text.models.folder import load, load_config
from noise2text.models.requests import GenerationRequest
from noise2text.models.shipped import find_model_folder

__all__ = ["GenerationJob", "LoadedJob", "remove_teacher", "require_batch"]


@dataclass(frozen=True)
class GenerationJob:
    """What decides the texts of a job, apart from its input.

    Fields:
        model: the folder or the name of the model.
        overrides: generation settings by name; `select` may be teacher.
        seed, batch, n, floor, trace: as in `Model.generate`.
        teacher: the autoregressive model that selects, with `select=teacher`.
        likelihood: the teacher's score, mean or sum of the tokens' log-likelihoods.
        copies: whether candidates that copy the source may be selected.
        device, precision: as in `load`.
    """

    model: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    batch: int = 32
    n: int = 1
    floor: float = FLOOR
    trace: bool = False
    teacher: Path | None = None
    likelihood: str = "mean"
    copies: bool = True
    device: str | None = None
    precision: str = "auto"

    def __post_init__(self) -> None:
        require_batch(self.batch)

    def check(self) -> None:
        """Raise a Problem for a mistake that can be found without the weights."""
        self._find_changes()

    def describe(self) -> dict[str, Any]:
        """What decides the texts, to compare with when the job is resumed; the batch does not.

        Settings count by their effect: one that is given with the model's own value is none.
        """
        guide = str(self.overrides.get("guide") or "")
        return {
            "model": fingerprint_model(self.model, classifier=guide),
            "settings": self._find_changes(),
            "teacher": self.teacher and f"{fingerprint_model(self.teacher)}, {self.likelihood}",
            "numbers": f"seed={self.seed}, precision={self.precision}, n={self.n}, floor={self.floor}",
            "copies": self.copies,
        }

    def _find_changes(self) -> dict[str, Any]:
        """The settings that are not those of the model, whatever words set them."""
        _, config = load_config(find_model_folder(self.model))
        settings = self._model_settings()
        changed = apply_overrides(config.generation, settings, origin="generate")
        changed = draw_enough_candidates(changed, settings, n=self.n, floor=self.floor)
        before = {name: value for name, value, _ in describe(config.generation)}
        return {name: value for name, value, _ in describe(changed) if value != before[name]}

    def load(self) -> LoadedJob:
        """The job with its model and its selector."""
        model = load(self.model, device=self.device, precision=self.precision)
        return self.with_model(model)

    def with_model(self, model: Model) -> LoadedJob:
        """The job with a model that is loaded already, and its selector."""
        settings = self._model_settings()
        config = apply_overrides(model.generation_config, settings, origin="generate")
        selector = model.build_selector(config) if self.teacher is None else self._load_teacher(self.teacher)
        return LoadedJob(self, model, selector if self.copies else WithoutCopies(selector), settings)

    def _model_settings(self) -> dict[str, Any]:
        return remove_teacher(self.overrides, self.teacher, likelihood=self.likelihood)

    def _load_teacher(self, teacher: Path) -> Selector:
        # Unlike sampling, a teacher has no later steps that correct the errors of int8.
        precision = "auto" if self.precision == "int8" else self.precision
        model = load(teacher, device=self.device, precision=precision)
        if not isinstance(model, AutoregressiveModel):
            raise Problem(
                f"{teacher} is not autoregressive: give the folder of a transformer or a gru as the teacher."
            )
        return LikelihoodSelector(model, reduction=self.likelihood)


@dataclass(frozen=True)
class LoadedJob:
    """A job, its model, what selects its texts, and its settings that are settings of the model."""

    job: GenerationJob
    model: Model
    selector: Selector
    settings: dict[str, Any]

    def make_request(
        self, texts: Sequence[str], indices: Sequence[int], *, selector: Selector | None = None
    ) -> GenerationRequest:
        """The request for the texts with these indices in the input; another selector may be given."""
        return GenerationRequest(
            texts,
            seed=self.job.seed,
            indices=indices,
            trace=self.job.trace,
            selector=selector or self.selector,
            n=self.job.n,
            floor=self.job.floor,
            overrides=self.settings,
        )


def require_batch(batch: int) -> None:
    """Refuse a batch without sentences."""
    if batch < 1:
        raise Problem(f"--batch must be at least 1 sentence, not {batch}.")


def remove_teacher(overrides: Mapping[str, Any], teacher: Path | None, *, likelihood: str) -> dict[str, Any]:
    """The overrides without `select=teacher`, which is not a setting of the model.

    Raises a Problem if only one of --select teacher and --teacher is given.
    """
    if (overrides.get("select") == "teacher") != (teacher is not None):
        raise Problem("To select by a teacher, give both --select teacher and --teacher DIR.")
    if teacher is None and likelihood != "mean":
        raise Problem(
            "--likelihood is an option of the teacher: also give --select teacher and --teacher DIR."
        )
    require_reduction(likelihood)
    return {name: value for name, value in overrides.items() if teacher is None or name != "select"}
