"""The main tables of SeqDiffuSeq (Yuan et al., 2022): systems on eight tasks, and the ablation on four."""

from __future__ import annotations

from dataclasses import replace

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec
from noise2text.experiments.paper_numbers import paper_numbers
from noise2text.experiments.seqdiffuseq import FIXED_SCHEDULE, NO_SELF_CONDITIONING, PAPER, SHORT_TRAINING

__all__ = ["EXPERIMENTS"]

TRANSLATION = ("iwslt14-de-en", "iwslt14-en-de", "wmt14-en-de", "wmt14-de-en")
OTHERS = ("qqp", "wiki-auto", "quasar-t", "commonsense-conversation")
OF_TRANSLATION = {"SacreBLEU": "bleu", "BLEU": "bleu-fairseq"}
OF_OTHERS = {"BLEU": "bleu-diffuseq", "BERTScore": "bertscore", "dist-1": "dist_1_diffuseq"}
_TWENTY_STEPS: Changes = {"steps": 20}
_ONE_LENGTH: Changes = {"length_beam": 1}
_SEQDIFFUSEQ, _DIFFUSEQ, _CDCD = ModelSpec("seqdiffuseq"), ModelSpec("diffuseq"), ModelSpec("cdcd")
_ONE: Changes = {"noise_beam": 1}
_TEN: Changes = {"noise_beam": 10}
_GPT2 = ModelSpec("pretrained-causal", preset="gpt2-large", pretrained="gpt2-large")

_Row = tuple[str, str, ModelSpec, Changes, Changes]  # system, setting, model, generation, that at tiny
_ROWS_OF_TRANSLATION: tuple[_Row, ...] = (
    ("Transformers", "", ModelSpec("transformer"), {}, {}),
    ("CMLM", "1 iteration", ModelSpec("cmlm"), {"iterations": 1}, _ONE_LENGTH),
    ("CMLM", "4 iterations", ModelSpec("cmlm"), {"iterations": 4}, _ONE_LENGTH),
    ("CDCD", "", _CDCD, _ONE, {}),
    ("CDCD", "MBR of 10", _CDCD, _TEN, {}),
    ("SeqDiffuSeq", "", _SEQDIFFUSEQ, _ONE, _TWENTY_STEPS),
    ("SeqDiffuSeq", "MBR of 10", _SEQDIFFUSEQ, _TEN, _TWENTY_STEPS),
)
_ROWS_OF_OTHERS: tuple[_Row, ...] = (
    ("Transformers", "", ModelSpec("transformer"), {}, {}),
    ("GPT2-large FT", "", _GPT2, {}, {}),
    ("LevT", "", ModelSpec("levenshtein"), {}, {}),
    ("DiffuSeq", "", _DIFFUSEQ, _ONE, _TWENTY_STEPS),
    ("DiffuSeq", "MBR of 10", _DIFFUSEQ, _TEN, _TWENTY_STEPS),
    ("SeqDiffuSeq", "", _SEQDIFFUSEQ, _ONE, _TWENTY_STEPS),
    ("SeqDiffuSeq", "MBR of 10", _SEQDIFFUSEQ, _TEN, _TWENTY_STEPS),
)
_ABLATION: dict[str, Changes] = {
    "whole": {},
    "without the adaptive schedule": FIXED_SCHEDULE,
    "without self-conditioning": NO_SELF_CONDITIONING,
    "without both": {**FIXED_SCHEDULE, **NO_SELF_CONDITIONING},
}


def _arms(task: str) -> tuple[Arm, ...]:
    measures = _paper_measures(task)
    rows = _ROWS_OF_TRANSLATION if task in TRANSLATION else _ROWS_OF_OTHERS
    return tuple(
        Arm(
            f"{system}, {setting}" if setting else system,
            model,
            generation,
            tiny,
            paper_numbers(PAPER, "1", task=task, system=system, setting=setting, measures=measures),
        )
        for system, setting, model, generation, tiny in rows
        if not (system == "CDCD" and task.startswith("iwslt14"))  # not run by the paper
        and (system, setting, task) != ("DiffuSeq", "", "commonsense-conversation")
    )


def _paper_measures(task: str) -> dict[str, str]:
    return OF_TRANSLATION if task in TRANSLATION else OF_OTHERS


def _main_column(task: str) -> Experiment:
    recipes = ("transformer", "cmlm", "cdcd", "seqdiffuseq", "levenshtein", "diffuseq")
    return Experiment(
        name="seqdiffuseq-main",
        paper=PAPER,
        table="table 1",
        summary="SeqDiffuSeq and the systems that it is compared with, on each of its tasks.",
        claim="the best of them except on dialogue and translation, with one candidate already.",
        metric_note=f"{task}; in translation sacrebleu, and BLEU of a kind that it does not say; elsewhere "
        "rows are copied from DiffuSeq, whose BLEU is the mean of sentences.",
        measures=tuple(_paper_measures(task).values()),
        tiny_measures=("bleu", "exact_match", "dist_1"),
        presets=dict.fromkeys(recipes, task),
        tiny={
            "seqdiffuseq": SHORT_TRAINING,
            "diffuseq": {"optim.steps": 1_400, "validate_every": 1_400, "generation.steps": 20},
            "levenshtein": {"optim.steps": 900},
            "pretrained-causal": {"optim.steps": 600, "validate_every": 600},
        },
        sentences=250,
        arms=_arms(task),
    )


def _ablation_column(task: str) -> Experiment:
    return Experiment(
        name="seqdiffuseq-ablation",
        paper=PAPER,
        table="table 2",
        summary="The adaptive schedule and self-conditioning, each with and without the other.",
        claim="both help; without both, more is lost than the sum.",
        metric_note=f"{task}, one candidate; sacrebleu in translation, elsewhere BLEU of a kind that it does "
        "not say.",
        measures=("bleu",) if task in TRANSLATION else ("bleu-diffuseq", "bertscore"),
        tiny_measures=("bleu", "exact_match"),
        presets={"seqdiffuseq": task},
        tiny={"seqdiffuseq": SHORT_TRAINING},
        arms=tuple(
            Arm(
                f"{letter}: {setting}",
                ModelSpec("seqdiffuseq", changes),
                _ONE,
                paper=paper_numbers(
                    PAPER,
                    "2",
                    task=task,
                    system="SeqDiffuSeq",
                    setting=setting,
                    measures=_paper_measures(task),
                ),
            )
            for letter, (setting, changes) in zip("ABCD", _ABLATION.items(), strict=True)
        ),
    )


_MAIN = {task: _main_column(task) for task in (*OTHERS, *TRANSLATION)}
_ABLATIONS = {task: _ablation_column(task) for task in ("iwslt14-de-en", "iwslt14-en-de", "qqp", "wiki-auto")}

EXPERIMENTS = (
    replace(_MAIN["qqp"], columns=_MAIN),
    replace(_ABLATIONS["iwslt14-de-en"], columns=_ABLATIONS),
)
