"""Does the source matter? Every conditional diffusion system, and the same with the targets of other sources.

A system that ignores its sources learns as much from shuffled pairs as from right ones. So each system is
trained on both, and the difference is what it has learned about the source.
"""

from __future__ import annotations

from noise2text.experiments.experiment import Arm, Experiment, ModelSpec

__all__ = ["EXPERIMENTS"]

_SYSTEMS = {
    "Difformer": "difformer",
    "flow": "flow",
    "CDCD": "cdcd",
    "DiNoiSer": "dinoiser",
    "AR-Diffusion": "ar-diffusion",
    "SeqDiffuSeq": "seqdiffuseq",
    "DiffuSeq": "diffuseq",
    "DiffuSeq, source embeddings apart": "diffuseq-decoupled",
    "DiffuSeq, token by token": "diffuseq-autoregressive",
    "DiffuSeq, guided": "diffuseq-guided",
    "DiffuSeq, mean": "diffuseq-mean",
    "DiffuSeq, score": "diffuseq-score",
    "DiffuSeq, noise": "diffuseq-epsilon",
    "DiffuSeq, alternate kernel": "diffuseq-kernel",
    "DiffuSeq, sigmoid schedule": "diffuseq-position-sigmoid",
    "word by word": "word-by-word",
}

_SHUFFLED_SOURCES = Experiment(
    name="shuffled-sources",
    paper="Every conditional diffusion system beside its control",
    table="in no paper",
    summary="Each system, and the same system trained on pairs with the targets of other sources.",
    claim="a system that uses its source is far ahead of its control.",
    metric_note="none, since no paper ran this.",
    measures=("bleu", "chrf", "exact_match"),
    presets=dict.fromkeys(_SYSTEMS.values(), "small"),
    sentences=250,
    arms=tuple(
        Arm(f"{name}{', shuffled' if shuffled else ''}", ModelSpec(recipe, shuffled=shuffled))
        for name, recipe in _SYSTEMS.items()
        for shuffled in (False, True)
    ),
)

EXPERIMENTS = (_SHUFFLED_SOURCES,)
