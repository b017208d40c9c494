"""The experiments of SeqDiffuSeq besides its main tables: speed, and sampling from the prior."""

from __future__ import annotations

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec

__all__ = ["EXPERIMENTS", "FIXED_SCHEDULE", "NO_SELF_CONDITIONING", "PAPER", "SHORT_TRAINING"]

PAPER = "SeqDiffuSeq (Yuan et al., 2022)"
FIXED_SCHEDULE: Changes = {"refit_every": 0}  # the sqrt schedule
NO_SELF_CONDITIONING: Changes = {"self_conditioning": 0.0}
SHORT_TRAINING: Changes = {
    "optim.steps": 500,
    "validate_every": 500,
    "refit_every": 150,
    "refit_start": 150,
    "refit_min_count": 20,
}


_SPEED = Experiment(
    name="seqdiffuseq-speed",
    paper=PAPER,
    table="table 3",
    summary="The time for a batch of 50 with all steps (tiny: 200).",
    claim="3.56 times as fast, since the source is encoded once and only the target is sampled.",
    metric_note="seconds for one batch of 50 of QQP on a V100, 2000 steps.",
    measures=("decoding_seconds", "sentences_per_second"),
    presets={"diffuseq": "qqp", "seqdiffuseq": "qqp"},
    tiny={
        "diffuseq": {"layers": 4, "ffn_dim": 512, "optim.steps": 50, "validate_every": 50},
        "seqdiffuseq": {"optim.steps": 50, "validate_every": 50},
    },
    batch=50,
    sentences=50,
    arms=(
        Arm(
            "DiffuSeq",
            ModelSpec("diffuseq"),
            {"steps": 2000, "noise_beam": 1},
            {"steps": 200},
            {"decoding_seconds": 317.0},
        ),
        Arm(
            "SeqDiffuSeq",
            ModelSpec("seqdiffuseq"),
            {"steps": 2000, "noise_beam": 1},
            {"steps": 200},
            {"decoding_seconds": 89.0},
        ),
    ),
)


def _prior_arm(name: str, rate: float, share: float) -> Arm:
    generation_changes = {"noise_beam": 10, "prior_rate": rate, "prior_share": share}
    return Arm(name, ModelSpec("seqdiffuseq"), generation_changes)


_PRIOR = Experiment(
    name="seqdiffuseq-prior",
    paper=PAPER,
    table="figures 4 and 5",
    summary="Sampling from the prior with probability p₁ in a fraction p₂ of the steps; ten candidates.",
    claim="the candidates are more diverse and worse; with suitable p₁ and p₂ the selected one is better.",
    metric_note="none, since it only plots them.",
    measures=("bleu", "bleu_one_candidate", "div_4", "exact_match"),
    tiny={"seqdiffuseq": SHORT_TRAINING},
    arms=(
        _prior_arm("never", 0.0, 0.5),
        *(_prior_arm(f"p₁ = 0.05, p₂ = {share}", 0.05, share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)),
        *(_prior_arm(f"p₁ = {rate}, p₂ = 0.5", rate, 0.5) for rate in (0.01, 0.1, 0.2)),
    ),
)

EXPERIMENTS = (_SPEED, _PRIOR)
