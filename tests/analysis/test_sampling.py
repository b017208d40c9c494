"""Scores during sampling, and from pure noise."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest
import sacrebleu
import torch

from noise2text.analysis.sampling import (
    assume_timestep,
    from_pure_noise,
    sampling_finding,
    score_sampling_steps,
)
from noise2text.core.errors import Problem
from noise2text.models import DiffusionModel
from noise2text.nn.denoiser import Estimate

from .models import DIFFUSION, PAIRS, SOURCES, tiny

STREAMS: Any = [[pair.trg for pair in PAIRS], [pair.refs[0] if pair.refs else None for pair in PAIRS]]


def oracle(texts: list[str]) -> float:
    """sacrebleu's own corpus BLEU."""
    return float(sacrebleu.corpus_bleu(texts, STREAMS).score)


@pytest.mark.parametrize("name", [*DIFFUSION, "word-by-word"])
def test_the_last_step_scores_what_generate_scores(name: str) -> None:
    model = tiny(name)
    config: dict[str, Any] = {"steps": 4, "stop_early": 0}
    found = score_sampling_steps({name: model}, PAIRS, noises=2, seed=3, settings=config)
    made = [model.generate(SOURCES, seed=seed, **config).texts for seed in (3, 4)]
    assert found.rows[-1]["bleu"] == pytest.approx(fmean(map(oracle, made)))
    assert found.rows[-1]["done"] == 100
    assert len({row["bleu"] for row in found.rows}) > 1  # the steps do differ


def test_every_step_is_scored_as_if_sampling_ended_there() -> None:
    model = tiny("diffuseq")
    found = score_sampling_steps({"d": model}, PAIRS, noises=1, settings={"steps": 5})
    assert [row["step"] for row in found.rows] == [1, 2, 3, 4, 5]
    for left_out in range(5):
        made = model.generate(SOURCES, steps=5, stop_early=left_out).texts
        assert found.rows[4 - left_out]["bleu"] == pytest.approx(oracle(made))
    assert all(row["div_4"] is None and row["self_bleu"] is None for row in found.rows)


def test_the_estimates_of_different_noises_are_compared_with_each_other() -> None:
    model = tiny("seqdiffuseq")
    found = score_sampling_steps({"s": model}, PAIRS, noises=2, settings={"steps": 2})
    one, two = (model.generate(SOURCES, seed=seed, steps=2).texts for seed in (0, 1))
    overlaps = [
        sacrebleu.sentence_bleu(text, [other], use_effective_order=True).score
        for text, other in [*zip(one, two, strict=True), *zip(two, one, strict=True)]
    ]
    assert one != two
    assert found.rows[-1]["self_bleu"] == pytest.approx(fmean(overlaps))


def test_what_refines_without_noise_has_steps_and_what_writes_at_once_has_none() -> None:
    found = score_sampling_steps({"lev": tiny("levenshtein")}, PAIRS, noises=1)
    assert found.rows
    with pytest.raises(Problem, match="parrot generates without steps"):
        score_sampling_steps({"parrot": tiny("copy")}, PAIRS, noises=1)


@pytest.mark.parametrize("name", DIFFUSION)
def test_the_estimate_from_noise_at_the_last_time_is_sampling_with_one_step(name: str) -> None:
    model = tiny(name)
    found = from_pure_noise({name: model}, PAIRS, points=3, seed=5)
    made = model.generate(SOURCES, seed=5, steps=1, stop_early=0).texts
    assert found.rows[-1]["time"] == 1
    assert found.rows[-1]["bleu"] == pytest.approx(oracle(made))
    assert found.rows[0]["time"] == pytest.approx(1 / model.schedule.num_timesteps)  # type: ignore[union-attr, operator]


def test_the_network_sees_the_same_pure_noise_whatever_timestep_it_is_given() -> None:
    model = tiny("difformer")
    assert isinstance(model, DiffusionModel)
    seen: list[tuple[torch.Tensor, float]] = []

    def look(module: Any, given: tuple[Any, ...], answer: Estimate) -> None:
        seen.append((given[0].clone(), float(given[1].timestep)))

    handle = model.denoiser.register_forward_hook(look)
    from_pure_noise({"d": model}, PAIRS[:1], points=4)
    handle.remove()
    num_timesteps = model.schedule.num_timesteps
    given_times = [timestep + 1 / num_timesteps for _, timestep in seen]
    assert given_times == pytest.approx(
        [1 / num_timesteps, *torch.linspace(1 / num_timesteps, 1, 4)[1:].tolist()]
    )
    assert all(torch.equal(z, seen[0][0]) for z, _ in seen)
    assert seen[0][0].std() == pytest.approx(1, abs=0.1)  # σ(1) = 1, whatever t is given


def test_no_likelihood_is_given_a_wrong_timestep() -> None:
    model = tiny("difformer")
    plain, weighted = (
        from_pure_noise({"d": model}, PAIRS, points=3, settings={"select": select}).rows
        for select in ("mbr", "weighted-mbr")
    )
    assert plain == weighted


def test_a_model_is_restored_after_an_assumed_timestep() -> None:
    model = tiny("seqdiffuseq")
    assert isinstance(model, DiffusionModel)
    before = model.denoiser, model.use_cuda_graphs, model.generate(SOURCES, steps=4).texts
    with pytest.raises(RuntimeError), assume_timestep(model, 0.5):
        raise RuntimeError
    assert (model.denoiser, model.use_cuda_graphs, model.generate(SOURCES, steps=4).texts) == before


def test_a_baseline_has_no_timestep() -> None:
    with pytest.raises(Problem, match="needs a diffusion model, but t5 is not one"):
        from_pure_noise({"t5": tiny("transformer")}, PAIRS)


def test_samples_drawn_before_score_the_same_at_some_of_the_steps() -> None:
    model = tiny("diffuseq")
    whole = score_sampling_steps({"d": model}, PAIRS, noises=2, settings={"steps": 5})
    drawn = [model.generate(SOURCES, seed=seed, steps=5, trace=True) for seed in (0, 1)]
    assert sampling_finding({"d": drawn}, PAIRS, signature="s").rows == whole.rows
    assert sampling_finding({"d": drawn}, PAIRS, signature="s", points=3).rows == whole.rows[::2]
