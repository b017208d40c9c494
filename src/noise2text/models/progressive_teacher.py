"""The teacher of progressive distillation: a trained model of the same recipe and shape.

Its student takes fewer steps. The teacher of sequence distillation is in `commands/distill.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from noise2text.core.errors import Problem
from noise2text.models.diffusion import DiffusionModel
from noise2text.models.folder import load, load_config
from noise2text.models.init_from_teacher import require_same_tokens

__all__ = ["copy_teacher", "load_progressive_teacher"]

M = TypeVar("M", bound=DiffusionModel)


def load_progressive_teacher(config: Any, model: M, *, recipe: str) -> M:
    """The model in `config.model.from_folder`, if it can teach this student of the same recipe."""
    folder = Path(config.model.from_folder)
    teacher_recipe, teacher_config = load_config(folder)
    if teacher_recipe.name != recipe:
        raise Problem(
            f"The model in {folder} is no {recipe}, but {teacher_recipe.name}: the teacher of student_steps "
            f"has to be one."
        )
    teacher = load(folder, device=model.device, precision="float32")
    assert isinstance(teacher, type(model))
    require_same_tokens(model.tokenizer, teacher.tokenizer, folder)
    shape, teacher_shape = ((each.model.heads, each.diffusion.schedule) for each in (config, teacher_config))
    if shape != teacher_shape or _shapes(model) != _shapes(teacher):
        raise Problem(
            f"A student has the shape of its teacher: set the section model, schedule, max_source and "
            f"max_target as in {folder / 'config.json'}."
        )
    if model.source_dropout and not teacher.source_dropout:
        raise Problem(
            f"The model in {folder} was never trained without sources, so it cannot teach that: leave "
            f"source_dropout at 0, or take a teacher that was trained with it."
        )
    return teacher


def copy_teacher(model: DiffusionModel, teacher: DiffusionModel) -> None:
    """Start the student from all weights of its teacher."""
    model.load_state_dict(teacher.state_dict())


def _shapes(model: DiffusionModel) -> dict[str, Any]:
    """The shapes of the model's weights by their names."""
    return {name: tensor.shape for name, tensor in model.state_dict().items()}
