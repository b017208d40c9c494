"""Parts of one paper in the recipe of another: what each adds to SeqDiffuSeq and to Difformer."""

from __future__ import annotations

from dataclasses import replace

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec
from noise2text.experiments.seqdiffuseq import FIXED_SCHEDULE, SHORT_TRAINING

__all__ = ["EXPERIMENTS"]

_ANCHOR: Changes = {"anchor_weight": 1.0}
_SEARCH: Changes = {"noise_factor_every": 20_000}
_SHORT_SEARCH: Changes = {"noise_factor_every": 150}
_REFITS: Changes = {"refit_every": 20_000, "refit_start": 20_000}
_SHORT_REFITS: Changes = {
    "refit_every": 150,
    "refit_start": 150,
    "refit_bin_size": 10,
    "refit_min_count": 20,
}
_HALF_WIDTH: Changes = {"model_dim": 64, "ffn_dim": 256}  # so that three seeds take half an hour
# With 2,000 times a short training never has the ten losses of each that importance sampling waits for.
_COARSE_TIMES: Changes = {"num_timesteps": 200}
_LOSS_AWARE: Changes = {"time_sampler": "loss-aware"}
_WITHOUT_SOURCES: Changes = {"source_dropout": 0.1}
_GUIDED: Changes = {"guidance_weight": 0.5}

# For the preset small, which trains for 3,000 updates.
_SMALL_SEARCH: Changes = {"noise_factor_every": 500}
_SMALL_REFITS: Changes = {
    "refit_every": 500,
    "refit_start": 500,
    "refit_bin_size": 100,
    "refit_min_count": 250,
}


def _arms(*, factor: float, tiny_factor: float, search: Changes, refits: Changes) -> tuple[Arm, ...]:
    """The arms; the factors are SeqDiffuSeq's, for a degeneration score of 0.15. Difformer finds its own."""

    def seqdiffuseq(name: str, *parts: Changes, rescaled: bool = False) -> Arm:
        changes = {setting: value for part in parts for setting, value in part.items()}
        changes |= {"noise_factor": factor} if rescaled else {}
        tiny = {"noise_factor": tiny_factor} if rescaled else {}
        model = ModelSpec("seqdiffuseq", changes, tiny)
        return Arm(f"SeqDiffuSeq{name}", model, {"noise_beam": 1}, {"steps": 20})

    def difformer(
        name: str, changes: Changes, tiny: Changes | None = None, generation: Changes | None = None
    ) -> Arm:
        return Arm(f"Difformer{name}", ModelSpec("difformer", changes, tiny or {}), generation or {})

    return (
        seqdiffuseq(""),
        seqdiffuseq(", anchor loss", _ANCHOR),
        seqdiffuseq(", noise factor", rescaled=True),
        seqdiffuseq(", anchor loss, noise factor", _ANCHOR, rescaled=True),
        seqdiffuseq(", anchor loss, noise factor, no refits", _ANCHOR, FIXED_SCHEDULE, rescaled=True),
        difformer("", {}),
        difformer(", adaptive schedule", refits, _SHORT_REFITS),
        difformer(", factor searched again", search, _SHORT_SEARCH),
        difformer(
            ", adaptive schedule, factor searched again",
            {**refits, **search},
            {**_SHORT_REFITS, **_SHORT_SEARCH},
        ),
        difformer(", importance sampling", _LOSS_AWARE),
        difformer(", guided", _WITHOUT_SOURCES, generation=_GUIDED),
    )


_CROSSINGS = Experiment(
    name="crossings",
    paper="Parts of SeqDiffuSeq and Difformer crossed",
    table="in no paper",
    summary="Parts of each in the other: adaptive schedule, noise factor, anchor loss, importance sampling, "
    "guidance, and a factor that follows the embeddings.",
    claim="SeqDiffuSeq calls Difformer's parts orthogonal to its own; Difformer calls its fixed factor a "
    "limitation.",
    metric_note="none, since neither ran this.",
    measures=("bleu", "exact_match", "noise_factor"),
    tiny={
        "seqdiffuseq": {**SHORT_TRAINING, **_HALF_WIDTH},
        "difformer": {**_COARSE_TIMES, **_HALF_WIDTH, "embedding_dim": 64},
    },
    sentences=250,
    # 4 is for 10,000 tokens in 128 dimensions, 2 for 50 in 8.
    arms=_arms(factor=4.0, tiny_factor=2.0, search=_SEARCH, refits=_REFITS),
)
_SMALL = replace(
    _CROSSINGS,
    presets={"seqdiffuseq": "small", "difformer": "small"},
    # 1.5 is for 4,000 tokens in 16 dimensions.
    arms=_arms(factor=1.5, tiny_factor=2.0, search=_SMALL_SEARCH, refits=_SMALL_REFITS),
)

EXPERIMENTS = (replace(_CROSSINGS, columns={"iwslt14-de-en": _CROSSINGS, "small": _SMALL}),)
