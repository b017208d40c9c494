"""Every experiment is complete: its settings exist at both scales, and at a micro scale all its arms run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noise2text
from noise2text.core.config import apply_overrides, has_setting
from noise2text.core.errors import Problem
from noise2text.experiments import EXPERIMENTS, corpus_files, find_experiment
from noise2text.experiments.arm_texts import read_arm_texts
from noise2text.experiments.experiment import Experiment, ModelSpec, TrainedSetting
from noise2text.experiments.measures import DIVERSITY, MEASURES, OF_ONE_TEXT
from noise2text.experiments.run_experiment import run_experiment
from noise2text.metrics.model_based import MODEL_METRICS
from noise2text.models.registry import find_recipe

MICRO: dict[str, Any] = {
    "optim.steps": 2,
    "model_dim": 16,
    "ffn_dim": 16,
    "heads": 2,
    "layers": 1,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_tokens": 128,
    "warmup": 1,
    "validation_sentences": 1,
    "generation.steps": 2,
    "generation.stop_early": 0,
    "iterations": 1,
    "beam": 1,
}
"""Settings that make any recipe train and generate in a moment."""

TABLES = {
    "Difformer": [
        *("3, 4, 10 and 11", "1 and 12", "7", "2, 9 and 13", "14", "15", "16", "17", "18", "5 and 6", "8")
    ],
    "SeqDiffuSeq": ["1", "2", "3", "4 and 5"],
    "DiffuSeq": ["1 and 4", "3", "3"],
    "Classifier-free": ["4.2", "4.4", "4.2.2 and figure 4.3"],
}


def candidates_of(settings: dict[str, Any]) -> int:
    """How many candidates these generation settings ask for at most."""
    names = ("noise_beam", "length_beam", "beam", "samples", "noises")
    return math.prod(settings.get(name) or 1 for name in names)


CANDIDATE_MEASURES = DIVERSITY.keys() - OF_ONE_TEXT  # they need several candidates per source
WITH_DIVERSITY = [
    name
    for name, experiment in EXPERIMENTS.items()
    if {*experiment.measures, *experiment.tiny_measures} & CANDIDATE_MEASURES
]


@pytest.mark.parametrize("name", WITH_DIVERSITY)
def test_where_a_table_has_diversity_every_arm_has_several_candidates(name: str) -> None:
    for scale in ("tiny", "full"):
        few = {
            arm.name
            for arm in EXPERIMENTS[name].arms
            if arm.samples is None and candidates_of(arm.generation_settings(scale)) < 2
        }
        assert few <= {"DiffuSeq, |S| = 1", "Transformer, |S| = 1"}, "which have one on purpose"


def test_the_numbers_of_main_tables_are_the_papers() -> None:
    """Typed a second time from the papers."""
    for name, preset, arm, measure, number in [
        ("difformer-main", "iwslt14-de-en", "Difformer, b = 20", "bleu-fairseq", 34.48),
        ("difformer-main", "iwslt14-de-en", "CMLM, b = 5", "comet", 77.36),
        ("difformer-main", "wmt14-en-de", "Levenshtein Transformer", "bleu-fairseq", 27.27),
        ("difformer-main", "wmt14-en-de", "Difformer, b = 5", "bleu-fairseq", 27.61),
        ("difformer-main", "gigaword", "SeqDiffuSeq, b = 10", "rouge-2", 12.36),
        ("difformer-main", "quasar-t", "Transformer, b = 5", "bertscore", 63.91),
        ("diffuseq-main", "qqp", "NAR-LevT", "self_bleu_diffuseq", 99.95),
        ("diffuseq-main", "wiki-auto", "GPVAE-T5", "bleu-diffuseq", 33.92),
        ("diffuseq-main", "qqp", "GPT2-large FT", "parameters", 774),
        ("seqdiffuseq-main", "wmt14-de-en", "CDCD, MBR of 10", "bleu", 25.40),
        ("seqdiffuseq-main", "quasar-t", "DiffuSeq", "dist_1_diffuseq", 91.12),
        ("seqdiffuseq-ablation", "wiki-auto", "B: without the adaptive schedule", "bertscore", 79.74),
        ("seqdiffuseq-ablation", "iwslt14-en-de", "D: without both", "bleu", 17.50),
    ]:
        rows = {each.name: each.paper for each in EXPERIMENTS[name].with_preset(preset, "full").arms}
        assert rows[arm][measure] == number, (name, preset, arm)


def test_a_preset_that_a_table_or_a_model_does_not_have_is_named() -> None:
    with pytest.raises(Problem, match="no preset 'qpq'; did you mean qqp"):
        EXPERIMENTS["diffuseq-main"].with_preset("qpq", "full")
    with pytest.raises(Problem, match="wmt14-de-en"):
        EXPERIMENTS["difformer-losses"].with_preset("wmt14-de-en", "full")
    with pytest.raises(Problem, match="--scale full"):
        EXPERIMENTS["difformer-losses"].with_preset("iwslt14-de-en", "tiny")
    chosen = EXPERIMENTS["difformer-beams"].with_preset("qqp", "full")
    assert [chosen.preset(model, "full") for model in chosen.models()] == ["qqp"]


def known_to(experiment: Experiment, scale: str, model: ModelSpec) -> Any:
    recipe = find_recipe(model.recipe)
    config = recipe.preset(experiment.preset(model, scale))
    return apply_overrides(config, experiment.changes(model, scale, {}), origin="test")


def test_every_table_of_the_papers_has_its_experiment() -> None:
    for paper, tables in TABLES.items():
        own = [
            experiment.table.split(" ", 1)[1]
            for experiment in EXPERIMENTS.values()
            if experiment.paper.startswith(paper)
        ]
        assert sorted(own) == sorted(tables)


DEPENDENCIES = {"schedule", "max_dgs", "embedding_dim", "variance_preserving"}
"""Settings of Difformer that another noise factor belongs to."""


@pytest.mark.parametrize("scale", ["tiny", "full"])
@pytest.mark.parametrize(
    ("name", "preset"),
    [(name, preset) for name, own in EXPERIMENTS.items() for preset in (None, *own.columns)],
)
def test_every_setting_of_an_experiment_exists(name: str, preset: str | None, scale: str) -> None:
    experiment = EXPERIMENTS[name].with_preset(preset, scale)
    experiment.validate(scale, {})
    assert len({arm.name for arm in experiment.arms}) == len(experiment.arms) > 1
    assert {*experiment.measures, *experiment.tiny_measures} <= set(MEASURES)
    assert {measure for arm in experiment.arms for measure in arm.paper} <= set(MEASURES)
    if preset is not None and scale == "full":
        used = {experiment.preset(model, scale) for model in experiment.models() if not model.preset}
        assert used == {preset}
    for arm in experiment.arms:
        config = known_to(experiment, scale, arm.model)
        for value in arm.generation_settings(scale).values():
            assert not isinstance(value, TrainedSetting) or has_setting(config, value.setting)
        if arm.model.embeddings:
            assert has_setting(config, "embeddings_from")
            given = known_to(experiment, scale, arm.model.embeddings)
            assert given.model.model_dim == config.model.embedding_dim
            same = ["tokenizer", "lowercase", "normalize"]
            same += ["vocabulary"] if config.data.tokenizer == "bpe" else []
            assert all(getattr(given.data, each) == getattr(config.data, each) for each in same)


def test_where_an_arm_changes_what_the_factor_depends_on_it_is_searched() -> None:
    dependent = [
        (experiment, spec)
        for experiment in EXPERIMENTS.values()
        for spec in experiment.models()
        if spec.recipe == "difformer" and DEPENDENCIES & set(spec.changes)
    ]
    assert len(dependent) > 10
    for experiment, spec in dependent:
        assert known_to(experiment, "full", spec).diffusion.noise_factor in (None, 1.0), spec


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("difformer-beams", 1),
        ("difformer-sampling", 1),
        ("seqdiffuseq-prior", 1),
        ("diffuseq-candidates", 2),
        ("difformer-rescaling", 11),
        ("difformer-peers", 7),
        ("difformer-losses", 5),
        ("thesis-models", 5),
    ],
)
def test_what_differs_in_generation_alone_is_trained_once(name: str, models: int) -> None:
    assert len(EXPERIMENTS[name].models()) == models


def test_a_model_comes_after_what_it_needs() -> None:
    order = [model.recipe for model in EXPERIMENTS["thesis-models"].models()]
    assert order.index("transformer") < len(order) - 1 - order[::-1].index("diffuseq")


def test_the_documentation_names_every_experiment_with_its_rows_and_models() -> None:
    page = (Path(noise2text.__file__).parents[2] / "docs" / "notebook" / "experiments.md").read_text()
    for experiment in EXPERIMENTS.values():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{experiment.name}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert experiment.table in cells[1]
        assert cells[2:] == [str(len(experiment.arms)), str(len(experiment.models()))]


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(Problem, match="did you mean difformer-losses"):
        find_experiment("difformer-loses")
    with pytest.raises(Problem, match=r"there are difformer-main, difformer-losses.*experiment --list"):
        find_experiment("xyz")


@pytest.mark.long
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_to_its_table(name: str, micro: Path) -> None:
    experiment = EXPERIMENTS[name]
    configs = [known_to(experiment, "tiny", model) for model in experiment.models()]
    known = [setting for setting in MICRO if any(has_setting(config, setting) for config in configs)]
    changes = {setting: MICRO[setting] for setting in known}
    found = run_experiment(experiment, micro, changes=changes, sentences=2, device="cpu")
    assert [row["arm"] for row in found["rows"]] == [arm.name for arm in experiment.arms]
    for row in found["rows"]:
        assert row["failures"] == []
        measured = set(experiment.measures_at("tiny")) - set(MODEL_METRICS)
        # A random model's texts may have no four words in a row; that there are candidates is checked below.
        assert measured - CANDIDATE_MEASURES <= set(row["means"]) <= measured
    if set(experiment.measures_at("tiny")) & CANDIDATE_MEASURES:
        for arm, path in zip(
            experiment.arms, sorted((micro / name / "tiny" / "texts").iterdir()), strict=True
        ):
            texts = read_arm_texts(path)
            count = {len(own) for own in texts.samples or texts.candidates}
            assert min(count) > 1 or arm.name.endswith("|S| = 1")
    page = (micro / name / "tiny" / "table.md").read_text()
    assert all(arm.name.replace("|", "\\|") in page for arm in experiment.arms)


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose experiments share models, and whose corpus is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_files, "PAIRS", 60)
        yield tmp_path_factory.mktemp("experiments")
