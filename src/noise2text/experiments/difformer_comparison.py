"""Difformer compared with other systems (Gao et al., 2024): raw and distilled data, and number of steps."""

from __future__ import annotations

from noise2text.experiments.difformer import BEAM_10, PAPER, PAPER_BLEU
from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec

__all__ = ["EXPERIMENTS"]


def _candidates_arm(
    name: str, model: ModelSpec, *, noises: int, lengths: int | None = None, bleu: float
) -> Arm:
    """An arm with b = lengths × noises candidates; at the tiny scale all have one length."""
    beam = (lengths or 1) * noises
    changes = {"noise_beam": noises} if lengths is None else {"length_beam": lengths, "noise_beam": noises}
    one_length = {"noise_beam": beam} if lengths is None else {"length_beam": 1, "noise_beam": beam}
    return Arm(f"{name}, b = {beam}", model, changes, one_length, {"bleu": bleu})


_TEACHER = ModelSpec("transformer")
_DISTILLED_DINOISER = ModelSpec("dinoiser", teacher=_TEACHER)
_DISTILLED_DIFFORMER = ModelSpec("difformer", teacher=_TEACHER)
_PEERS = Experiment(
    name="difformer-peers",
    paper=PAPER,
    table="tables 5 and 6",
    summary="Difformer and other systems on raw and on distilled data.",
    claim="with equally many candidates Difformer is best on both; distilled data are easier.",
    metric_note="sacrebleu on WMT14 En-De; those of other systems are taken from their papers.",
    presets=dict.fromkeys(("difformer", "dinoiser", "cdcd", "seqdiffuseq", "transformer"), "wmt14-en-de"),
    tiny={"seqdiffuseq": {"optim.steps": 600, "refit_every": 200, "refit_start": 200}},
    arms=(
        _candidates_arm("CDCD", ModelSpec("cdcd"), noises=1, bleu=19.30),
        _candidates_arm("CDCD", ModelSpec("cdcd"), noises=10, bleu=19.70),
        _candidates_arm("SeqDiffuSeq", ModelSpec("seqdiffuseq"), noises=1, bleu=19.16),
        _candidates_arm("SeqDiffuSeq", ModelSpec("seqdiffuseq"), noises=10, bleu=19.76),
        _candidates_arm("DiNoiSer", ModelSpec("dinoiser"), lengths=5, noises=1, bleu=24.25),
        _candidates_arm("DiNoiSer", ModelSpec("dinoiser"), lengths=5, noises=10, bleu=24.62),
        _candidates_arm("Difformer", ModelSpec("difformer"), lengths=1, noises=1, bleu=22.80),
        _candidates_arm("Difformer", ModelSpec("difformer"), lengths=5, noises=2, bleu=24.10),
        _candidates_arm("Difformer", ModelSpec("difformer"), lengths=10, noises=5, bleu=24.90),
        _candidates_arm("DiNoiSer, distilled", _DISTILLED_DINOISER, lengths=5, noises=1, bleu=25.70),
        _candidates_arm("DiNoiSer, distilled", _DISTILLED_DINOISER, lengths=5, noises=10, bleu=25.90),
        _candidates_arm("Difformer, distilled", _DISTILLED_DIFFORMER, lengths=5, noises=2, bleu=26.20),
    ),
)


def _timed_arm(
    name: str, model: ModelSpec, generation_changes: Changes, tiny: Changes, *, speed: float, bleu: float
) -> Arm:
    return Arm(name, model, generation_changes, tiny, {PAPER_BLEU: bleu, "sentences_per_second": speed})


def _difformer_arm(steps: int, tiny: int, *, speed: float, bleu: float) -> Arm:
    generation_changes = {"steps": steps, "stop_early": 0, **BEAM_10}
    tiny_changes = {"steps": tiny, "length_beam": 1, "noise_beam": 10}
    return _timed_arm(
        f"Difformer, K = {steps}",
        ModelSpec("difformer"),
        generation_changes,
        tiny_changes,
        speed=speed,
        bleu=bleu,
    )


def _diffuseq_arm(steps: int, tiny: int, *, speed: float, bleu: float) -> Arm:
    model = ModelSpec("diffuseq", tiny={"optim.steps": 1_400})
    generation_changes = {"steps": steps, "noise_beam": 10}
    return _timed_arm(
        f"DiffuSeq, K = {steps}", model, generation_changes, {"steps": tiny}, speed=speed, bleu=bleu
    )


_STEPS = Experiment(
    name="difformer-steps",
    paper=PAPER,
    table="table 8",
    summary="Speed and quality for fewer and fewer steps K, one sentence at a time "
    "(tiny: a tenth of K above 20).",
    claim="Difformer needs few steps, and with few steps it is faster than the others.",
    metric_note="tokenized BLEU on IWSLT14 De-En, b = 10; DiffuSeq fails with few steps because of a bug "
    "in its code.",
    measures=(PAPER_BLEU, "sentences_per_second"),
    tiny_measures=("bleu", "exact_match", "sentences_per_second"),
    presets=dict.fromkeys(("difformer", "cmlm", "diffuseq", "seqdiffuseq", "transformer"), "iwslt14-de-en"),
    tiny={"seqdiffuseq": {"optim.steps": 600, "refit_every": 200, "refit_start": 200}},
    batch=1,
    sentences=50,
    arms=(
        _timed_arm("Transformer", ModelSpec("transformer"), {"beam": 10}, {}, speed=6.05, bleu=33.91),
        _timed_arm(
            "CMLM, K = 10",
            ModelSpec("cmlm"),
            {"iterations": 10, "length_beam": 10},
            {"length_beam": 1},
            speed=11.80,
            bleu=31.76,
        ),
        _diffuseq_arm(2000, 200, speed=0.06, bleu=28.78),
        _diffuseq_arm(1000, 100, speed=0.12, bleu=23.91),
        _diffuseq_arm(500, 50, speed=0.23, bleu=0.96),
        _timed_arm(
            "SeqDiffuSeq, K = 2000",
            ModelSpec("seqdiffuseq"),
            {"steps": 2000, "noise_beam": 10},
            {"steps": 200},
            speed=0.05,
            bleu=30.03,
        ),
        _difformer_arm(2000, 200, speed=0.03, bleu=34.09),
        _difformer_arm(20, 20, speed=6.30, bleu=34.19),
        _difformer_arm(10, 10, speed=11.40, bleu=34.13),
        _difformer_arm(1, 1, speed=39.51, bleu=30.14),
    ),
)

EXPERIMENTS = (_PEERS, _STEPS)
