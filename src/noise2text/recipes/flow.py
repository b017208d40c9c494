"""Rectified flow on embeddings (Liu et al., 2023): straight paths from noise to text, by Difformer's network.

    noise2text train flow --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset tiny

z_t = (1 − t)·z₀ + t·F·ε. The network predicts v = ε − z₀, the velocity for F = 1; the loss is its squared
error, Difformer's anchor loss and the length loss. Generation is Euler's method, or multistep.
"""

from __future__ import annotations

from torch import Tensor

from noise2text.core.config import require_values
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import AnchorLoss, LengthLoss, MseLoss, NllLoss
from noise2text.diffusion.parameterization import PredictVelocity
from noise2text.diffusion.schedules import Schedule
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import Recipe
from noise2text.nn.denoiser import NoiseLevel
from noise2text.recipes import difformer
from noise2text.training.objective import Objective


class RectifiedFlow(Schedule):
    """α = 1 − t and σ = F·t."""

    def __init__(self, num_timesteps: int = 2000, noise_factor: float = 1.0) -> None:
        super().__init__(num_timesteps)
        self.noise_factor = noise_factor

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        time = t.double()[:, None, None]
        return NoiseLevel(1 - time, self.noise_factor * time, self.timestep(t[:, None]))


def build(config: difformer.DifformerConfig, tokenizer: Tokenizer) -> LengthPredictingModel:
    """The untrained model: Difformer's, with another schedule and output."""
    diffusion = config.diffusion
    fixed = {"schedule": "sqrt", "variance_preserving": False, "refit_every": 0, "noise_factor_every": 0}
    require_values(diffusion, "flow has one path for all times", **fixed)
    require_values(diffusion, "flow has no rounding loss and no students", rounding_weight=0, student_steps=0)
    flow = RectifiedFlow(diffusion.num_timesteps, diffusion.noise_factor or 1.0)
    return difformer.build_model(config, tokenizer, flow, flow, parameterization=PredictVelocity(flow))


def objective(config: difformer.DifformerConfig, model: LengthPredictingModel) -> Objective:
    """The training objective: the squared error of the velocity, the anchor loss and the length."""
    diffusion = config.diffusion
    terms = [
        MseLoss("velocity", diffusion.vlb_weight, weighting=PredictVelocity(model.schedule).weight),
        AnchorLoss(weight=diffusion.anchor_weight, smoothing=diffusion.label_smoothing),
        LengthLoss(weight=diffusion.length_loss_weight, length_predictor=model.lengths),
        NllLoss(weight=None),
    ]
    return difformer.build_objective(config, model, terms)


PRESETS = {
    name: preset.replace(noise_factor=None, eta=0.0, stop_early=0)  # Difformer's factors are of its schedule
    for name, preset in difformer.PRESETS.items()
}
# A third of Difformer's steps are enough for dates.
PRESETS["tiny"] = PRESETS["tiny"].replace({"optim.steps": 1_000}, warmup=200, validate_every=500)

RECIPE = Recipe(
    name="flow",
    paper="Rectified flow (Liu et al., 2023), on embeddings",
    paper_section="2",
    summary="Straight paths from noise to text: Difformer's network predicts the velocity.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    resolve=lambda config, tokenizer: difformer.resolve(config, tokenizer, schedule=RectifiedFlow()),
    build=build,
    objective=objective,
    initialize=difformer.initialize,
)
