"""What the package computes, to the last bit: written down once, and compared with later.

    python benchmarks/golden.py record  [--out benchmarks/golden.json]
    python benchmarks/golden.py compare [--record benchmarks/golden.json]
    python benchmarks/golden.py beside COMMIT

A change that is meant to change no number is followed by `compare`, which names every key that differs and
fails if there is one. Numbers are the same only on a CPU of the same kind with the same torch: elsewhere,
`beside` first runs an earlier commit's own copy of this script, in a checkout of its own, and compares with
that.
`--only SECTION` (several times) does a part. A difference that is meant goes into the record by hand,

    "accepted": {"generate/difformer/clamped": "estimates are clamped before the guess, too"},

where a key stands for all that begin with it; it is shown, and fails nothing.

Keys are plain words that outlive the names in the code. All that knows these names is in the first part,
"How the package is called": what is renamed is changed there, and nowhere else.
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
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # the code beside this script

import torch

import noise2text
from noise2text.decoding.likelihood import Likelihood
from noise2text.decoding.selection import MBR, BestScore, Candidate, Novel
from noise2text.decoding.weighed import Weighed
from noise2text.diffusion.adaptive import Adaptive
from noise2text.diffusion.clipping import FixedClock, Quadratic
from noise2text.diffusion.rescaling import (
    binary_search,
    brute_force,
    degeneration,
    find_factor,
    random_embeddings,
    rescale_plain,
    rescale_preserving,
)
from noise2text.diffusion.schedules import SCHEDULES, Sqrt, betas, ends
from noise2text.diffusion.speeds import Speeds
from noise2text.diffusion.staggered import Staggered
from noise2text.diffusion.warping import Exponential
from noise2text.evaluation.metrics import NAMED, diversity, evaluate
from noise2text.evaluation.significance import paired_bootstrap
from noise2text.problem import Problem
from noise2text.recipes import RECIPES
from noise2text.runs.classifier import train_classifier
from noise2text.runs.export import export
from noise2text.runs.looks import rescaling
from noise2text.text.corpus import read_pairs
from noise2text.text.dates import write_dates, write_days

HERE = Path(__file__).resolve().parent
Settings = dict[str, Any]
Found = Iterator[tuple[str, Any]]
"""Keys and what was computed, as JSON."""

# How the package is called

STEPS = 40
SMALL: Settings = {
    "steps": STEPS,
    "tokens": 512,
    "warmup": 10,
    "log_every": 10,
    "validate_every": STEPS // 2,
    "save_every": STEPS,
    "validation_sentences": 8,
    "generation_steps": 6,
    "generation_stop_early": 0,
    "refit_every": 20,
    "refit_first": 20,
    "refit_stride": 500,
    "refit_least": 1,
    "warp_every": 20,
    "warp_stride": 500,
    "warp_least": 1,
    "clip_every": 10,
}
"""What makes every recipe's `tiny` smaller, where it has the setting; schedules that move do so early."""

VOCABULARY = 400  # the most tokens of a learned BPE

VARIANTS: dict[str, tuple[str, Settings]] = {
    "difformer, moving average": ("difformer", {"ema": 0.9}),
    "difformer, average of two": ("difformer", {"average": 2}),
    "difformer, two micro-batches": ("difformer", {"accumulate": 2, "tokens": 256}),
    "difformer, all losses": ("difformer", {"losses": "vlb+anchor+rounding"}),
    "difformer, variance preserving": ("difformer", {"variance_preserving": True, "schedule": "cosine"}),
    "difformer, without guesses": ("difformer", {"self_conditioning": 0.0, "schedule": "linear"}),
    "difformer, frozen embeddings": ("difformer", {"freeze_embeddings": True}),
    "difformer, another seed": ("difformer", {"seed": 5}),
    "difformer, bfloat16": ("difformer", {"precision": "bfloat16"}),
    "difformer, inverse square root": ("difformer", {"decay": "inverse-sqrt"}),
    "diffuseq, times by loss": ("diffuseq", {"times": "loss-aware", "diffusion_steps": 8}),
    "diffuseq, uniform times": ("diffuseq", {"times": "uniform", "diffusion_steps": 8}),
    "diffuseq, anchor and factor": ("diffuseq", {"anchor": 1.0, "factor": 2.0}),
    "diffuseq, moving average": ("diffuseq", {"ema": 0.9, "decay": "linear"}),
    "diffuseq, aligned": ("diffuseq", {"aligned": True}),
    "seqdiffuseq, without refits": ("seqdiffuseq", {"refit_every": 0}),
    "transformer, label smoothing": ("transformer", {"label_smoothing": 0.2, "dropout": 0.1}),
    "levenshtein, from nothing": ("levenshtein", {"from_nothing": 0.5}),
    "word-by-word, reach": ("word-by-word", {"reach": 5}),
}
"""Trained in other ways: the recipe and what is changed."""

STUDENTS: dict[str, tuple[str, str, Settings]] = {
    "difformer, from a transformer": ("difformer", "transformer", {"embedding": 32, "tokenizer": "folder"}),
}
"""Trained from another model: the recipe, that model, and what is changed."""

FEW: Settings = {
    "steps": 4,
    "stop_early": 0,
    "noise_beam": 3,
    "clamp": False,
    "iterations": 3,
    "beam": 3,
}
"""What makes generation short, where a family has the setting; clamped, barely trained models say nothing."""

WAYS: dict[str, Settings] = {
    "plain": {},
    # how the noise goes
    "no fresh noise": {"eta": 0.0},
    "half of fresh noise": {"eta": 0.5},
    "all fresh noise": {"eta": 1.0},
    "multistep": {"solver": "multistep"},
    "more noise": {"factor": 2.0},
    "clamped": {"clamp": True},
    "stopped early": {"stop_early": 2},
    "told the truth": {"told": 0.0},
    "sometimes the prior": {"prior_rate": 0.5, "prior_share": 0.8},
    "guidance": {"guidance": 2.0},
    "guidance, without the source": {"guidance": -1.0},
    "token by token": {"strategy": "token-by-token", "noise_beam": 2, "steps": 2},
    "word by word": {"strategy": "word-by-word", "noise_beam": 2, "steps": 2},
    # how long
    "three lengths": {"length_beam": 3},
    "lengths around": {"length_beam": 3, "lengths": "around"},
    "ten tokens": {"length": 10},
    # what is given
    "prefix": {"prefix": "19"},
    "suffix": {"suffix": "07"},
    "template": {"template": "19___{2}-___"},
    "template of known width": {"template": "___{4}-04-___{2}"},
    "template with open gaps": {"template": "___-04-___"},
    # which candidate
    "by score": {"select": "score"},
    "by weighed MBR": {"select": "weighed"},
    "by MBR": {"select": "mbr"},
    "by MBR of nltk's BLEU": {"select": "mbr", "utility": "bleu-nltk4"},
    "by MBR of chrF": {"select": "mbr", "utility": "chrf"},
    "by MBR of words": {"select": "mbr", "utility": "unigram"},
    "by MBR, the candidate being the reference": {"select": "mbr", "candidate_is": "reference"},
    "by MBR without itself": {"select": "mbr", "self_pair": False},
    # from left to right
    "greedy": {"beam": 1},
    "beam, longer texts": {"beam": 4, "length_penalty": 2.0},
    "diverse beams": {"beam": 4, "diverse_groups": 2, "diversity": 1.0},
    "samples": {"samples": 3},
    "samples, cold": {"samples": 3, "temperature": 0.5},
    "samples of the likeliest": {"samples": 3, "top_k": 5},
    "samples of the nucleus": {"samples": 3, "top_p": 0.7},
    "samples by MBR": {"samples": 4, "select": "mbr"},
    "three contexts": {"noises": 3},
    "context without noise": {"scalar": 0.0},
    # by iterations
    "one iteration": {"iterations": 1},
    "penalty": {"penalty": 1.0},
    # from memory
    "three neighbours": {"neighbours": 3},
}
"""Ways to generate; a family does those whose settings it has."""

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
"""Ways in which the shipped model generates a few sentences."""


def recipe_names() -> list[str]:
    """Every recipe's name."""
    return list(RECIPES)


def settings_known(recipe: str) -> Settings:
    """The settings of a recipe's `tiny`, by name."""
    return vars(RECIPES[recipe].settings("tiny"))


def train_model(recipe: str, corpus: Path, out: Path, changes: Settings) -> None:
    """Leave a run of the recipe's `tiny`, changed, in the folder `out`."""
    noise2text.train(
        recipe,
        train=str(corpus / "train.jsonl"),
        valid=str(corpus / "valid.jsonl"),
        out=out,
        preset="tiny",
        changes=changes,
        device="cpu",
    )


def last_weights(run: Path) -> Path | None:
    """The folder of a run's last weights, which need not be the best; none of what has no steps."""
    return max(run.glob("checkpoint-*"), default=None)


def logged(run: Path) -> list[dict[str, Any]]:
    """What a run has logged: a line's step and its numbers by name, less those that time decides."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_second"} for line in lines]


@cache
def load(model: str | Path, precision: str = "float32") -> Any:
    """A trained model, on the CPU."""
    return noise2text.load(model, device="cpu", precision=precision)


def tensors(model: Any) -> list[torch.Tensor]:
    """All that a model has learned or counted."""
    return list(model.state_dict().values())


def generation_known(model: Any) -> Settings:
    """The generation settings of a model, by name."""
    return vars(model.how)


def generate(
    model: Any, texts: Sequence[str], settings: Settings, *, seed: int = 0, batch: int = 20, **more: Any
) -> dict[str, Any]:
    """The texts, their candidates, the candidates' scores and, where asked for, the traces."""
    made = model.generate(texts, seed=seed, batch=batch, **more, **settings)
    return {
        "texts": made.texts,
        "candidates": made.candidates,
        "scores": made.scores,
        "traces": [[(stop.time, stop.noisy, stop.text) for stop in stops] for stops in made.traces],
    }


def can_judge(model: Any) -> bool:
    """Whether a model says how likely a text is."""
    return hasattr(model, "likelihood")


def likelihood(model: Any, texts: Sequence[str], targets: Sequence[str], *, mean: bool) -> list[float]:
    """How likely a model finds each target."""
    found: list[float] = model.likelihood(texts, targets, per_token=mean, batch=8)
    return found


def write_model_pairs(model: Any) -> dict[str, list[tuple[str, str]]]:
    """What a model of pairs writes, by what is given; of any other model, nothing."""
    few = {"steps": 4, "batch": 5}
    try:
        return {
            "free": model.pairs(6, **few),
            "source given": model.pairs(6, source="7 april 1957", **few),
            "target given": model.pairs(6, source="___{12}", target="1957-___", **few),
        }
    except Problem:
        return {}


def selectors(teacher: Any) -> dict[str, Any]:
    """Selectors that are put in place of a model's own."""
    return {
        "by a teacher": Likelihood(teacher),
        "by a teacher's sum": Likelihood(teacher, by="sum"),
        "by MBR of what is new": Novel(MBR()),
    }


def choices(sentences: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Iterator[tuple[str, list[int]]]:
    """What each selector picks of (source, (text, score), …)."""
    candidates = [
        [
            Candidate(text=text, tokens=tuple(range(len(text.split()))), score=score, source=source)
            for text, score in own
        ]
        for source, own in sentences
    ]
    rules: dict[str, Any] = {"score": BestScore(), "new by score": Novel(BestScore())}
    for utility in ("bleu", "bleu-nltk4", "chrf", "unigram"):
        for candidate in ("hypothesis", "reference"):
            for with_self in (True, False):
                rule = MBR(utility=utility, candidate_is=candidate, self_pair=with_self)
                told = f"{utility}, candidate as {candidate}, {'with' if with_self else 'without'} itself"
                rules[f"MBR of {told}"] = rule
                rules[f"weighed MBR of {told}"] = Weighed(rule)
                rules[f"new by MBR of {told}"] = Novel(rule)
    for name, rule in rules.items():
        yield name, rule.choose_all(candidates)


def write_corpora(folder: Path) -> None:
    """The dates that models are trained on, and labelled days for classifiers."""
    write_dates(folder / "dates", pairs=600, seed=0)
    write_days(folder / "days", pairs=600, seed=0)


def test_pairs(corpus: Path, count: int) -> list[tuple[str, str]]:
    """The first pairs that no model was trained on."""
    return [(pair.src, pair.trg) for pair in islice(read_pairs(str(corpus / "test.jsonl")), count)]


def train_judge(model: Path, days: Path, out: Path) -> dict[str, float]:
    """Leave a classifier of a model's noisy texts in the folder; its accuracy by time."""
    files: Any = {split: str(days / f"{split}.jsonl") for split in ("train", "valid")}
    changes = {"steps": 30, "batch": 16, "warmup": 5, "width": 32, "ffn": 64}
    found = train_classifier(model, out=out, changes=changes, device="cpu", **files)
    return {str(when): share for when, share in found.items()}


def steered(judge: Path) -> dict[str, Settings]:
    """Ways to be steered by a classifier."""
    towards: Settings = {"guide": str(judge), "guide_class": "april"}
    return {
        "steered": towards,
        "steered strongly": towards | {"guide_rate": 1.0, "guide_steps": 5, "fluency": 0.0, "eta": 0.0},
    }


def export_model(model: Path, out: Path, precision: str) -> None:
    """Leave the model with an ONNX network in the folder."""
    export(model, out, precision=precision)


def schedules() -> dict[str, Any]:
    """Every schedule by name."""
    plain: dict[str, Any] = {name: kind(2000) for name, kind in SCHEDULES.items()}
    return {
        **plain,
        **{f"{name}, twice the noise": rescale_plain(curve, 2.0) for name, curve in plain.items()},
        **{
            f"{name}, twice the noise, preserving": rescale_preserving(curve, 2.0)
            for name, curve in plain.items()
        },
        "quadratic": Quadratic(2000),
        "exponential": Exponential(2000),
        "staggered": Staggered(2000, first=2, positions=6),
        "speeds": Speeds(Sqrt(2000), 8),
        "adaptive": Adaptive(Sqrt(2000), 8),
        "fixed clock": FixedClock(Sqrt(2000), 0.9),
    }


def own_schedule(model: Any) -> Any:
    """The schedule that a model goes down by; none if it has no noise."""
    return model.down(model.how) if hasattr(model, "schedule") else None


def levels(schedule: Any, times: Sequence[float], length: int) -> dict[str, Any]:
    """The signal, the noise and what the network is told, at each time and position."""
    level = schedule(torch.tensor(times, dtype=torch.float64), length)
    shown = {"alpha": level.alpha[..., 0], "sigma": level.sigma[..., 0], "told": level.clock}
    return {name: value.double().tolist() for name, value in shown.items()}


def schedule_steps() -> Found:
    """The steps of the plain schedules: how much noise each adds, and what is there at both ends."""
    for name, kind in SCHEDULES.items():
        yield f"schedule/{name}/steps", listed(betas(kind(2000), 2000).tolist())
        yield f"schedule/{name}/ends", list(ends(kind(2000), 2000))


def noise_factors(own: Mapping[str, Path]) -> Found:
    """The noise factors of random embeddings and of models' own, and how they are found."""
    for name in SCHEDULES:
        for preserving in (False, True):
            for vocabulary, width, target in ((300, 16, 0.15), (1000, 64, 0.25)):
                how = f"{name}{', preserving' if preserving else ''}, {vocabulary} of {width}, {target}"
                found = rescaling(
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
    yield "rescale/embeddings", fingerprint([table])
    for name, kind in SCHEDULES.items():
        curve = degeneration(kind(2000), table, cells=50, samples=500, seed=1)
        yield f"rescale/{name}, degeneration", listed(curve.tolist())
        for way, search in (("one by one", brute_force), ("by halves", binary_search)):
            kept = find_factor(
                kind(2000), table, target=0.2, interval=0.25, search=search, cells=50, samples=500
            )
            yield f"rescale/{name}, {way}", dataclasses.asdict(kept)
    for name, model in own.items():
        options: Any = {"schedule": "sqrt", "vocab": 0, "dim": 0}
        yield (
            f"rescale/{name}'s own",
            rescaling(model, target=0.3, preserving=False, seed=0, **options),
        )


def metrics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
) -> dict[str, Any]:
    """Every metric that is no model, with intervals, beside what copying would score."""
    return evaluate(hypotheses, references, sources, metrics=list(NAMED.values()), draws=100)


def differences(candidates: Sequence[Sequence[str]]) -> dict[str, Any]:
    """How different the texts of a source are."""
    return diversity(candidates, draws=100)


def significance(systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Each system tested against the first."""
    found = paired_bootstrap(systems, references, draws=100)
    return {name: [dataclasses.asdict(tested) for tested in own] for name, own in found.items()}


Refused = Problem
"""What the package raises when it is asked for what it cannot do."""

# The sections of a record

TIMES = (0.0005, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
INPUTS = 20
SOME = 12  # German sentences that the shipped model translates in many ways
CLASSIFIED = ("difformer", "diffuseq", "seqdiffuseq")
ROUNDED = ("int8", "bfloat16")


class Workshop:
    """A folder with the corpora and every model that was trained, each when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_corpora(folder)
        self.dates, self.days = folder / "dates", folder / "days"
        pairs = test_pairs(self.dates, INPUTS)
        self.sources, self.targets = [src for src, _ in pairs], [trg for _, trg in pairs]
        self.names = [*recipe_names(), *VARIANTS, *STUDENTS]

    def run(self, name: str) -> Path:
        """The folder of a trained recipe or variant."""
        out = self.folder / "runs" / name.replace(", ", "+").replace(" ", "-")
        if not out.exists():
            say(f"train {name}")
            recipe, changes = self._plan(name)
            train_model(recipe, self.dates, out, changes)
        return out

    def judge(self, name: str) -> tuple[Path, dict[str, float]]:
        """A classifier for this recipe's model, and its accuracy."""
        out = self.folder / "judges" / name
        return out, train_judge(self.run(name), self.days, out)

    def _plan(self, name: str) -> tuple[str, Settings]:
        if name in STUDENTS:
            recipe, teacher, changes = STUDENTS[name]
            changes = changes | {"from_folder": str(self.run(teacher))}
        else:
            recipe, changes = VARIANTS.get(name, (name, {}))
        known = settings_known(recipe)
        small = {field: value for field, value in SMALL.items() if field in known}
        if known["vocabulary"] > VOCABULARY:
            small["vocabulary"] = VOCABULARY
        return recipe, small | changes


def training(shop: Workshop) -> Found:
    """The weights after a few steps, and the losses on the way; what takes its corpus in has no steps."""
    for name in shop.names:
        run = shop.run(name)
        yield f"weights/{name}", fingerprint(tensors(load(run)))
        last = last_weights(run)
        if last is not None:
            yield f"weights/{name}/last", fingerprint(tensors(load(last)))
        for line in logged(run):
            step = line.pop("step")
            for term, value in line.items():
                yield f"loss/{name}/{step}/{term}", value


def generation(shop: Workshop) -> Found:
    """What every family writes, in every way that it can; a way that it refuses is recorded as that."""
    for name in recipe_names():
        model = load(shop.run(name))
        known = generation_known(model)
        few = {field: value for field, value in FEW.items() if field in known}
        say(f"generate with {name}")
        for way, settings in WAYS.items():
            if settings.keys() <= known.keys():
                yield from written(f"generate/{name}/{way}", model, shop.sources, few | settings)
        yield from written(f"generate/{name}/another seed", model, shop.sources, few, seed=7)
        yield from written(f"generate/{name}/small batches", model, shop.sources, few, batch=3)
        yield from written(f"generate/{name}/traced", model, shop.sources, few, trace=True)
        for precision in ROUNDED:
            try:
                rounded = load(shop.run(name), precision)
            except Refused:
                yield f"generate/{name}/{precision}", "refused"
            else:
                yield from written(f"generate/{name}/{precision}", rounded, shop.sources, few)
        if can_judge(model):
            for mean in (False, True):
                values = likelihood(model, shop.sources, shop.targets, mean=mean)
                yield f"likelihood/{name}/{'mean' if mean else 'sum'}", listed(values)
        for given, pairs in write_model_pairs(model).items():
            yield f"pairs/{name}/{given}", pairs


def control(shop: Workshop) -> Found:
    """Classifiers and what they steer to; and selectors that are put in place of a model's own."""
    teacher = load(shop.run("transformer"))
    for name in CLASSIFIED:
        say(f"steer {name}")
        model = load(shop.run(name))
        few = {field: value for field, value in FEW.items() if field in generation_known(model)}
        judge, accuracy = shop.judge(name)
        yield f"classifier/{name}", accuracy
        for way, settings in steered(judge).items():
            yield from written(f"generate/{name}/{way}", model, shop.sources, few | settings)
        for way, selector in selectors(teacher).items():
            yield from written(f"generate/{name}/{way}", model, shop.sources, few, selector=selector)


def shipped(shop: Workshop) -> Found:
    """The shipped model: all sentences as it is shipped, some in many ways."""
    german = (HERE / "golden_german.txt").read_text("utf-8").splitlines()
    for precision in ("float32", "int8"):
        say(f"translate in {precision}")
        model = load("de-en", precision)
        yield from written(f"shipped/de-en/{precision}", model, german, {}, batch=25)
    model = load("de-en")
    yield "shipped/de-en/weights", fingerprint(tensors(model))
    for way, settings in SHIPPED_WAYS.items():
        few = {"steps": 5, "stop_early": 0}
        yield from written(f"shipped/de-en/{way}", model, german[:SOME], few | settings, batch=SOME)


def exported(shop: Workshop) -> Found:
    """What a model writes whose network onnxruntime runs."""
    for name, precision in (("difformer", "float32"), ("diffuseq", "int8")):
        say(f"export {name} in {precision}")
        out = shop.folder / "exported" / name
        export_model(shop.run(name), out, precision)
        model = load(out, precision)
        few = {field: value for field, value in FEW.items() if field in generation_known(model)}
        yield from written(f"exported/{name}/{precision}", model, shop.sources, few)


def rescale(shop: Workshop) -> Found:
    """Noise factors and degeneration scores."""
    say("rescale")
    yield from noise_factors({"de-en": Path("de-en"), "difformer": shop.run("difformer")})


def metric(shop: Workshop) -> Found:
    """Every metric of a fixed text."""
    say("metrics")
    hypotheses, references = [row[1] for row in TEXTS], [row[2] for row in TEXTS]
    sources = [row[0] for row in TEXTS]
    yield from leaves("metric", metrics(hypotheses, references, sources))
    yield from leaves("metric/diversity", differences([[row[1], *row[2]] for row in TEXTS]))
    systems = {"system": hypotheses, "copies": sources, "first references": [own[0] for own in references]}
    yield from leaves("metric/significance", significance(systems, references))


def selection(shop: Workshop) -> Found:
    """What every selector picks of fixed candidates."""
    say("selection")
    for name, places in choices([(row[0], row[3]) for row in TEXTS]):
        yield f"select/{name}", places


def schedule(shop: Workshop) -> Found:
    """Signal and noise of every schedule, and of every model's own."""
    say("schedules")
    for name, curve in schedules().items():
        yield f"schedule/{name}", levels(curve, TIMES, 6)
    yield from schedule_steps()
    for name in recipe_names():
        curve = own_schedule(load(shop.run(name)))
        if curve is not None:
            yield f"schedule/of {name}", levels(curve, TIMES, 6)


SECTIONS: dict[str, Callable[[Workshop], Found]] = {
    "training": training,
    "generation": generation,
    "control": control,
    "shipped": shipped,
    "exported": exported,
    "rescale": rescale,
    "metric": metric,
    "selection": selection,
    "schedule": schedule,
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

# How results are written down


def written(key: str, model: Any, texts: Sequence[str], settings: Settings, **more: Any) -> Found:
    """What a model makes of the texts in one way, under keys of its own; or that it refuses."""
    try:
        made = generate(model, texts, settings, **more)
    except Refused:
        yield key, "refused"
        return
    yield f"{key}/texts", made["texts"]
    yield f"{key}/candidates", listed(made["candidates"], first=2)
    yield f"{key}/scores", listed([score for scores in made["scores"] for score in scores])
    if any(made["traces"]):
        yield f"{key}/traces", listed(made["traces"], first=1)


def listed(values: Sequence[Any], first: int = 5) -> dict[str, Any]:
    """A long list as its hash, its length and its first values."""
    whole = json.dumps(plain(values), ensure_ascii=False)
    return {"sha256": digest(whole.encode()), "count": len(values), "first": list(values[:first])}


def fingerprint(values: Sequence[torch.Tensor]) -> dict[str, Any]:
    """A hash of tensors, whatever they are called and in whatever order they come; equal ones count once."""
    each = {
        digest(f"{tensor.dtype} {list(tensor.shape)} ".encode() + raw(tensor)): tensor.numel()
        for tensor in values
    }
    return {
        "sha256": digest("".join(sorted(each)).encode()),
        "tensors": len(each),
        "numbers": sum(each.values()),
    }


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor, row by row."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def digest(content: bytes) -> str:
    """SHA-256, enough of it."""
    return hashlib.sha256(content).hexdigest()[:32]


def leaves(key: str, value: Any) -> Found:
    """The numbers and texts within nested values, each under its own key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(f"{key}/{name}", inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves(f"{key}/{place}", inner)
    else:
        yield key, value


def plain(value: Any) -> Any:
    """The value as JSON can say it: tuples are lists, and what is not finite is a text."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


# Recording and comparing


def compute(only: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run the sections; keys and values by section."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        shop = Workshop(Path(folder))
        for name in only or SECTIONS:
            begun = time.process_time()
            found[name] = {key: plain(value) for key, value in SECTIONS[name](shop)}
            say(f"section {name}: {len(found[name]):,} keys, {time.process_time() - begun:.0f} s of CPU time")
        load.cache_clear()
    return found


def facts() -> dict[str, str]:
    """What the numbers depend on beside the code, and which code it was."""
    return {
        "commit": commit(),
        "cpu": cpu(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def cpu() -> str:
    """The name of the processor."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The last commit of the code beside this script, and whether it was changed since."""
    try:
        changed = git("status", "--porcelain", "--", "src")
        return git("log", "-1", "--format=%H", "--", "src") + (" and changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def git(*arguments: str) -> str:
    """What git says in this repository."""
    done = subprocess.run(
        ["git", "-C", str(HERE.parent), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def record(out: Path, only: Sequence[str]) -> None:
    """Write what this code computes; what was accepted in an earlier record stays so."""
    accepted = read(out)["accepted"] if out.exists() else {}
    whole = {"about": facts(), "accepted": accepted, "sections": compute(only)}
    out.write_text(laid_out(whole, depth=3) + "\n", "utf-8")
    say(f"{out}: {sum(map(len, whole['sections'].values())):,} keys, {out.stat().st_size:,} bytes")


def laid_out(value: Any, depth: int) -> str:
    """JSON with a line for each key down to a depth, so that two records can be compared line by line."""
    if not depth or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    lines = (
        f"{json.dumps(key, ensure_ascii=False)}: {laid_out(each, depth - 1)}" for key, each in value.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}"


def read(path: Path) -> dict[str, Any]:
    """A record."""
    whole: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return whole


def compare(before: dict[str, Any], accepted: Mapping[str, str], only: Sequence[str]) -> int:
    """Compute anew, print every key that differs, and return how many of them nobody has accepted."""
    here = facts()
    others = [name for name in ("cpu", "capability", "torch") if here[name] != before["about"][name]]
    for name in others:
        say(f"this is another machine: {name} {here[name]}, the record's {before['about'][name]}")
    if others:
        say("last bits may differ for that reason; `beside COMMIT` compares on one machine")
    wanted = [name for name in only or SECTIONS if name in before["sections"]]
    old = joined(before["sections"], wanted)
    new = joined(compute(only), only or list(SECTIONS))
    failed = allowed = 0
    for key in [*old, *(key for key in new if key not in old)]:
        if key in old and key in new and old[key] == new[key]:
            continue
        reason = next((why for prefix, why in accepted.items() if key.startswith(prefix)), None)
        failed, allowed = failed + (reason is None), allowed + (reason is not None)
        print(f"{key}" + (f"   (accepted: {reason})" if reason else ""))
        print(f"  - {short(old, key)}\n  + {short(new, key)}")
    same = len(old.keys() | new.keys()) - failed - allowed
    print(f"{same:,} keys are the same, {allowed:,} differ as accepted, {failed:,} differ.")
    return failed


def joined(sections: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """The keys of several sections."""
    return {key: value for name in names for key, value in sections[name].items()}


def short(values: Mapping[str, Any], key: str, width: int = 160) -> str:
    """A value on one line."""
    text = json.dumps(values[key], ensure_ascii=False) if key in values else "(none)"
    return text if len(text) <= width else text[: width - 1] + "…"


def beside(earlier: str, only: Sequence[str]) -> int:
    """Record with an earlier commit's code and script, then compare with the present code."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        tree, out = Path(folder) / "tree", Path(folder) / "golden.json"
        git("worktree", "add", "--detach", str(tree), earlier)
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
            return compare(read(out), accepted_here(), only)
        finally:
            git("worktree", "remove", "--force", str(tree))


def accepted_here() -> dict[str, str]:
    """What the record beside this script accepts."""
    path = HERE / "golden.json"
    return dict(read(path)["accepted"]) if path.exists() else {}


def say(text: str) -> None:
    """Progress, with the seconds since the start."""
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
        before = read(given.record)
        sys.exit(1 if compare(before, before["accepted"], given.only) else 0)
    else:
        sys.exit(1 if beside(given.commit, given.only) else 0)


if __name__ == "__main__":
    main()
