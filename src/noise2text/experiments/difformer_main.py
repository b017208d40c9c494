"""The main tables of Difformer (Gao et al., 2024): all systems on all datasets.

The Transformer is trained on the raw pairs. For translation and summarization the other systems are trained
on its texts, as in the paper; `--corpus distilled=FILE` takes others.
"""

from __future__ import annotations

from dataclasses import replace

from noise2text.experiments.difformer import PAPER
from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec
from noise2text.experiments.paper_numbers import paper_numbers
from noise2text.experiments.seqdiffuseq import SHORT_TRAINING

__all__ = ["EXPERIMENTS"]

TRANSLATION = ("iwslt14-de-en", "wmt14-en-de", "wmt16-en-ro")
OTHERS = ("qqp", "wiki-auto", "quasar-t")
MEASURES = {
    "BLEU": "bleu-fairseq",
    "COMET": "comet",
    "ROUGE-1": "rouge-1",
    "ROUGE-2": "rouge-2",
    "ROUGE-L": "rouge-l",
    "BERTScore": "bertscore",
}
TRANSFORMER = ModelSpec("transformer")
RECIPES = {
    "Transformer": "transformer",
    "CMLM": "cmlm",
    "DiffuSeq": "diffuseq",
    "SeqDiffuSeq": "seqdiffuseq",
    "DiNoiSer": "dinoiser",
    "Difformer": "difformer",
    "Levenshtein Transformer": "levenshtein",
}
_ONE_LENGTH: Changes = {"length_beam": 1}  # of dates


def _lengths_and_noises(lengths: int, noises: int) -> tuple[Changes, Changes]:
    """The generation settings of a beam, at the full and at the tiny scale."""
    return {"length_beam": lengths, "noise_beam": noises}, {"length_beam": 1, "noise_beam": lengths * noises}


GENERATION: dict[tuple[str, int], tuple[Changes, Changes]] = {  # by system and b
    **{("Transformer", b): ({"beam": b}, {}) for b in (1, 5)},
    **{("CMLM", b): ({"length_beam": b}, _ONE_LENGTH) for b in (1, 5)},
    **{("DiffuSeq", b): ({"noise_beam": b}, {"steps": 20}) for b in (1, 10)},
    **{("SeqDiffuSeq", b): ({"noise_beam": b}, {"steps": 20}) for b in (1, 10)},
    **{("DiNoiSer", b): _lengths_and_noises(5, b // 5) for b in (5, 50)},
    ("Difformer", 1): _lengths_and_noises(1, 1),
    ("Difformer", 5): _lengths_and_noises(5, 1),
    ("Difformer", 10): _lengths_and_noises(5, 2),
    ("Difformer", 20): _lengths_and_noises(5, 4),
    ("Levenshtein Transformer", 5): ({}, {}),
}
TABLE_3 = {
    "Transformer": (1, 5),
    "CMLM": (1, 5),
    "DiffuSeq": (1, 10),
    "SeqDiffuSeq": (1, 10),
    "DiNoiSer": (5, 50),
    "Difformer": (1, 10, 20),
}
TABLE_4 = {"Transformer": (1, 5), "DiffuSeq": (10,), "SeqDiffuSeq": (1, 10), "Difformer": (1, 10, 20)}


def _arm(table: str, task: str, system: str, b: int) -> Arm:
    is_student = system != "Transformer" and task not in OTHERS
    model = ModelSpec(RECIPES[system], teacher=TRANSFORMER if is_student else None)
    numbers = paper_numbers(PAPER, table, task=task, system=system, setting=f"b = {b}", measures=MEASURES)
    generation, tiny = GENERATION[system, b]
    name = system if system == "Levenshtein Transformer" else f"{system}, b = {b}"
    return Arm(name, model, generation, tiny, numbers)


def _add_comet(arm: Arm, task: str) -> Arm:
    """The arm with the COMET of table 10, which does not say b: that of the most candidates is taken."""
    system = arm.name.split(",")[0]
    if arm.name not in ("Transformer, b = 5", "CMLM, b = 5", "Difformer, b = 20"):
        return arm
    numbers = paper_numbers(PAPER, "10", task=task, system=system, setting="", measures=MEASURES)
    return replace(arm, paper={**arm.paper, **numbers})


def _arms(task: str) -> tuple[Arm, ...]:
    rows = TABLE_4 if task in OTHERS else TABLE_3
    arms = [
        _arm("4" if task in OTHERS else "3", task, system, b)
        for system, beams in rows.items()
        for b in beams
        if (system, task) != ("DiNoiSer", "gigaword")
    ]
    if task in ("wmt14-en-de", "iwslt14-de-en"):
        arms = [_add_comet(arm, task) for arm in arms]
    if task == "wmt14-en-de":
        arms += [_arm("11", task, "Levenshtein Transformer", 5), _arm("11", task, "Difformer", 5)]
    return tuple(arms)


def _measures(task: str) -> tuple[str, ...]:
    if task in TRANSLATION:
        return ("bleu-fairseq", "bleu", "comet")
    if task == "gigaword":
        return ("rouge-1", "rouge-2", "rouge-l")
    return ("bleu-fairseq", "rouge-l", "bertscore")


def _column(task: str) -> Experiment:
    return Experiment(
        name="difformer-main",
        paper=PAPER,
        table="tables 3, 4, 10 and 11",
        summary="Difformer and the systems that it is compared with, on each of its datasets.",
        claim="Difformer is the best diffusion model and comparable with the Transformer.",
        metric_note=f"{task}; BLEU is tokenized BLEU, the mean of three runs; table 10 (COMET) does not say "
        "how many candidates it has, and stands beside the most.",
        measures=_measures(task),
        tiny_measures=("bleu", "exact_match", *(["rouge-l"] if task not in TRANSLATION else [])),
        presets=dict.fromkeys(RECIPES.values(), task),
        tiny={
            "seqdiffuseq": SHORT_TRAINING,
            "diffuseq": {"optim.steps": 1_400, "validate_every": 1_400, "generation.steps": 20},
            "levenshtein": {"optim.steps": 900},
        },
        sentences=250,
        arms=_arms(task),
    )


_COLUMNS = {task: _column(task) for task in (*TRANSLATION, "gigaword", *OTHERS)}

EXPERIMENTS = (replace(_COLUMNS["iwslt14-de-en"], columns=_COLUMNS),)
