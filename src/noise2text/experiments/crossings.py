"""Parts of one paper in the recipe of another: what each adds to SeqDiffuSeq and to Difformer."""

from __future__ import annotations

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec
from noise2text.experiments.seqdiffuseq import FIXED_SCHEDULE, SHORT_TRAINING

__all__ = ["EXPERIMENTS"]

_FACTOR: Changes = {"noise_factor": 4.0}  # DGS 0.15 for 10,000 tokens in 128 dimensions
_SMALL_FACTOR: Changes = {"noise_factor": 2.0}  # the same for 50 in 8
_ANCHOR: Changes = {"anchor_weight": 1.0}
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
_SEARCH: Changes = {"noise_factor_every": 20_000}
_SHORT_SEARCH: Changes = {"noise_factor_every": 150}
_LOSS_AWARE: Changes = {"time_sampler": "loss-aware"}
_WITHOUT_SOURCES: Changes = {"source_dropout": 0.1}
_GUIDED: Changes = {"guidance_weight": 0.5}


def _seqdiffuseq(name: str, *parts: Changes) -> Arm:
    changes = {setting: value for part in parts for setting, value in part.items()}
    tiny = _SMALL_FACTOR if _FACTOR in parts else {}
    return Arm(
        f"SeqDiffuSeq{name}", ModelSpec("seqdiffuseq", changes, tiny), {"noise_beam": 1}, {"steps": 20}
    )


def _difformer(
    name: str, changes: Changes, tiny: Changes | None = None, generation: Changes | None = None
) -> Arm:
    return Arm(f"Difformer{name}", ModelSpec("difformer", changes, tiny or {}), generation or {})


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
    arms=(
        _seqdiffuseq(""),
        _seqdiffuseq(", anchor loss", _ANCHOR),
        _seqdiffuseq(", noise factor", _FACTOR),
        _seqdiffuseq(", anchor loss, noise factor", _ANCHOR, _FACTOR),
        _seqdiffuseq(", anchor loss, noise factor, no refits", _ANCHOR, _FACTOR, FIXED_SCHEDULE),
        _difformer("", {}),
        _difformer(", adaptive schedule", _REFITS, _SHORT_REFITS),
        _difformer(", factor searched again", _SEARCH, _SHORT_SEARCH),
        _difformer(
            ", adaptive schedule, factor searched again",
            {**_REFITS, **_SEARCH},
            {**_SHORT_REFITS, **_SHORT_SEARCH},
        ),
        _difformer(", importance sampling", _LOSS_AWARE),
        _difformer(", guided", _WITHOUT_SOURCES, generation=_GUIDED),
    ),
)

EXPERIMENTS = (_CROSSINGS,)
