"""The studies of DiffuSeq (Gong et al., 2023): candidates, and embeddings that are not learned together."""

from __future__ import annotations

from noise2text.studies.study import Arm, Model, Study

__all__ = ["STUDIES"]

PAPER = "DiffuSeq (Gong et al., 2023)"
SIZES = (1, 3, 5, 10, 20)

_CANDIDATES = Study(
    name="diffuseq-candidates",
    paper=PAPER,
    table="figure 3",
    line="Quality as MBR has more candidates, of DiffuSeq and of an autoregressive model that samples.",
    finding="DiffuSeq gains more from many candidates, because they differ more.",
    about="none; they are drawn, not printed. Its autoregressive model is GPT-2, here a Transformer.",
    measures=("bleu", "single", "div_4", "exact"),
    presets={"diffuseq": "qqp", "transformer": "qqp"},
    tiny={
        "diffuseq": {"steps": 1_400, "validate_every": 1_400, "generation_steps": 20},
        "transformer": {"steps": 300},
    },
    sentences=250,
    arms=(
        *(
            Arm(f"DiffuSeq, |S| = {size}", Model("diffuseq"), {"noise_beam": size}, {"steps": 20})
            for size in SIZES
        ),
        *(
            Arm(f"Transformer, |S| = {size}", Model("transformer"), {"samples": size, "select": "mbr"})
            for size in SIZES
        ),
    ),
)

STUDIES = (_CANDIDATES,)
