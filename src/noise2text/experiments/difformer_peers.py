"""Difformer beside other systems (Gao et al., 2024): raw and distilled data, and how few steps are enough."""

from __future__ import annotations

from noise2text.experiments.difformer import PAPER, TEN
from noise2text.experiments.experiment import Arm, Changes, Model, Study

__all__ = ["STUDIES"]


def _candidates(name: str, model: Model, how: Changes, *, beam: int, bleu: float) -> Arm:
    """An arm with b candidates; for dates all of one length."""
    one_length = {"length_beam": 1} if "length_beam" in how else {}
    return Arm(f"{name}, b = {beam}", model, how, {**one_length, "noise_beam": beam}, {"bleu": bleu})


_TEACHER = Model("transformer")
_PEERS = Study(
    name="difformer-peers",
    paper=PAPER,
    table="tables 5 and 6",
    line="Difformer and its peers on raw and on distilled data.",
    finding="with equally many candidates Difformer is best on both; distilled data are easier.",
    about="sacrebleu on WMT14 En-De; those of other systems are as their papers report them.",
    presets=dict.fromkeys(("difformer", "dinoiser", "cdcd", "seqdiffuseq", "transformer"), "wmt14-en-de"),
    tiny={"seqdiffuseq": {"steps": 600, "refit_every": 200, "refit_first": 200}},
    arms=(
        _candidates("CDCD", Model("cdcd"), {"noise_beam": 1}, beam=1, bleu=19.30),
        _candidates("CDCD", Model("cdcd"), {"noise_beam": 10}, beam=10, bleu=19.70),
        _candidates("SeqDiffuSeq", Model("seqdiffuseq"), {"noise_beam": 1}, beam=1, bleu=19.16),
        _candidates("SeqDiffuSeq", Model("seqdiffuseq"), {"noise_beam": 10}, beam=10, bleu=19.76),
        _candidates("DiNoiSer", Model("dinoiser"), {"length_beam": 5, "noise_beam": 1}, beam=5, bleu=24.25),
        _candidates("DiNoiSer", Model("dinoiser"), {"length_beam": 5, "noise_beam": 10}, beam=50, bleu=24.62),
        _candidates("Difformer", Model("difformer"), {"length_beam": 1, "noise_beam": 1}, beam=1, bleu=22.80),
        _candidates("Difformer", Model("difformer"), TEN, beam=10, bleu=24.10),
        _candidates(
            "Difformer", Model("difformer"), {"length_beam": 10, "noise_beam": 5}, beam=50, bleu=24.90
        ),
        _candidates(
            "DiNoiSer, distilled",
            Model("dinoiser", teacher=_TEACHER),
            {"length_beam": 5, "noise_beam": 1},
            beam=5,
            bleu=25.70,
        ),
        _candidates(
            "DiNoiSer, distilled",
            Model("dinoiser", teacher=_TEACHER),
            {"length_beam": 5, "noise_beam": 10},
            beam=50,
            bleu=25.90,
        ),
        _candidates("Difformer, distilled", Model("difformer", teacher=_TEACHER), TEN, beam=10, bleu=26.20),
    ),
)


def _timed(name: str, model: Model, how: Changes, tiny: Changes, *, speed: float, bleu: float) -> Arm:
    return Arm(name, model, how, tiny, {"bleu": bleu, "sentences_per_second": speed})


def _difformer(steps: int, tiny: int, *, speed: float, bleu: float) -> Arm:
    how = {"steps": steps, "stop_early": 0, **TEN}
    small = {"steps": tiny, "length_beam": 1, "noise_beam": 10}
    return _timed(f"Difformer, K = {steps}", Model("difformer"), how, small, speed=speed, bleu=bleu)


def _diffuseq(steps: int, tiny: int, *, speed: float, bleu: float) -> Arm:
    model = Model("diffuseq", {"vocabulary": 10_000, "normalise": False}, {"steps": 1_400})
    how = {"steps": steps, "noise_beam": 10}
    return _timed(f"DiffuSeq, K = {steps}", model, how, {"steps": tiny}, speed=speed, bleu=bleu)


_STEPS = Study(
    name="difformer-steps",
    paper=PAPER,
    table="table 8",
    line="Speed and quality as the steps K get fewer, one sentence at a time (tiny: K above 20 is a tenth).",
    finding="Difformer needs few steps, and with few of them is faster than what it is compared with.",
    about="tokenised BLEU on IWSLT14 De-En, b = 10; DiffuSeq's few steps fail by a mistake in its code.",
    measures=("bleu", "exact", "sentences_per_second"),
    presets={
        **dict.fromkeys(("difformer", "cmlm", "seqdiffuseq", "transformer"), "iwslt14-de-en"),
        "diffuseq": "covost-de-en",
    },
    tiny={"seqdiffuseq": {"steps": 600, "refit_every": 200, "refit_first": 200}},
    batch=1,
    sentences=50,
    arms=(
        _timed("Transformer", Model("transformer"), {"beam": 10}, {}, speed=6.05, bleu=33.91),
        _timed(
            "CMLM, K = 10",
            Model("cmlm"),
            {"iterations": 10, "length_beam": 10},
            {"length_beam": 1},
            speed=11.80,
            bleu=31.76,
        ),
        _diffuseq(2000, 200, speed=0.06, bleu=28.78),
        _diffuseq(1000, 100, speed=0.12, bleu=23.91),
        _diffuseq(500, 50, speed=0.23, bleu=0.96),
        _timed(
            "SeqDiffuSeq, K = 2000",
            Model("seqdiffuseq"),
            {"steps": 2000, "noise_beam": 10},
            {"steps": 200},
            speed=0.05,
            bleu=30.03,
        ),
        _difformer(2000, 200, speed=0.03, bleu=34.09),
        _difformer(20, 20, speed=6.30, bleu=34.19),
        _difformer(10, 10, speed=11.40, bleu=34.13),
        _difformer(1, 1, speed=39.51, bleu=30.14),
    ),
)

STUDIES = (_PEERS, _STEPS)
