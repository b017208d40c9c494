"""The main table of DiffuSeq (Gong et al., 2023): seven systems on four datasets, quality and diversity.

Quality is of one text, that of DiffuSeq selected by MBR among ten. Diversity is of three samples: drawn from
the noise, from the latent variable or from the words' distribution; systems without a source of diversity
(table 4) give the same text three times, or the first three of a beam.
"""

from __future__ import annotations

from dataclasses import replace

from noise2text.experiments.diffuseq import PAPER
from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec
from noise2text.experiments.paper_numbers import paper_numbers

__all__ = ["EXPERIMENTS"]

TASKS = ("qqp", "wiki-auto", "quasar-t", "commonsense-conversation")
MEASURES = {
    "BLEU": "bleu-diffuseq",
    "ROUGE-L": "rouge-l-torchmetrics",
    "BERTScore": "bertscore",
    "dist-1": "dist_1_diffuseq",
    "self-BLEU": "self_bleu_diffuseq",
    "div-4": "div_4_diffuseq",
    "length": "words",
}
TINY_MEASURES = ("bleu", "exact_match", "rouge-l", "dist_1", "self_bleu", "div_4", "parameters")
_SAMPLED: Changes = {"samples": 3, "top_p": 0.9}  # the paper: top-p, temperature, diverse beams "and etc."
_GPT2_LARGE = ModelSpec("pretrained-causal", tiny={"layers": 4}, preset="gpt2-large", pretrained="gpt2-large")
_GPVAE = ModelSpec("gpvae", preset="t5-base", pretrained="t5-base")
_SYSTEMS: dict[str, tuple[ModelSpec, float, Changes, Changes, Changes]] = {
    # the model, its parameters in millions (table 4), generation, that at the tiny scale, samples
    "GRU-attention": (ModelSpec("gru"), 65, {}, {}, {"beam": 3}),
    "Transformer-base": (ModelSpec("transformer"), 80, {}, {}, _SAMPLED),
    "GPT2-base FT": (ModelSpec("pretrained-causal", preset="gpt2", pretrained="gpt2"), 117, {}, {}, _SAMPLED),
    "GPT2-large FT": (_GPT2_LARGE, 774, {}, {}, _SAMPLED),
    "GPVAE-T5": (_GPVAE, 220, {}, {}, {"noises": 3, "beam": 1}),
    "NAR-LevT": (ModelSpec("levenshtein"), 80, {}, {}, {}),
    "DiffuSeq": (ModelSpec("diffuseq"), 91, {"noise_beam": 10}, {"steps": 20}, {"noise_beam": 3}),
}


def _arm(task: str, system: str) -> Arm:
    model, parameters, generation, tiny, samples = _SYSTEMS[system]
    setting = "MBR of 10" if system == "DiffuSeq" else ""
    numbers = paper_numbers(PAPER, "1", task=task, system=system, setting=setting, measures=MEASURES)
    return Arm(system, model, generation, tiny, numbers | {"parameters": parameters}, samples)


def _column(task: str) -> Experiment:
    return Experiment(
        name="diffuseq-main",
        paper=PAPER,
        table="tables 1 and 4",
        summary="DiffuSeq and six baselines: quality, diversity of three samples, and size.",
        claim="DiffuSeq is as good as or better than the baselines, and more diverse.",
        metric_note=f"{task}; mean sentence BLEU, ROUGE-L of torchmetrics, BERTScore by deberta-xlarge-mnli, "
        "diversity by the released script, all in percent; parameters in millions.",
        measures=(*MEASURES.values(), "parameters"),
        tiny_measures=TINY_MEASURES,
        presets=dict.fromkeys(("gru", "transformer", "levenshtein", "diffuseq"), task),
        tiny={
            "diffuseq": {"optim.steps": 1_400, "validate_every": 1_400, "generation.steps": 20},
            "gru": {"validate_every": 600},
            "levenshtein": {"optim.steps": 900},
            "pretrained-causal": {"optim.steps": 600, "validate_every": 600},
            "gpvae": {"validate_every": 700},
        },
        sentences=250,
        arms=tuple(_arm(task, system) for system in _SYSTEMS),
    )


_COLUMNS = {task: _column(task) for task in TASKS}

EXPERIMENTS = (replace(_COLUMNS["qqp"], columns=_COLUMNS),)
