"""DiNoiSer: training noise is clipped as the embeddings move; generation exaggerates the noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from noise2text.core.config import apply_overrides, get_setting
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.noise_clipping import neighbor_distance
from noise2text.nn.denoiser import NoiseLevel
from noise2text.recipes.dinoiser import (
    PRESETS,
    ClippedObjective,
    DiNoiSerConfig,
    DiNoiSerModel,
    build,
    objective,
)

from ..conftest import shrunk

COLUMNS = ["iwslt14-de-en", "wmt14-en-de", "wmt16-en-ro"]
RELEASED: dict[str, list[Any]] = {  # typed from the published scripts
    "embedding_dim": [16, 64, 64],
    "ffn_dim": [1024, 2048, 2048],
    "heads": [4, 8, 8],
    "model_dim": [512] * 3,
    "dropout": [0.2, 0.1, 0.05],
    "max_tokens": [32_768, 131_072, 131_072],
    "lr": [5e-4] * 3,
    "warmup": [4_000] * 3,
    "clip_norm": [0.0] * 3,
    "noise_clip_margin": [0.0, 1.0, 0.0],
    "generation.steps": [20] * 3,
    "min_timestep": [0.99] * 3,
    "loss_average": ["sentences"] * 3,
    "select": ["mbr-by-length"] * 3,
    "utility": ["bleu-corpus"] * 3,
    "self_pair": [False] * 3,
}


@pytest.mark.parametrize("row", RELEASED)
def test_presets_are_the_released_scripts(row: str) -> None:
    assert [get_setting(PRESETS[column], row) for column in COLUMNS] == RELEASED[row]


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[DiNoiSerModel, ClippedObjective]:
    config = shrunk(PRESETS["tiny"], **changes)
    torch.manual_seed(0)
    model = build(config, tokenizer)
    return model, objective(config, model)


def lowest_ratio(model: DiNoiSerModel, trained: ClippedObjective) -> float:
    """The least noise-to-signal ratio of 4,096 training rows."""
    t, _ = trained.time_sampler(torch.linspace(0, 1 - 1e-9, 4096, dtype=torch.float64))
    level: NoiseLevel = model.schedule(t, 1)
    return float((1 / level.snr).min())


def test_training_is_clipped_from_the_first_step_and_follows_the_embeddings(tokenizer: Tokenizer) -> None:
    model, trained = made(tokenizer, noise_clip_every=3)
    embedding = model.denoiser.embedding
    assert lowest_ratio(model, trained) >= neighbor_distance(embedding.vectors) / embedding.dim
    first = lowest_ratio(model, trained)
    with torch.no_grad():
        embedding.weight.copy_(embedding.weight[:1] + 0.3 * embedding.weight)  # closer together
    for step, follows in ((1, False), (2, False), (3, True)):
        trained.update(step)
        assert (lowest_ratio(model, trained) < first) == follows


def test_the_clip_is_kept_for_a_resumed_run(tokenizer: Tokenizer) -> None:
    _, trained = made(tokenizer)
    assert "time_sampler.first_time_index" in dict(trained.named_buffers())


def test_the_network_is_given_late_timesteps_and_the_canvas_has_the_true_noise(tokenizer: Tokenizer) -> None:
    model, _ = made(tokenizer)
    timesteps: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: timesteps.append(inputs[1].timestep))
    model.eval().generate(["12. mai 2001"], steps=5)
    assert all((timestep >= 0.99).all() for timestep in timesteps)
    assert len(timesteps) == 5
    honest = model.build_sampling_schedule(
        apply_overrides(model.generation_config, {"min_timestep": 0.0}, origin="test")
    )
    t = torch.tensor([0.2, 0.7])
    exaggerated: NoiseLevel = model.build_sampling_schedule(model.generation_config)(t, 3)
    assert torch.equal(exaggerated.sigma, honest(t, 3).sigma)
    assert torch.equal(honest(t, 3).timestep, model.schedule(t, 3).timestep)


def test_a_sampler_without_fresh_noise_is_decided_by_its_first(tokenizer: Tokenizer) -> None:
    model, _ = made(tokenizer)
    assert model.generation_config.eta == 0
    assert model.generation_config.stop_early == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"min_timestep": 1.5}, "min_timestep"),
        ({"noise_clip_every": 0}, "noise_clip_every"),
        ({"noise_clip_margin": -1.0}, "noise_clip_margin"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        DiNoiSerConfig().replace(changes)
