"""Record what the package computes, to the last bit, and compare later code with the record.

    python benchmarks/golden.py record  [--out benchmarks/golden.json]
    python benchmarks/golden.py compare [--record benchmarks/golden.json]
    python benchmarks/golden.py beside COMMIT

Run `compare` after a change that should change no number: it names every key that differs or is gone, and
fails if there is one. Keys that the record does not have are only counted. Numbers are the same only on the
same kind of CPU with the same torch. Elsewhere, `beside` first records with an earlier commit, in a checkout
and with that commit's own copy of this script, and compares with that. `--only SECTION` (repeatable) runs a
part.

A difference that is intended goes into the record by hand,

    "accepted": {"generate/difformer/clamped": "estimates are clamped before self-conditioning, too"},

where a key stands for all keys that begin with it; it is shown, but does not fail.

Keys are fixed: they do not follow the names in the code. Only the first part of this file, "How the package
is called", knows these names; after a renaming, change that part and nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # the package next to this script

import torch

import noise2text
from noise2text.commands.export import export
from noise2text.commands.rescale import suggest_noise_factor
from noise2text.commands.train_classifier import train_classifier
from noise2text.core.config import describe
from noise2text.core.errors import Problem
from noise2text.data.corpus import read_pairs
from noise2text.data.dates import write_dates, write_days
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.degeneration_score import (
    degeneration_scores,
    find_noise_factor,
    random_embeddings,
)
from noise2text.diffusion.noise_clipping import ExaggeratedNoise
from noise2text.diffusion.position_sigmoid_schedule import PositionSigmoid
from noise2text.diffusion.schedules import (
    SCHEDULES,
    QuadraticSchedule,
    Rescaled,
    SqrtSchedule,
    rescale_preserving,
    schedule_betas,
)
from noise2text.diffusion.token_speed_schedule import TokenSpeeds
from noise2text.diffusion.warped_schedule import ExponentialSchedule
from noise2text.generation.mbr import MBR
from noise2text.generation.reranking import LikelihoodSelector
from noise2text.generation.selection import BestScore, Candidate, WithoutCopies
from noise2text.generation.weighted_mbr import WeightedMBR
from noise2text.metrics.evaluate import METRICS_BY_NAME, evaluate, evaluate_diversity
from noise2text.metrics.significance import paired_bootstrap
from noise2text.models.registry import find_recipe, list_recipes

HERE = Path(__file__).resolve().parent
Settings = dict[str, Any]
Found = Iterator[tuple[str, Any]]
"""Keys and computed values, as JSON."""

# How the package is called

STEPS = 40
SMALL: Settings = {
    "optim.steps": STEPS,
    "optim.max_tokens": 512,
    "optim.warmup": 10,
    "run.log_every": 10,
    "run.validate_every": STEPS // 2,
    "run.save_every": STEPS,
    "run.validation_sentences": 8,
    "generation.steps": 6,
    "generation.stop_early": 0,
    "diffusion.refit_every": 20,
    "diffusion.refit_start": 20,
    "diffusion.refit_bin_size": 500,
    "diffusion.refit_min_count": 1,
    "diffusion.warp_every": 20,
    "diffusion.warp_bin_size": 500,
    "diffusion.warp_min_count": 1,
    "diffusion.noise_clip_every": 10,
}
"""Makes every recipe's `tiny` smaller, where it has the setting; schedules that adapt do so early."""

VOCABULARY = 400  # largest vocabulary of a learned BPE

VARIANTS: dict[str, tuple[str, Settings]] = {
    "difformer, moving average": ("difformer", {"ema_decay": 0.9}),
    "difformer, average of two": ("difformer", {"average_best": 2}),
    "difformer, two micro-batches": ("difformer", {"accumulate": 2, "optim.max_tokens": 256}),
    "difformer, all losses": ("difformer", {"rounding_weight": 1.0}),
    "difformer, variance preserving": ("difformer", {"variance_preserving": True, "schedule": "cosine"}),
    "difformer, without guesses": ("difformer", {"self_conditioning": 0.0, "schedule": "linear"}),
    "difformer, frozen embeddings": ("difformer", {"freeze_embeddings": True}),
    "difformer, another seed": ("difformer", {"seed": 5}),
    "difformer, bfloat16": ("difformer", {"precision": "bfloat16"}),
    "difformer, inverse square root": ("difformer", {"lr_schedule": "inverse-sqrt"}),
    "diffuseq, times by loss": ("diffuseq", {"time_sampler": "loss-aware", "num_timesteps": 8}),
    "diffuseq, uniform times": ("diffuseq", {"time_sampler": "uniform", "num_timesteps": 8}),
    "diffuseq, anchor and factor": ("diffuseq", {"anchor_weight": 1.0, "noise_factor": 2.0}),
    "diffuseq, moving average": ("diffuseq", {"ema_decay": 0.9, "lr_schedule": "linear"}),
    "diffuseq, aligned": ("diffuseq", {"align_targets": True}),
    "seqdiffuseq, without refits": ("seqdiffuseq", {"diffusion.refit_every": 0}),
    "transformer, label smoothing": ("transformer", {"label_smoothing": 0.2, "dropout": 0.1}),
    "levenshtein, from nothing": ("levenshtein", {"empty_draft_rate": 0.5}),
    "word-by-word, reach": ("word-by-word", {"max_word_tokens": 5}),
}
"""Variants of training: the recipe and the changed settings."""

STUDENTS: dict[str, tuple[str, str, Settings]] = {
    "difformer, from a transformer": (
        "difformer",
        "transformer",
        {"embedding_dim": 32, "tokenizer": "folder"},
    ),
}
"""Training that starts from another model: the recipe, that model's recipe, and the changed settings."""

FEW: Settings = {
    "steps": 4,
    "stop_early": 0,
    "noise_beam": 3,
    "clamp": False,
    "iterations": 3,
    "beam": 3,
}
"""Makes generation short, where a family has the setting; clamped, barely trained models write nothing."""

WAYS: dict[str, Settings] = {
    "plain": {},
    # sampling
    "no fresh noise": {"eta": 0.0},
    "half of fresh noise": {"eta": 0.5},
    "all fresh noise": {"eta": 1.0},
    "multistep": {"solver": "multistep"},
    "more noise": {"sampling_noise_factor": 2.0},
    "clamped": {"clamp": True},
    "stopped early": {"stop_early": 2},
    "told the truth": {"min_timestep": 0.0},
    "sometimes the prior": {"prior_rate": 0.5, "prior_share": 0.8},
    "guidance": {"guidance_weight": 2.0},
    "guidance, without the source": {"guidance_weight": -1.0},
    "token by token": {"strategy": "token-by-token", "noise_beam": 2, "steps": 2},
    "word by word": {"strategy": "word-by-word", "noise_beam": 2, "steps": 2},
    # lengths
    "three lengths": {"length_beam": 3},
    "lengths around": {"length_beam": 3, "lengths": "around"},
    "ten tokens": {"length": 10},
    # given text
    "prefix": {"prefix": "19"},
    "suffix": {"suffix": "07"},
    "template": {"template": "19___{2}-___"},
    "template of known width": {"template": "___{4}-04-___{2}"},
    "template with open gaps": {"template": "___-04-___"},
    # selection
    "by score": {"select": "score"},
    "by weighed MBR": {"select": "weighted-mbr"},
    "by MBR": {"select": "mbr"},
    "by MBR of nltk's BLEU": {"select": "mbr", "utility": "bleu-nltk4"},
    "by MBR of chrF": {"select": "mbr", "utility": "chrf"},
    "by MBR of words": {"select": "mbr", "utility": "unigram"},
    "by MBR, the candidate being the reference": {"select": "mbr", "candidate_is": "reference"},
    "by MBR without itself": {"select": "mbr", "self_pair": False},
    # autoregressive models
    "greedy": {"beam": 1},
    "beam, longer texts": {"beam": 4, "length_penalty": 2.0},
    "diverse beams": {"beam": 4, "diverse_groups": 2, "diversity": 1.0},
    "samples": {"samples": 3},
    "samples, cold": {"samples": 3, "temperature": 0.5},
    "samples of the likeliest": {"samples": 3, "top_k": 5},
    "samples of the nucleus": {"samples": 3, "top_p": 0.7},
    "samples by MBR": {"samples": 4, "select": "mbr"},
    "three contexts": {"noises": 3},
    "context without noise": {"latent_noise_scale": 0.0},
    # iterative refinement
    "one iteration": {"iterations": 1},
    "penalty": {"penalty": 1.0},
    # nearest neighbours
    "three neighbours": {"neighbours": 3},
}
"""Settings of generation by name; a family uses those whose settings it has."""

SHIPPED_WAYS = {
    name: WAYS[name] | {"length_beam": 3} | WAYS[name]
    for name in (
        *("plain", "no fresh noise", "multistep", "more noise", "clamped", "stopped early"),
        *("token by token", "lengths around", "ten tokens"),
        *(name for name in WAYS if name.startswith("by ")),
    )
} | {
    "prefix": {"prefix": "The"},
    "suffix": {"suffix": "."},
    "template": {"template": "___ not ___"},
}
"""Settings with which the shipped model translates a few sentences."""


RENAMED = {"diffuseq-staggered": "diffuseq-position-sigmoid"}
"""Today's names of the recipes whose keys have an older one."""


def list_recipe_keys() -> list[str]:
    """The name of each recipe in the keys."""
    keys = {name: key for key, name in RENAMED.items()}
    return [keys.get(name, name) for name in list_recipes()]


def get_settings(recipe: str) -> Settings:
    """The settings of a recipe's `tiny`, by their full names."""
    return {
        name: value for name, value, _ in describe(find_recipe(RENAMED.get(recipe, recipe)).preset("tiny"))
    }


def train_model(recipe: str, corpus: Path, out: Path, changes: Settings) -> None:
    """Train the recipe's `tiny` with changed settings in the folder `out`."""
    noise2text.train(
        RENAMED.get(recipe, recipe),
        train=str(corpus / "train.jsonl"),
        valid=str(corpus / "valid.jsonl"),
        out=out,
        preset="tiny",
        changes=changes,
        device="cpu",
    )


def find_last_checkpoint(run: Path) -> Path | None:
    """The folder of a run's last weights, which may not be its best; None for a recipe without steps."""
    return max(run.glob("checkpoint-*"), default=None)


def read_log(run: Path) -> list[dict[str, Any]]:
    """The lines that a run has logged, with their steps and numbers by name; without the speed."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_second"} for line in lines]


@cache
def load(model: str | Path, precision: str = "float32") -> Any:
    """A trained model on the CPU."""
    return noise2text.load(model, device="cpu", precision=precision)


def get_tensors(model: Any) -> list[torch.Tensor]:
    """All parameters and buffers of a model."""
    return list(model.state_dict().values())


def get_generation_settings(model: Any) -> Settings:
    """The generation settings of a model, by name."""
    return {name: value for name, value, _ in describe(model.generation_config)}


def generate(
    model: Any, texts: Sequence[str], settings: Settings, *, seed: int = 0, batch: int = 20, **more: Any
) -> dict[str, Any]:
    """The texts, their candidates, the candidates' scores and, where asked for, the traces."""
    output = model.generate(texts, seed=seed, batch=batch, **more, **settings)
    return {
        "texts": output.texts,
        "candidates": output.candidates,
        "scores": output.scores,
        "traces": [[(step.time, step.noisy, step.text) for step in steps] for steps in output.traces],
    }


def has_likelihood(model: Any) -> bool:
    """Whether a model computes likelihoods."""
    return hasattr(model, "likelihood")


def compute_likelihood(
    model: Any, texts: Sequence[str], targets: Sequence[str], *, mean: bool
) -> list[float]:
    """The log-likelihood of each target."""
    found: list[float] = model.likelihood(texts, targets, per_token=mean, batch=8)
    return found


def generate_pairs(model: Any) -> dict[str, list[tuple[str, str]]]:
    """Pairs that a model of pairs generates, by what is given; empty for any other model."""
    few = {"steps": 4, "batch": 5}
    try:
        return {
            "free": model.generate_pairs(6, **few),
            "source given": model.generate_pairs(6, source="7 april 1957", **few),
            "target given": model.generate_pairs(6, source="___{12}", target="1957-___", **few),
        }
    except Problem:
        return {}


def build_selectors(teacher: Any) -> dict[str, Any]:
    """Selectors that replace a model's own."""
    return {
        "by a teacher": LikelihoodSelector(teacher),
        "by a teacher's sum": LikelihoodSelector(teacher, reduction="sum"),
        "by MBR of what is new": WithoutCopies(MBR()),
    }


def select_candidates(
    sentences: Sequence[tuple[str, Sequence[tuple[str, float]]]],
) -> Iterator[tuple[str, list[int]]]:
    """The choices of each selector among (source, (text, score), …)."""
    candidates = [
        [
            Candidate(text=text, tokens=tuple(range(len(text.split()))), score=score, source=source)
            for text, score in own
        ]
        for source, own in sentences
    ]
    rules: dict[str, Any] = {"score": BestScore(), "new by score": WithoutCopies(BestScore())}
    for utility in ("bleu", "bleu-nltk4", "chrf", "unigram"):
        for candidate in ("hypothesis", "reference"):
            for with_self in (True, False):
                rule = MBR(utility=utility, candidate_is=candidate, self_pair=with_self)
                shown = f"{utility}, candidate as {candidate}, {'with' if with_self else 'without'} itself"
                rules[f"MBR of {shown}"] = rule
                rules[f"weighed MBR of {shown}"] = WeightedMBR(rule)
                rules[f"new by MBR of {shown}"] = WithoutCopies(rule)
    for name, rule in rules.items():
        yield name, rule.select_all(candidates)


def write_corpora(folder: Path) -> None:
    """Write dates to train models on, and labelled days for classifiers."""
    write_dates(folder / "dates", pairs=600, seed=0)
    write_days(folder / "days", pairs=600, seed=0)


def read_test_pairs(corpus: Path, count: int) -> list[tuple[str, str]]:
    """The first pairs of the test set."""
    return [(pair.src, pair.trg) for pair in islice(read_pairs(str(corpus / "test.jsonl")), count)]


def train_guide(model: Path, days: Path, out: Path) -> dict[str, float]:
    """The accuracy by time of a classifier of the model's noisy texts, which is now in the folder `out`."""
    files: Any = {split: str(days / f"{split}.jsonl") for split in ("train", "valid")}
    changes = {"steps": 30, "batch_size": 16, "warmup": 5, "model_dim": 32, "ffn_dim": 64}
    found = train_classifier(model, out=out, changes=changes, device="cpu", **files)
    return {str(when): share for when, share in found.items()}


def guided_settings(classifier: Path) -> dict[str, Settings]:
    """Settings of classifier guidance by name."""
    towards: Settings = {"guide": str(classifier), "guide_class": "april"}
    return {
        "steered": towards,
        "steered strongly": towards | {"guide_rate": 1.0, "guide_steps": 5, "fluency": 0.0, "eta": 0.0},
    }


def export_model(model: Path, out: Path, precision: str) -> None:
    """Write the model with an ONNX network to the folder."""
    export(model, out, precision=precision)


def build_schedules() -> dict[str, Any]:
    """Every schedule by name."""
    plain: dict[str, Any] = {name: kind(2000) for name, kind in SCHEDULES.items()}
    return {
        **plain,
        **{f"{name}, twice the noise": Rescaled(curve, 2.0) for name, curve in plain.items()},
        **{
            f"{name}, twice the noise, preserving": rescale_preserving(curve, 2.0)
            for name, curve in plain.items()
        },
        "quadratic": QuadraticSchedule(2000),
        "exponential": ExponentialSchedule(2000),
        "staggered": PositionSigmoid(2000, target_start=2, positions=6),
        "speeds": TokenSpeeds(SqrtSchedule(2000), 8),
        "adaptive": AdaptiveSchedule(SqrtSchedule(2000), 8),
        "fixed clock": ExaggeratedNoise(SqrtSchedule(2000), 0.9),
    }


def get_schedule(model: Any) -> Any:
    """The schedule that a model samples with; None for a model without noise."""
    has_schedule = hasattr(model, "schedule")
    return model.build_sampling_schedule(model.generation_config) if has_schedule else None


def compute_levels(schedule: Any, times: Sequence[float], length: int) -> dict[str, Any]:
    """α, σ and the network's timestep at each time and position."""
    level = schedule(torch.tensor(times, dtype=torch.float64), length)
    values = {"alpha": level.alpha[..., 0], "sigma": level.sigma[..., 0], "told": level.timestep}
    return {name: value.double().tolist() for name, value in values.items()}


def compute_schedule_steps() -> Found:
    """The βs of the plain schedules, and the noise of z₀ and the final α."""
    for name, kind in SCHEDULES.items():
        yield f"schedule/{name}/steps", summarize(schedule_betas(kind(2000), 2000).tolist())
        yield f"schedule/{name}/ends", [kind(2000).z0_noise, kind(2000).final_alpha]


def search_one_by_one(schedule: Any, table: torch.Tensor, *, target: float, interval: float) -> Any:
    """What `find_noise_factor` finds, by Difformer's algorithm 1 as it is written."""

    def score(schedule: Any) -> float:
        return degeneration_scores(schedule, table, cells=50, samples=500).mean().item()

    factors = (1 + index * interval for index in count())
    factor = next(factor for factor in factors if score(Rescaled(schedule, factor)) <= target)
    return {"factor": factor, "dgs": score(Rescaled(schedule, factor)), "dgs_unscaled": score(schedule)}


def compute_noise_factors(own: Mapping[str, Path]) -> Found:
    """Noise factors for random embeddings and for models' own, by both searches."""
    for name in SCHEDULES:
        for preserving in (False, True):
            for vocabulary, width, target in ((300, 16, 0.15), (1000, 64, 0.25)):
                how = f"{name}{', preserving' if preserving else ''}, {vocabulary} of {width}, {target}"
                found = suggest_noise_factor(
                    None,
                    schedule=name,
                    vocab=vocabulary,
                    dim=width,
                    target=target,
                    preserving=preserving,
                    seed=0,
                )
                yield f"rescale/{how}", found
    table = random_embeddings(200, 8, seed=3)
    yield "rescale/embeddings", hash_tensors([table])
    for name, kind in SCHEDULES.items():
        curve = degeneration_scores(kind(2000), table, cells=50, samples=500, seed=1)
        yield f"rescale/{name}, degeneration", summarize(curve.tolist())
        yield f"rescale/{name}, one by one", search_one_by_one(kind(2000), table, target=0.2, interval=0.25)
        result = find_noise_factor(kind(2000), table, target=0.2, interval=0.25, cells=50, samples=500)
        yield f"rescale/{name}, by halves", dataclasses.asdict(result)
    for name, model in own.items():
        options: Any = {"schedule": "sqrt", "vocab": 0, "dim": 0}
        yield (
            f"rescale/{name}'s own",
            suggest_noise_factor(model, target=0.3, preserving=False, seed=0, **options),
        )


def compute_metrics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
) -> dict[str, Any]:
    """Every metric that needs no model, with intervals, and the scores of copying the source."""
    return evaluate(hypotheses, references, sources, metrics=list(METRICS_BY_NAME.values()), n_resamples=100)


def compute_diversity(candidates: Sequence[Sequence[str]]) -> dict[str, Any]:
    """How different the texts of one source are."""
    return evaluate_diversity(candidates, n_resamples=100)


def compute_significance(
    systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Each system tested against the first."""
    found = paired_bootstrap(systems, references, n_resamples=100)
    return {name: [dataclasses.asdict(tested) for tested in own] for name, own in found.items()}


Refused = Problem
"""The error for what a model cannot do."""

# The sections of a record

TIMES = (0.0005, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
INPUTS = 20
SOME = 12  # German sentences that the shipped model translates with many settings
CLASSIFIED = ("difformer", "diffuseq", "seqdiffuseq")
ROUNDED = ("int8", "bfloat16")


class TrainedModels:
    """A folder with the corpora and the models, each trained when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_corpora(folder)
        self.dates, self.days = folder / "dates", folder / "days"
        pairs = read_test_pairs(self.dates, INPUTS)
        self.sources, self.targets = [src for src, _ in pairs], [trg for _, trg in pairs]
        self.names = [*list_recipe_keys(), *VARIANTS, *STUDENTS]

    def run(self, name: str) -> Path:
        """The folder of a trained recipe or variant."""
        out = self.folder / "runs" / name.replace(", ", "+").replace(" ", "-")
        if not out.exists():
            show_progress(f"train {name}")
            recipe, changes = self._plan(name)
            train_model(recipe, self.dates, out, changes)
        return out

    def classifier(self, name: str) -> tuple[Path, dict[str, float]]:
        """The folder of a classifier for this recipe's model, and its accuracy."""
        out = self.folder / "classifiers" / name
        return out, train_guide(self.run(name), self.days, out)

    def _plan(self, name: str) -> tuple[str, Settings]:
        if name in STUDENTS:
            recipe, teacher, changes = STUDENTS[name]
            changes = changes | {"from_folder": str(self.run(teacher))}
        else:
            recipe, changes = VARIANTS.get(name, (name, {}))
        known = get_settings(recipe)
        small = {field: value for field, value in SMALL.items() if field in known}
        if not known.get("diffusion.refit_every"):  # a recipe that adapts no schedule by default
            small = {field: value for field, value in small.items() if ".refit_" not in field}
        if known["data.vocabulary"] > VOCABULARY:
            small["data.vocabulary"] = VOCABULARY
        return recipe, small | changes


def record_training(models: TrainedModels) -> Found:
    """The weights after a few steps and the logged losses; recipes that are fitted at once have no steps."""
    for name in models.names:
        run = models.run(name)
        yield f"weights/{name}", hash_tensors(get_tensors(load(run)))
        last = find_last_checkpoint(run)
        if last is not None:
            yield f"weights/{name}/last", hash_tensors(get_tensors(load(last)))
        for line in read_log(run):
            step = line.pop("step")
            for term, value in line.items():
                yield f"loss/{name}/{step}/{term}", value


def record_generation(models: TrainedModels) -> Found:
    """The texts of every recipe with all settings that it has; what it refuses is recorded as refused."""
    for name in list_recipe_keys():
        model = load(models.run(name))
        known = get_generation_settings(model)
        few = {field: value for field, value in FEW.items() if field in known}
        show_progress(f"generate with {name}")
        for way, settings in WAYS.items():
            if settings.keys() <= known.keys():
                yield from generate_entries(f"generate/{name}/{way}", model, models.sources, few | settings)
        yield from generate_entries(f"generate/{name}/another seed", model, models.sources, few, seed=7)
        yield from generate_entries(f"generate/{name}/small batches", model, models.sources, few, batch=3)
        yield from generate_entries(f"generate/{name}/traced", model, models.sources, few, trace=True)
        for precision in ROUNDED:
            try:
                rounded = load(models.run(name), precision)
            except Refused:
                yield f"generate/{name}/{precision}", "refused"
            else:
                yield from generate_entries(f"generate/{name}/{precision}", rounded, models.sources, few)
        if has_likelihood(model):
            for mean in (False, True):
                values = compute_likelihood(model, models.sources, models.targets, mean=mean)
                yield f"likelihood/{name}/{'mean' if mean else 'sum'}", summarize(values)
        for given, pairs in generate_pairs(model).items():
            yield f"pairs/{name}/{given}", pairs


def record_control(models: TrainedModels) -> Found:
    """Classifiers and the texts that they guide to, and selectors that replace a model's own."""
    teacher = load(models.run("transformer"))
    for name in CLASSIFIED:
        show_progress(f"guide {name}")
        model = load(models.run(name))
        few = {field: value for field, value in FEW.items() if field in get_generation_settings(model)}
        classifier, accuracy = models.classifier(name)
        yield f"classifier/{name}", accuracy
        for way, settings in guided_settings(classifier).items():
            yield from generate_entries(f"generate/{name}/{way}", model, models.sources, few | settings)
        for way, selector in build_selectors(teacher).items():
            yield from generate_entries(
                f"generate/{name}/{way}", model, models.sources, few, selector=selector
            )


def record_shipped(models: TrainedModels) -> Found:
    """Translations of the shipped model: all sentences by default, some with many settings."""
    german = (HERE / "golden_german.txt").read_text("utf-8").splitlines()
    for precision in ("float32", "int8"):
        show_progress(f"translate in {precision}")
        model = load("de-en", precision)
        yield from generate_entries(f"shipped/de-en/{precision}", model, german, {}, batch=25)
    model = load("de-en")
    yield "shipped/de-en/weights", hash_tensors(get_tensors(model))
    for way, settings in SHIPPED_WAYS.items():
        few = {"steps": 5, "stop_early": 0}
        yield from generate_entries(f"shipped/de-en/{way}", model, german[:SOME], few | settings, batch=SOME)


def record_exported(models: TrainedModels) -> Found:
    """The texts of exported models, whose networks onnxruntime runs."""
    for name, precision in (("difformer", "float32"), ("diffuseq", "int8")):
        show_progress(f"export {name} in {precision}")
        out = models.folder / "exported" / name
        export_model(models.run(name), out, precision)
        model = load(out, precision)
        few = {field: value for field, value in FEW.items() if field in get_generation_settings(model)}
        yield from generate_entries(f"exported/{name}/{precision}", model, models.sources, few)


def record_rescaling(models: TrainedModels) -> Found:
    """Noise factors and degeneration scores."""
    show_progress("rescale")
    yield from compute_noise_factors({"de-en": Path("de-en"), "difformer": models.run("difformer")})


def record_metrics(models: TrainedModels) -> Found:
    """Every metric of a fixed text."""
    show_progress("metrics")
    hypotheses, references = [row[1] for row in TEXTS], [row[2] for row in TEXTS]
    sources = [row[0] for row in TEXTS]
    yield from flatten("metric", compute_metrics(hypotheses, references, sources))
    yield from flatten("metric/diversity", compute_diversity([[row[1], *row[2]] for row in TEXTS]))
    systems = {"system": hypotheses, "copies": sources, "first references": [own[0] for own in references]}
    yield from flatten("metric/significance", compute_significance(systems, references))


def record_selection(models: TrainedModels) -> Found:
    """The choices of every selector among fixed candidates."""
    show_progress("selection")
    for name, indices in select_candidates([(row[0], row[3]) for row in TEXTS]):
        yield f"select/{name}", indices


def record_schedules(models: TrainedModels) -> Found:
    """α and σ of every schedule, and of every model's own."""
    show_progress("schedules")
    for name, curve in build_schedules().items():
        yield f"schedule/{name}", compute_levels(curve, TIMES, 6)
    yield from compute_schedule_steps()
    for name in list_recipe_keys():
        curve = get_schedule(load(models.run(name)))
        if curve is not None:
            yield f"schedule/of {name}", compute_levels(curve, TIMES, 6)


SECTIONS: dict[str, Callable[[TrainedModels], Found]] = {
    "training": record_training,
    "generation": record_generation,
    "control": record_control,
    "shipped": record_shipped,
    "exported": record_exported,
    "rescale": record_rescaling,
    "metric": record_metrics,
    "selection": record_selection,
    "schedule": record_schedules,
}

Row = tuple[str, str, list[str], list[tuple[str, float]]]
TEXTS: list[Row] = [
    (
        "The quick brown fox jumps over the lazy dog.",
        "A quick brown fox jumped over a lazy dog.",
        ["The fast brown fox jumps over the lazy dog.", "A quick fox leaps over the dog."],
        [
            ("A quick brown fox jumped over a lazy dog.", -0.5),
            ("The quick brown fox jumps over the lazy dog.", -0.1),
            ("A brown fox jumped over a dog.", -0.9),
            ("A quick fox jumped over the lazy dog.", -0.7),
        ],
    ),
    (
        "How can I learn to cook well?",
        "How can I learn to cook?",
        ["What is the best way to learn cooking?", "How do I become a good cook?"],
        [
            ("How can I learn to cook?", -1.0),
            ("How do I learn to cook well?", -0.2),
            ("how can i learn to cook  well?", -0.1),
            ("What is a good way to cook?", -2.0),
        ],
    ),
    (
        "It is raining.",
        "",
        ["Rain is falling.", "It rains."],
        [("", -3.0), ("It rains.", -0.3), ("It rains.", -0.4), ("Rain falls.", -0.2)],
    ),
    (
        "Müller's café – open 9–5, isn't it?",
        "Müller's café is open from 9 to 5, isn't it?",
        ["Müller's café is open from 9 to 5, isn't it?"],
        [
            ("Müller's café is open from 9 to 5.", -0.6),
            ("Müller's café opens at 9, doesn't it?", -0.6),
            ("The café is open from 9 to 5, isn't it?", -0.6),
        ],
    ),
    (
        "She gave him the old book that nobody wanted.",
        "She gave him the the old old book.",
        ["She gave him an old book nobody wanted.", "He got the unwanted old book from her."],
        [
            ("She gave him the the old old book.", -1.5),
            ("She gave him an old book.", -0.8),
            ("He was given an old book by her.", -0.9),
            ("She gave him the old book.", -1.1),
            ("An old book.", -0.05),
        ],
    ),
    (
        "One two three four five six seven.",
        "One two three four five six seven.",
        ["Seven six five four three two one.", "One two three."],
        [("One two three four five six seven.", 0.0), ("One two three.", -1.0), ("Seven.", -math.inf)],
    ),
]
"""Source, hypothesis, references, and candidates with their scores."""

# How results are recorded


def generate_entries(key: str, model: Any, texts: Sequence[str], settings: Settings, **more: Any) -> Found:
    """What a model generates with these settings, or that it refuses them."""
    try:
        output = generate(model, texts, settings, **more)
    except Refused:
        yield key, "refused"
        return
    yield f"{key}/texts", output["texts"]
    yield f"{key}/candidates", summarize(output["candidates"], first=2)
    yield f"{key}/scores", summarize([score for scores in output["scores"] for score in scores])
    if any(output["traces"]):
        yield f"{key}/traces", summarize(output["traces"], first=1)


def summarize(values: Sequence[Any], first: int = 5) -> dict[str, Any]:
    """A long list as its hash, its length and its first values."""
    whole = json.dumps(to_json(values), ensure_ascii=False)
    return {"sha256": short_hash(whole.encode()), "count": len(values), "first": list(values[:first])}


def hash_tensors(values: Sequence[torch.Tensor]) -> dict[str, Any]:
    """A hash of tensors that ignores their names and order; equal ones count once."""
    each = {
        short_hash(f"{tensor.dtype} {list(tensor.shape)} ".encode() + tensor_bytes(tensor)): tensor.numel()
        for tensor in values
    }
    return {
        "sha256": short_hash("".join(sorted(each)).encode()),
        "tensors": len(each),
        "numbers": sum(each.values()),
    }


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor, row by row."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def short_hash(content: bytes) -> str:
    """The first half of SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def flatten(key: str, value: Any) -> Found:
    """The numbers and texts in nested values, each with its own key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flatten(f"{key}/{name}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from flatten(f"{key}/{index}", inner)
    else:
        yield key, value


def to_json(value: Any) -> Any:
    """The value as JSON: tuples become lists, and numbers that are not finite become text."""
    if isinstance(value, dict):
        return {str(name): to_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


# Recording and comparing


def compute(only: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run the sections; keys and values by section."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        models = TrainedModels(Path(folder))
        for name in only or SECTIONS:
            begun = time.process_time()
            found[name] = {key: to_json(value) for key, value in SECTIONS[name](models)}
            show_progress(
                f"section {name}: {len(found[name]):,} keys, {time.process_time() - begun:.0f} s of CPU time"
            )
        load.cache_clear()
    return found


def describe_machine() -> dict[str, str]:
    """The machine, the versions and the commit that the numbers depend on."""
    return {
        "commit": find_commit(),
        "cpu": find_cpu(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def find_cpu() -> str:
    """The name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def find_commit() -> str:
    """The last commit of the package next to this script, and whether it has changes."""
    try:
        changed = run_git("status", "--porcelain", "--", "src")
        return run_git("log", "-1", "--format=%H", "--", "src") + (" and changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def run_git(*arguments: str) -> str:
    """The output of git in this repository."""
    done = subprocess.run(
        ["git", "-C", str(HERE.parent), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def record(out: Path, only: Sequence[str]) -> None:
    """Write what this code computes; keeps what an earlier record accepts."""
    accepted = read_record(out)["accepted"] if out.exists() else {}
    whole = {"about": describe_machine(), "accepted": accepted, "sections": compute(only)}
    out.write_text(format_record(whole, depth=3) + "\n", "utf-8")
    show_progress(f"{out}: {sum(map(len, whole['sections'].values())):,} keys, {out.stat().st_size:,} bytes")


def format_record(value: Any, depth: int) -> str:
    """JSON with one line per key down to a depth, so that records can be compared line by line."""
    if not depth or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    lines = (
        f"{json.dumps(key, ensure_ascii=False)}: {format_record(each, depth - 1)}"
        for key, each in value.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}"


def read_record(path: Path) -> dict[str, Any]:
    """A record."""
    whole: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return whole


def compare(before: dict[str, Any], accepted: Mapping[str, str], only: Sequence[str]) -> int:
    """Compute again, print every key that differs, and return how many of them are not accepted."""
    here = describe_machine()
    others = [name for name in ("cpu", "capability", "torch") if here[name] != before["about"][name]]
    for name in others:
        show_progress(f"this is another machine: {name} {here[name]}, the record's {before['about'][name]}")
    if others:
        show_progress("the last bits may differ; `beside COMMIT` compares on one machine")
    wanted = [name for name in only or SECTIONS if name in before["sections"]]
    old = merge_sections(before["sections"], wanted)
    new = merge_sections(compute(only), only or list(SECTIONS))
    failed = allowed = 0
    for key in old:
        if key in new and old[key] == new[key]:
            continue
        reason = next((why for prefix, why in accepted.items() if key.startswith(prefix)), None)
        failed, allowed = failed + (reason is None), allowed + (reason is not None)
        print(f"{key}" + (f"   (accepted: {reason})" if reason else ""))
        print(f"  - {format_value(old, key)}\n  + {format_value(new, key)}")
    added = [key for key in new if key not in old]
    for name in dict.fromkeys("/".join(key.split("/")[:2]) for key in added):
        print(f"new: {name}")
    same = len(old) - failed - allowed
    print(f"{same:,} keys are the same, {allowed:,} differ as accepted, {failed:,} differ.", end=" ")
    print(f"{len(added):,} keys are new.")
    return failed


def merge_sections(sections: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """The keys of several sections."""
    return {key: value for name in names for key, value in sections[name].items()}


def format_value(values: Mapping[str, Any], key: str, width: int = 160) -> str:
    """A value on one line."""
    text = json.dumps(values[key], ensure_ascii=False) if key in values else "(none)"
    return text if len(text) <= width else text[: width - 1] + "…"


def beside(earlier: str, only: Sequence[str]) -> int:
    """Record with an earlier commit's code and script, then compare with the present code."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        tree, out = Path(folder) / "tree", Path(folder) / "golden.json"
        run_git("worktree", "add", "--detach", str(tree), earlier)
        try:
            script = tree / "benchmarks" / "golden.py"
            if not script.exists():
                raise SystemExit(f"{earlier} has no benchmarks/golden.py: name a later commit.")
            chosen = [word for name in only for word in ("--only", name)]
            subprocess.run(
                [sys.executable, str(script), "record", "--out", str(out), *chosen],
                check=True,
                cwd=tree,
                env=os.environ | {"PYTHONPATH": str(tree / "src")},
            )
            return compare(read_record(out), read_accepted(), only)
        finally:
            run_git("worktree", "remove", "--force", str(tree))


def read_accepted() -> dict[str, str]:
    """The differences that the record next to this script accepts."""
    path = HERE / "golden.json"
    return dict(read_record(path)["accepted"]) if path.exists() else {}


def show_progress(text: str) -> None:
    """Print progress with the seconds since the start."""
    print(f"[{time.monotonic() - _START:5.0f} s] {text}", file=sys.stderr, flush=True)


_START = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="write what this code computes")
    recording.add_argument("--out", type=Path, default=HERE / "golden.json")
    comparing = commands.add_parser("compare", help="compute anew and compare with a record")
    comparing.add_argument("--record", type=Path, default=HERE / "golden.json")
    both = commands.add_parser("beside", help="compare with an earlier commit, run on this machine")
    both.add_argument("commit")
    for command in (recording, comparing, both):
        command.add_argument("--only", action="append", choices=list(SECTIONS), default=[])
    given = parser.parse_args()
    if given.command == "record":
        record(given.out, given.only)
    elif given.command == "compare":
        before = read_record(given.record)
        sys.exit(1 if compare(before, before["accepted"], given.only) else 0)
    else:
        sys.exit(1 if beside(given.commit, given.only) else 0)


if __name__ == "__main__":
    main()
