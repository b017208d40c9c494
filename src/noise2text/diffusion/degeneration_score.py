"""How much noise training needs: the degeneration score and the search for F, which lowers it (Difformer).

The factor F is applied elsewhere. In training, `build_training_schedule` in the configs of this folder wraps
the schedule in `Rescaled` (`schedules.py`). Generation has a factor of its own, `sampling_noise_factor`; the
method `build_sampling_schedule` in `models/diffusion.py` applies it.

The degenerated model sees one position at a time and answers with the nearest embedding (definition 1, as the
nearest-neighbour classifier of appendix D). Its accuracy at time t is the score at t (definition 2):

    DGS_t = P(argmin_j ‖z_t − e_j‖ = e),   z_t = α(t)·e + σ(t)·ε,   DGS = ∫₀¹ DGS_t dt.

Algorithm 2 draws words e and noises ε. A rival, word j, is nearer to z_t when (z_t − e)·(e_j − e) exceeds
‖e_j − e‖²/2, and since z_t − e = σ·ε − (1 − α)·e, that is

    (1 − α)·u_j + σ·v_j > 1,   u_j = −e·(e_j − e) / (‖e_j − e‖²/2),   v_j = ε·(e_j − e) / (‖e_j − e‖²/2).

Only α and σ depend on the time, the schedule and F, so all of these share the same (u, v) (common random
numbers: the score is smooth in F). Of the V rivals, only those matter that no other exceeds in both u and v,
about log V of them.

Algorithm 1 takes the first F of 1, 1 + ΔF, 1 + 2ΔF, … whose score is at most DGS_MAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.diffusion.schedules import Rescaled, Schedule

__all__ = [
    "NoiseFactorResult",
    "binary_factor_search",
    "degeneration_scores",
    "find_noise_factor",
    "random_embeddings",
]

MAX_NOISE_FACTOR = 1000.0  # where a search gives up; the largest factor in the paper is 41
BLOCK = 2**21  # about how many numbers an intermediate tensor has


@dataclass(frozen=True)
class NoiseFactorResult:
    """A rescaling factor, its degeneration score, and the score without rescaling."""

    factor: float
    dgs: float
    dgs_unscaled: float


def random_embeddings(vocab: int, dim: int, *, seed: int = 0) -> Tensor:
    """A (vocab, dim) table of independent standard normal numbers: the paper's σ_e = 1."""
    if vocab < 2 or dim < 1:
        raise Problem(f"A table of {vocab} words in {dim} dimensions is too small: take two words or more.")
    return torch.randn(vocab, dim, generator=torch.Generator().manual_seed(2 * seed))


def degeneration_scores(
    schedule: Schedule, embeddings: Tensor, *, cells: int = 200, samples: int = 2000, seed: int = 0
) -> Tensor:
    """DGS_t at the midpoints of equal cells of (0, 1), shape (cells,); its mean is DGS.

    The noise is added to the embeddings (V, d). Words with equal embeddings count as right answers for each
    other. All times use the same `samples` words and noises.
    """
    return nearest_neighbor_accuracy(schedule, sample_rivals(embeddings, samples, seed=seed), cells=cells)


def binary_factor_search(
    score_of_factor: Callable[[float], float], target: float, *, interval: float = 0.5
) -> float:
    """The first factor of 1, 1 + interval, … whose score is at most the target (algorithm 1).

    It is found by doubling and halving: the score must fall with the factor.
    """
    last = int((MAX_NOISE_FACTOR - 1) / interval)
    low, high = -1, 0  # grid indices: low misses the target, high may reach it
    while score_of_factor(1 + high * interval) > target:
        if high == last:
            raise unreachable_target(target)
        low, high = high, min(max(1, 2 * high), last)
    while high - low > 1:
        middle = (low + high) // 2
        if score_of_factor(1 + middle * interval) > target:
            low = middle
        else:
            high = middle
    return 1 + high * interval


def find_noise_factor(
    schedule: Schedule,
    embeddings: Tensor,
    *,
    target: float,
    interval: float = 0.5,
    rescale: Callable[[Schedule, float], Schedule] = Rescaled,
    cells: int = 200,
    samples: int = 2000,
    seed: int = 0,
) -> NoiseFactorResult:
    """The smallest factor on the grid whose score is at most the target, with the scores.

    `rescale` is Rescaled (eq. 3) or `rescale_preserving` (eq. 8).
    """
    if not 0 < target < 1:
        raise Problem(f"The target degeneration score is {target:g}: give a number between 0 and 1.")
    if not 0 < interval < MAX_NOISE_FACTOR:
        raise Problem(f"The search interval is {interval:g}: give a number above 0, such as 0.5.")
    rivals = sample_rivals(embeddings, samples, seed=seed)

    @cache
    def score_of_factor(factor: float) -> float:
        return nearest_neighbor_accuracy(rescale(schedule, factor), rivals, cells=cells).mean().item()

    factor = binary_factor_search(score_of_factor, target, interval=interval)
    return NoiseFactorResult(
        factor,
        score_of_factor(factor),
        nearest_neighbor_accuracy(schedule, rivals, cells=cells).mean().item(),
    )


def unreachable_target(target: float) -> Problem:
    """The error of a target that no factor reaches."""
    return Problem(
        f"No rescaling factor up to {MAX_NOISE_FACTOR:g} brings the degeneration score down to {target:g}: "
        "choose a higher target (chance alone scores about one over the number of words)."
    )


def sample_rivals(embeddings: Tensor, samples: int, *, seed: int) -> list[Tensor]:
    """The (u, v) of the rivals of `samples` noised words, as blocks of shape (2, S, K)."""
    if embeddings.ndim != 2 or len(embeddings) < 2 or not embeddings.isfinite().all():
        raise Problem(
            f"The embeddings have the shape {tuple(embeddings.shape)}, but must be a table of finite numbers "
            "with a row for each of two or more words."
        )
    words, row_of = embeddings.detach().float().unique(dim=0, return_inverse=True)
    generator = torch.Generator().manual_seed(2 * seed + 1)  # another stream than random_embeddings
    rounds = -(-samples // len(row_of))  # every word equally often, as in algorithm 2
    drawn = torch.cat([torch.randperm(len(row_of), generator=generator) for _ in range(rounds)])[:samples]
    noise = torch.randn(samples, words.shape[1], generator=generator).to(words)
    rows = row_of[drawn.to(row_of.device)]
    size = max(1, BLOCK // len(words))
    blocks = zip(rows.split(size), noise.split(size), strict=True)
    return [find_rivals(words, *block) for block in blocks]


def find_rivals(words: Tensor, rows: Tensor, noise: Tensor) -> Tensor:
    """The (u, v) of the rivals of the noised words with these row numbers that matter: (2, S, K).

    K is the largest count of a row; rows with fewer are filled up with others, which change nothing.
    """
    squares = words.square().sum(1)  # (V,)
    with_word, with_noise = words[rows] @ words.T, noise @ words.T  # (S, V)
    half = (squares + squares[rows, None]) / 2 - with_word  # ‖e_j − e‖²/2
    own = rows[:, None]
    u, v = with_word.gather(1, own) - with_word, with_noise - with_noise.gather(1, own)
    # The right word itself has 0/0, which becomes 0: it never exceeds 1.
    rivals = torch.stack([u, v]) / half.clamp(min=1e-12)
    rivals = rivals.gather(2, rivals[0].argsort(1, descending=True).expand(2, -1, -1))
    undominated = rivals[1] == rivals[1].cummax(1).values  # (S, V)
    kept = undominated.float().topk(int(undominated.sum(1).max())).indices  # (S, K)
    return rivals.gather(2, kept.expand(2, -1, -1))


def nearest_neighbor_accuracy(schedule: Schedule, rivals: list[Tensor], *, cells: int) -> Tensor:
    """The share of the noised words without a nearer rival, at the midpoint of each cell: (cells,)."""
    t = (torch.arange(cells, dtype=torch.float64, device=rivals[0].device) + 0.5) / cells
    level = schedule(t, 1)
    levels = torch.stack([1 - level.alpha.flatten(), level.sigma.flatten()], dim=1).float()  # (C, 2)
    right = torch.zeros(cells, device=t.device)
    for block in rivals:
        cells_per_product = max(1, BLOCK // block[0].numel())
        # (1 − α)·u + σ·v of every rival, (c, S·K), for c cells at a time
        sums = (part @ block.flatten(1) for part in levels.split(cells_per_product))
        largest = torch.cat([each.unflatten(1, block.shape[1:]).amax(2) for each in sums])  # (C, S)
        right += (largest <= 1).sum(1)
    return right / sum(block.shape[1] for block in rivals)
