"""The studies of a thesis on DiffuSeq for translation: its models side by side, and how long they take."""

from __future__ import annotations

from noise2text.experiments.experiment import Arm, Changes, Model, Study

__all__ = ["STUDIES"]

PAPER = "Classifier-free Diffusion Models for Machine Translation (a thesis)"
MODELS = {
    "Diffusion-LM": Model("diffusion-lm"),
    "DiffuSeq": Model("diffuseq"),
    "DiffuSeq, token by token": Model("diffuseq"),
    "DiffuSeq, distilled": Model("diffuseq", teacher=Model("transformer")),
    "Transformer": Model("transformer"),
    "Levenshtein Transformer": Model("levenshtein", {"vocabulary": 30_000}, {"steps": 900}),
}
HOW: dict[str, Changes] = {"DiffuSeq, token by token": {"strategy": "token-by-token"}}
TINY: dict[str, Changes] = {
    "Diffusion-LM": {"steps": 20},
    "DiffuSeq": {"steps": 20},
    "DiffuSeq, token by token": {"steps": 5},
    "DiffuSeq, distilled": {"steps": 20},
}
PRESETS = {
    "diffusion-lm": "covost-de-en",
    "diffuseq": "covost-de-en",
    "transformer": "covost",
    "levenshtein": "iwslt14-de-en",
}
SMALLER: dict[str, Changes] = {
    name: {"steps": 1_400, "validate_every": 1_400, "generation_steps": 20}
    for name in ("diffusion-lm", "diffuseq")
}


def _arm(name: str, **paper: float) -> Arm:
    return Arm(name, MODELS[name], HOW.get(name, {}), TINY.get(name, {}), paper)


_QUALITY = Study(
    name="thesis-models",
    paper=PAPER,
    table="table 4.2",
    line="Diffusion models, autoregressive sampling and distillation beside a Transformer and LevT.",
    finding="all diffusion models are behind both baselines; distillation helps most.",
    about="sacrebleu on CoVoST, probably English to German; its teacher is a public WMT19 model.",
    presets=PRESETS,
    tiny=SMALLER,
    sentences=250,
    arms=(
        _arm("Diffusion-LM", bleu=2.3),
        _arm("DiffuSeq", bleu=10.0),
        _arm("DiffuSeq, token by token", bleu=10.7),
        _arm("DiffuSeq, distilled", bleu=12.5),
        _arm("Transformer", bleu=28.8),
        _arm("Levenshtein Transformer", bleu=19.2),
    ),
)

_DAY, _HOUR, _MINUTE = 86_400.0, 3_600.0, 60.0
_TIMES = Study(
    name="thesis-times",
    paper=PAPER,
    table="table 4.4",
    line="How long training and decoding take; shares its models with thesis-models in one folder.",
    finding="diffusion decodes a thousand times as slowly as the Levenshtein Transformer.",
    about="seconds for 2,010 sentences on a TITAN RTX (the Levenshtein Transformer: an RTX 3070); token by "
    "token is given as more than 30 hours.",
    measures=("decoding_seconds", "training_seconds", "bleu"),
    presets=PRESETS,
    tiny=SMALLER,
    sentences=250,
    arms=(
        _arm("Levenshtein Transformer", training_seconds=19 * _HOUR, decoding_seconds=6.0),
        _arm(
            "Diffusion-LM",
            training_seconds=3 * _DAY + 6 * _HOUR,
            decoding_seconds=_HOUR + 44 * _MINUTE + 46,
        ),
        _arm(
            "DiffuSeq",
            training_seconds=14 * _DAY + 9 * _HOUR,
            decoding_seconds=3 * _HOUR + 23 * _MINUTE + 17,
        ),
        _arm(
            "DiffuSeq, token by token",
            training_seconds=14 * _DAY + 9 * _HOUR,
            decoding_seconds=30 * _HOUR,
        ),
        _arm(
            "DiffuSeq, distilled",
            training_seconds=10 * _DAY + 12 * _HOUR,
            decoding_seconds=3 * _HOUR + 23 * _MINUTE,
        ),
    ),
)

STUDIES = (_QUALITY, _TIMES)
