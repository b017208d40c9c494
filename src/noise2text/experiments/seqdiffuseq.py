"""The experiments of SeqDiffuSeq (Yuan et al., 2022): ablation, speed, and sampling from the prior."""

from __future__ import annotations

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec

__all__ = ["EXPERIMENTS"]

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


def _ablation_arm(name: str, bleu: float, changes: Changes) -> Arm:
    return Arm(name, ModelSpec("seqdiffuseq", changes), {"noise_beam": 1}, paper={"bleu": bleu})


_ABLATION = Experiment(
    name="seqdiffuseq-ablation",
    paper=PAPER,
    table="table 2",
    summary="The adaptive schedule and self-conditioning, each with and without the other.",
    claim="both help; without both, more is lost than the sum.",
    metric_note="sacrebleu on IWSLT14 De-En (En-De, QQP and Wiki-Auto are in the same order except for "
    "B and C).",
    tiny={"seqdiffuseq": SHORT_TRAINING},
    arms=(
        _ablation_arm("A: SeqDiffuSeq", 30.16, {}),
        _ablation_arm("B: A without the adaptive schedule", 28.60, FIXED_SCHEDULE),
        _ablation_arm("C: A without self-conditioning", 28.28, NO_SELF_CONDITIONING),
        _ablation_arm("D: without both", 24.39, {**FIXED_SCHEDULE, **NO_SELF_CONDITIONING}),
    ),
)

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
    measures=("bleu", "bleu_one_candidate", "div_4", "exact"),
    tiny={"seqdiffuseq": SHORT_TRAINING},
    arms=(
        _prior_arm("never", 0.0, 0.5),
        *(_prior_arm(f"p₁ = 0.05, p₂ = {share}", 0.05, share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)),
        *(_prior_arm(f"p₁ = {rate}, p₂ = 0.5", rate, 0.5) for rate in (0.01, 0.1, 0.2)),
    ),
)

EXPERIMENTS = (_ABLATION, _SPEED, _PRIOR)
