"""The experiments of DiffuSeq (Gong et al., 2023): candidates, and decoupled embeddings."""

from __future__ import annotations

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec

__all__ = ["EXPERIMENTS", "PAPER"]

PAPER = "DiffuSeq (Gong et al., 2023)"
SIZES = (1, 3, 5, 10, 20)
_SAME_TOKENS: Changes = {"vocabulary": 30_522, "lowercase": True, "model_dim": 128, "heads": 4}
_SAME_DIMENSION: Changes = {"model_dim": 16}  # DiffuSeq's dimension

_CANDIDATES = Experiment(
    name="diffuseq-candidates",
    paper=PAPER,
    table="figure 3",
    summary="Quality with more MBR candidates, for DiffuSeq and for an autoregressive model that samples.",
    claim="DiffuSeq gains more from many candidates, because they differ more.",
    metric_note="none, since it only plots them; its autoregressive model is GPT-2, here a Transformer.",
    measures=("bleu", "bleu_one_candidate", "div_4", "exact_match"),
    presets={"diffuseq": "qqp", "transformer": "qqp"},
    tiny={
        "diffuseq": {"optim.steps": 1_400, "validate_every": 1_400, "generation.steps": 20},
        "transformer": {"optim.steps": 300},
    },
    sentences=250,
    arms=(
        *(
            Arm(f"DiffuSeq, |S| = {size}", ModelSpec("diffuseq"), {"noise_beam": size}, {"steps": 20})
            for size in SIZES
        ),
        *(
            Arm(f"Transformer, |S| = {size}", ModelSpec("transformer"), {"samples": size, "select": "mbr"})
            for size in SIZES
        ),
    ),
)

_THREE_SAMPLES: Changes = {"noise_beam": 3}
_TABLE_3 = {  # learned together, and fixed
    "bleu-diffuseq": (15.67, 1.10),
    "rouge-l-torchmetrics": (34.84, 6.87),
    "bertscore": (59.47, 37.69),
    "self_bleu_diffuseq": (27.89, 1.74),
    "div_4_diffuseq": (81.03, 93.76),
}
_EMBEDDINGS = Experiment(
    name="diffuseq-embeddings",
    paper=PAPER,
    table="table 3",
    summary="Embeddings learned jointly for both sides, or frozen ones of a trained Transformer for the "
    "source.",
    claim="frozen embeddings of the source, decoupled from those of the target, fail.",
    metric_note="mean sentence BLEU in percent on question generation, one candidate, and BERT-tiny's "
    "embeddings; diversity of three samples.",
    measures=tuple(_TABLE_3),
    tiny_measures=("bleu", "exact_match", "rouge-l", "self_bleu", "div_4"),
    presets={"diffuseq": "quasar-t", "diffuseq-decoupled": "quasar-t", "transformer": "quasar-t"},
    tiny={
        **{
            name: {"optim.steps": 1_400, "validate_every": 1_400}
            for name in ("diffuseq", "diffuseq-decoupled")
        },
        "transformer": {"lowercase": True},
    },
    sentences=250,
    arms=(
        Arm(
            "learned together",
            ModelSpec("diffuseq"),
            {"noise_beam": 1},
            {"steps": 20},
            {name: numbers[0] for name, numbers in _TABLE_3.items()},
            _THREE_SAMPLES,
        ),
        Arm(
            "a Transformer's for the source, fixed",
            ModelSpec(
                "diffuseq-decoupled", embeddings=ModelSpec("transformer", _SAME_TOKENS, _SAME_DIMENSION)
            ),
            {"noise_beam": 1},
            {"steps": 20},
            {name: numbers[1] for name, numbers in _TABLE_3.items()},
            _THREE_SAMPLES,
        ),
    ),
)

EXPERIMENTS = (_CANDIDATES, _EMBEDDINGS)
