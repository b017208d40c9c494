"""Difformer's noise factor, searched again on the embeddings as they are learned.

Difformer searches F once, on random embeddings, and names this as a limitation: as the embeddings move apart
in training, the same noise hides less. Here the search is repeated every N steps on the embeddings of that
step, with the same target for the degeneration score.
"""

from __future__ import annotations

from collections.abc import Callable

from noise2text.diffusion.config_groups import NoiseFactorSearchConfig
from noise2text.diffusion.degeneration_score import find_noise_factor
from noise2text.diffusion.schedules import AdjustableRescaled, Rescaled, Schedule
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.objective_wrapper import ObjectiveWrapper

__all__ = ["NoiseFactorSearch", "with_noise_factor_search"]


class NoiseFactorSearch(ObjectiveWrapper):
    """Another objective, whose noise factor follows the embeddings.

    Args:
        objective: the objective; its schedule contains `rescaled`.
        rescaled: the schedule whose factor is set.
        embedding: the embeddings that are learned.
        every: N, steps between two searches.
        target: the degeneration score that the factor may leave (`max_dgs`).
        rescale: how the factor is applied, as for `find_noise_factor`.

    A schedule that differs from position to position is searched at its first position, and the factor found
    there holds for all.
    """

    def __init__(
        self,
        objective: Objective,
        rescaled: AdjustableRescaled,
        embedding: TokenEmbedding,
        *,
        every: int,
        target: float,
        rescale: Callable[[Schedule, float], Schedule] = Rescaled,
    ) -> None:
        super().__init__(objective)
        self.rescaled, self.embedding = rescaled, embedding
        self.every, self.target, self.rescale = every, target, rescale

    def adapt(self, step: int) -> None:
        """Search every N steps, one step late: what is saved at a multiple of N trained with its factor."""
        super().adapt(step)
        previous = step - 1
        if previous and previous % self.every == 0:
            found = find_noise_factor(
                self.rescaled.schedule,
                self.embedding.vectors.detach(),
                target=self.target,
                rescale=self.rescale,
            )
            self.rescaled.factor.fill_(found.factor)


def with_noise_factor_search(objective: DiffusionObjective, config: NoiseFactorSearchConfig) -> Objective:
    """The objective that searches its noise factor again; without such a search, the objective itself."""
    if not config.noise_factor_every:
        return objective
    return NoiseFactorSearch(
        objective,
        next(part for part in objective.schedule.modules() if isinstance(part, AdjustableRescaled)),
        objective.denoiser.embedding,
        every=config.noise_factor_every,
        target=config.max_dgs,
        rescale=config.rescaling,
    )
