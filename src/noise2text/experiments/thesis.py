"""The experiments of Demirag (2023): quality and speed of the models."""

from __future__ import annotations

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec
from noise2text.recipes.diffuseq import DEMIRAG_2023

__all__ = ["EXPERIMENTS"]

PAPER = DEMIRAG_2023
_PUBLISHED_DIFFUSION_LM: Changes = {  # of the preset tiny-published, where tiny differs
    "given_source": 0.0,
    "anchor_weight": 0.0,
    "max_tokens": 1_120,
    "sampling_noise_factor": 1.0,
    "clamp": True,
}
MODELS = {
    "Diffusion-LM": ModelSpec("diffusion-lm", tiny=_PUBLISHED_DIFFUSION_LM),
    "DiffuSeq": ModelSpec("diffuseq"),
    "DiffuSeq, token by token": ModelSpec("diffuseq"),
    "DiffuSeq, distilled": ModelSpec("diffuseq", teacher=ModelSpec("transformer")),
    "Transformer": ModelSpec("transformer"),
    "Levenshtein Transformer": ModelSpec("levenshtein", tiny={"optim.steps": 900}),
}
GENERATION_CHANGES: dict[str, Changes] = {"DiffuSeq, token by token": {"strategy": "token-by-token"}}
TINY_GENERATION: dict[str, Changes] = {
    "Diffusion-LM": {"steps": 20},
    "DiffuSeq": {"steps": 20},
    "DiffuSeq, token by token": {"steps": 5},
    "DiffuSeq, distilled": {"steps": 20},
}
PRESETS = {
    "diffusion-lm": "covost-de-en",
    "diffuseq": "covost-de-en",
    "transformer": "covost-de-en",
    "levenshtein": "covost-de-en",
}
TINY_TRAINING: dict[str, Changes] = {
    name: {"optim.steps": 1_400, "validate_every": 1_400, "generation.steps": 20}
    for name in ("diffusion-lm", "diffuseq")
}


def _arm(name: str, **paper: float) -> Arm:
    numbers = {measure.replace("_qe", "-qe"): number for measure, number in paper.items()}
    return Arm(name, MODELS[name], GENERATION_CHANGES.get(name, {}), TINY_GENERATION.get(name, {}), numbers)


_QUALITY = Experiment(
    name="thesis-models",
    paper=PAPER,
    table="table 4.2",
    summary="Diffusion models, autoregressive sampling and distillation, a Transformer and LevT.",
    claim="all diffusion models are worse than both baselines; distillation helps most.",
    metric_note="sacrebleu on CoVoST, probably English to German; COMET is wmt20-comet-qe-da; its teacher is "
    "a public WMT19 model.",
    measures=("bleu", "exact_match", "comet-qe"),
    presets=PRESETS,
    tiny=TINY_TRAINING,
    sentences=250,
    arms=(
        _arm("Diffusion-LM", bleu=2.3, comet_qe=0.9),
        _arm("DiffuSeq", bleu=10.0, comet_qe=3.0),
        _arm("DiffuSeq, token by token", bleu=10.7, comet_qe=2.5),
        _arm("DiffuSeq, distilled", bleu=12.5, comet_qe=4.1),
        _arm("Transformer", bleu=28.8, comet_qe=20.2),
        _arm("Levenshtein Transformer", bleu=19.2, comet_qe=10.7),
    ),
)

_PUBLISHED: Changes = {"noise_factor": 1.0, "anchor_weight": 0.0, "clamp": True}  # not what works on dates
_SIGMOID: Changes = {"source_dropout": 0.5}
_COLLAPSE = Experiment(
    name="thesis-collapse",
    paper=PAPER,
    table="section 4.2.2 and figure 4.3",
    summary="The five models that converged to trivial texts, beside DiffuSeq. `noise2text analyse curves` "
    "draws figure 4.3 of their folders.",
    claim="models 1 and 2 generate only padding, 4 and 5 meaningless texts; 3 is poor; nll is low where "
    "there is much padding.",
    metric_note="sacrebleu on CoVoST; for the other models it says that the texts are trivial.",
    measures=("bleu", "empty_texts", "nll", "nll_text"),
    tiny_measures=("bleu", "exact_match", "empty_texts", "nll", "nll_text"),
    tiny={
        name: {"optim.steps": 1_000, "validate_every": 1_000, "save_every": 500, "generation.steps": 20}
        for name in ("diffuseq", "word-by-word", "diffuseq-kernel", "diffuseq-position-sigmoid")
    },
    presets=dict.fromkeys(
        ("diffuseq", "word-by-word", "diffuseq-kernel", "diffuseq-position-sigmoid"), "covost-de-en"
    ),
    sentences=250,
    arms=(
        Arm("DiffuSeq", ModelSpec("diffuseq"), paper={"bleu": 10.0}),
        Arm("1: word generation", ModelSpec("word-by-word", tiny=_PUBLISHED)),
        Arm("2: a sixteenth of the batch", ModelSpec("diffuseq", {"accumulate": 1}, {"max_tokens": 80})),
        Arm("3: alternate kernel", ModelSpec("diffuseq-kernel"), paper={"bleu": 6.0}),
        Arm("4: sigmoid schedule", ModelSpec("diffuseq-position-sigmoid", _SIGMOID)),
        Arm(
            "5: sigmoid schedule, score matching",
            ModelSpec("diffuseq-position-sigmoid", {**_SIGMOID, "parameterization": "score"}),
        ),
    ),
)

_DAY, _HOUR, _MINUTE = 86_400.0, 3_600.0, 60.0
_TIMES = Experiment(
    name="thesis-times",
    paper=PAPER,
    table="table 4.4",
    summary="The time for training and decoding; shares its models with thesis-models in one folder.",
    claim="diffusion decodes a thousand times more slowly than the Levenshtein Transformer.",
    metric_note="seconds for 2,010 sentences on a TITAN RTX (the Levenshtein Transformer: an RTX 3070); "
    "token by token is given as more than 30 hours.",
    measures=("decoding_seconds", "training_seconds", "bleu"),
    presets=PRESETS,
    tiny=TINY_TRAINING,
    sentences=250,
    arms=(
        _arm("Levenshtein Transformer", training_seconds=19 * _HOUR, decoding_seconds=6.0),
        _arm(
            "Diffusion-LM", training_seconds=3 * _DAY + 6 * _HOUR, decoding_seconds=_HOUR + 44 * _MINUTE + 46
        ),
        _arm(
            "DiffuSeq", training_seconds=14 * _DAY + 9 * _HOUR, decoding_seconds=3 * _HOUR + 23 * _MINUTE + 17
        ),
        _arm("DiffuSeq, token by token", training_seconds=14 * _DAY + 9 * _HOUR, decoding_seconds=30 * _HOUR),
        _arm(
            "DiffuSeq, distilled",
            training_seconds=10 * _DAY + 12 * _HOUR,
            decoding_seconds=3 * _HOUR + 23 * _MINUTE,
        ),
    ),
)

EXPERIMENTS = (_QUALITY, _TIMES, _COLLAPSE)
