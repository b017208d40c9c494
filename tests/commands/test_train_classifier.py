"""A classifier is trained by a command for one model, and steers every diffusion system."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.modules.module import register_module_forward_pre_hook

from noise2text.commands.train import train
from noise2text.commands.train_classifier import train_classifier
from noise2text.core.errors import Problem
from noise2text.data.dates import write_days
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models import DiffusionModel, Model
from noise2text.models.convert import FORMAT, convert_folder
from noise2text.models.folder import load, save
from noise2text.models.registry import find_recipe
from noise2text.nn.classifier import Classifier
from noise2text.training.classifier import ClassifierConfig, fingerprint_embeddings, load_classifier

from ..conftest import DIFFUSION, NO_DIFFUSION, lively, shrunk

QUICK = {"steps": 3, "batch_size": 4, "model_dim": 16, "ffn_dim": 16, "heads": 2, "layers": 1, "warmup": 1}
TEXTS = ["1957", "2001", "1987"]
Made = tuple[Path, Path]  # the model's folder and its classifier's


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("days")
    write_days(folder, pairs=300, seed=0)
    return folder


@pytest.fixture(scope="module")
def make(days: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Made]:
    """A function that leaves an untrained model and a hardly trained classifier for it."""

    def made(name: str, **changes: Any) -> Made:
        recipe, folder = find_recipe(name), tmp_path_factory.mktemp(name)
        settings = shrunk(recipe.preset("tiny"), **changes)
        torch.manual_seed(0)
        save(folder / "model", recipe.build(settings, tokenizer), recipe=name, config=settings)
        files: dict[str, Any] = {split: str(days / f"{split}.jsonl") for split in ("train", "valid")}
        train_classifier(folder / "model", out=folder / "guide", changes=QUICK, device="cpu", **files)
        return folder / "model", folder / "guide"

    return made


def build_model(folder: Path) -> Model:
    return load(folder, device="cpu")


@pytest.mark.parametrize("name", NO_DIFFUSION)
def test_only_a_diffusion_can_be_steered(name: str, make: Callable[..., Made]) -> None:
    with pytest.raises(Problem, match="not a diffusion model"):
        make(name)


@pytest.mark.parametrize("name", DIFFUSION)
def test_every_diffusion_can_be_steered_and_off_is_the_plain_model_to_the_bit(
    name: str, make: Callable[..., Made]
) -> None:
    model, guide = make(name)
    system = build_model(model)
    overrides: dict[str, Any] = {"steps": 4, "stop_early": 0, "noise_beam": 2, "prefix": "19"}
    overrides |= {"trace": True, "clamp": False}  # rounding would hide a small move
    overrides |= {"fluency": 0.0}  # it would outweigh a classifier that knows nothing yet
    steered: dict[str, Any] = {"guide": str(guide), "guide_class": "july"}
    plain = system.generate(TEXTS, **overrides)
    off = system.generate(TEXTS, **overrides, **steered, guide_steps=0)
    assert (off.texts, off.scores) == (plain.texts, plain.scores)
    on = system.generate(TEXTS, **overrides, **steered)
    assert on.scores != plain.scores
    assert all(stop.text.startswith("19") for trace in on.traces for stop in trace)
    again = system.generate(TEXTS, **overrides, **steered)
    assert on.scores == again.scores
    other = system.generate(TEXTS, **overrides, guide=str(guide), guide_class="may")
    assert other.scores != on.scores


def test_word_by_word_is_steered_where_it_writes(make: Callable[..., Made]) -> None:
    model, guide = make("word-by-word", max_word_tokens=3)
    read: list[int] = []  # how many positions the classifier reads

    def record(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, Classifier):
            _, _, text_mask = inputs
            read.extend(text_mask.sum(1).tolist())

    overrides: dict[str, Any] = {"steps": 2, "stop_early": 0, "guide": str(guide), "guide_class": "may"}
    with register_module_forward_pre_hook(record):
        lively(build_model(model)).generate(TEXTS[:1], fluency=0.0, **overrides)
    assert read[0] == 3  # as many as the first word may have
    assert len(set(read)) > 1
    assert read == sorted(read)


@pytest.fixture(scope="module")
def pair(make: Callable[..., Made]) -> Made:
    return make("seqdiffuseq")


def test_it_steers_the_same_where_the_caller_is_in_inference_mode(pair: Made) -> None:
    model, guide = pair
    overrides: dict[str, Any] = {"steps": 3, "stop_early": 0, "guide": str(guide), "guide_class": "may"}
    plain = build_model(model).generate(TEXTS, **overrides)
    with torch.inference_mode():
        made = build_model(model).generate(TEXTS, **overrides)
    assert made.candidates == plain.candidates


def test_a_folder_is_two_files_and_the_accuracy_is_of_each_time(
    pair: Made, days: Path, tmp_path: Path
) -> None:
    model, guide = pair
    assert {file.name for file in guide.iterdir()} == {"config.json", "model.safetensors"}
    files: dict[str, Any] = {split: str(days / f"{split}.jsonl") for split in ("train", "valid")}
    accuracy = train_classifier(model, out=tmp_path / "again", changes=QUICK, device="cpu", **files)
    assert list(accuracy) == [0.1, 0.3, 0.5, 0.7, 0.9]
    first, second = (load_file(folder / "model.safetensors") for folder in (guide, tmp_path / "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)  # the seed decides


def test_the_fingerprint_is_of_the_embeddings_whatever_their_precision(pair: Made) -> None:
    exact, rounded = (load(pair[0], device="cpu", precision=p) for p in ("float32", "bfloat16"))
    assert isinstance(exact, DiffusionModel)
    assert isinstance(rounded, DiffusionModel)
    name = fingerprint_embeddings(exact.denoiser.embedding)
    assert fingerprint_embeddings(rounded.denoiser.embedding) == name
    with torch.no_grad():
        exact.denoiser.embedding.weight[0, 0] += 1
    assert fingerprint_embeddings(exact.denoiser.embedding) != name


def test_what_cannot_steer_is_named(pair: Made, tmp_path: Path) -> None:
    model, guide = pair
    system = build_model(model)
    assert isinstance(system, DiffusionModel)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"guide": str(guide)}, "need each other"),
        ({"guide_class": "may"}, "need each other"),
        ({"guide": str(guide), "guide_class": "mai"}, "no class 'mai'; it has april"),
        ({"guide": str(tmp_path / "none"), "guide_class": "may"}, "no classifier in"),
        ({"guide": str(guide), "guide_class": "may", "eta": 0.0}, "new noise"),
        ({"guide": str(guide), "guide_class": "may", "guide_steps": -1}, "guide_steps"),
    ]
    for overrides, named in cases:
        with pytest.raises(Problem, match=named):
            system.generate(TEXTS, steps=2, **overrides)
    assert DiffusionGenerationConfig(guide="a", guide_class="b", eta=0.0, fluency=0.0).guide == "a"
    with torch.no_grad():
        system.denoiser.embedding.weight.add_(0.1)
    with pytest.raises(Problem, match="belongs to another model"):
        system.generate(TEXTS, guide=str(guide), guide_class="may", steps=2)


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"format": 2, "classifier": {"model_dim": 15}}'])
def test_a_folder_that_holds_no_classifier_is_named(pair: Made, tmp_path: Path, content: str) -> None:
    system = build_model(pair[0])
    assert isinstance(system, DiffusionModel)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(Problem, match=r"config\.json|model_dim"):
        load_classifier(tmp_path, system.denoiser.embedding)
    config = json.loads((pair[1] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Problem, match=r"model\.safetensors"):
        load_classifier(tmp_path, system.denoiser.embedding)
    save_file({"classes.bias": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(Problem, match=r"model\.safetensors"):
        load_classifier(tmp_path, system.denoiser.embedding)


@pytest.mark.parametrize(
    ("train_lines", "valid_lines", "named"),
    [
        ([{"trg": "a"}], [], 'line 1: there is no "label"'),
        ([{"trg": "a", "label": "x"}, {"trg": " ", "label": "x"}], [], "line 2: the target is empty"),
        ([{"label": "x"}], [], 'no field "text"'),
        ([], [], "has no lines"),
        ([{"text": "a", "label": "x"}], [{"text": "a", "label": "x"}], "only one class"),
        ([{"text": "a", "label": 1}, {"text": "b", "label": 2}], [{"text": "a", "label": 3}], "class '3'"),
    ],
)
def test_what_cannot_be_taught_is_named(
    pair: Made, tmp_path: Path, train_lines: list[Any], valid_lines: list[Any], named: str
) -> None:
    for name, lines in (("train", train_lines), ("valid", valid_lines)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files: dict[str, Any] = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "valid")}
    with pytest.raises(Problem, match=named):
        train_classifier(pair[0], out=tmp_path / "out", changes=QUICK, device="cpu", **files)
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_and_a_mistyped_setting_are_refused(pair: Made, days: Path) -> None:
    files: dict[str, Any] = {split: str(days / f"{split}.jsonl") for split in ("train", "valid")}
    with pytest.raises(Problem, match="not empty"):
        train_classifier(pair[0], out=pair[1], **files)
    with pytest.raises(Problem, match="did you mean steps"):
        train_classifier(pair[0], out=pair[1], changes={"step": 3}, **files)


@pytest.mark.long
def test_the_class_rate_rises_under_guidance_and_the_source_still_holds(tmp_path: Path) -> None:
    """A little training is enough: of texts steered to a month significantly more have it."""
    from scipy.stats import fisher_exact

    write_days(tmp_path / "days", pairs=20_000, seed=0)
    files: dict[str, Any] = {name: str(tmp_path / "days" / f"{name}.jsonl") for name in ("train", "valid")}
    small = {
        "max_source": 4,
        "optim.steps": 250,
        "max_tokens": 320,
        "layers": 2,
        "model_dim": 64,
        "ffn_dim": 128,
        "clamp": False,
    }
    changes = small | {"validate_every": 250, "save_every": 250, "validation_sentences": 2}
    system = train("diffuseq", out=tmp_path / "m", preset="tiny", changes=changes, device="cpu", **files)
    taught = {"steps": 150, "model_dim": 64, "ffn_dim": 128, "layers": 1, "batch_size": 32}
    train_classifier(tmp_path / "m", out=tmp_path / "g", changes=taught, device="cpu", **files)
    sources = [str(year) for year in range(1940, 2000)]
    plain = system.generate(sources, steps=20).texts
    steered = system.generate(sources, steps=20, guide=str(tmp_path / "g"), guide_class="july").texts
    again = system.generate(sources[:8], batch=3, steps=20, guide=str(tmp_path / "g"), guide_class="july")
    assert again.texts == steered[:8]  # the batch does not matter
    counts = [sum(text[5:7] == "07" for text in texts) for texts in (steered, plain)]
    table = [[count, len(sources) - count] for count in counts]
    assert fisher_exact(table, alternative="greater").pvalue < 0.001, table
    kept = [
        sum(text[:4] == source for text, source in zip(texts, sources, strict=True))
        for texts in (steered, plain)
    ]
    assert kept[0] >= kept[1] - 6, kept


def test_a_classifier_of_format_1_is_refused_until_it_is_converted(pair: Made, tmp_path: Path) -> None:
    """Early classifiers said format 1 but had today's names; they convert like any other."""
    system, old, new = build_model(pair[0]), tmp_path / "old", tmp_path / "new"
    assert isinstance(system, DiffusionModel)
    embedding = system.denoiser.embedding
    shutil.copytree(pair[1], old)
    contents = json.loads((old / "config.json").read_text())
    assert contents["format"] == FORMAT  # as converted folders have it
    (old / "config.json").write_text(json.dumps(contents | {"format": 1}))
    with pytest.raises(Problem, match=re.escape(f"`noise2text convert {old} NEW`")):
        load_classifier(old, embedding)
    convert_folder(old, new)
    (expected, labels), (converted, converted_labels) = (
        load_classifier(folder, embedding) for folder in (pair[1], new)
    )
    assert converted_labels == labels
    for name, tensor in expected.state_dict().items():
        assert torch.equal(converted.state_dict()[name], tensor)
    (new / "config.json").write_text(json.dumps(contents | {"format": FORMAT + 1}))
    with pytest.raises(Problem, match="newer version"):
        load_classifier(new, embedding)


def test_the_settings_of_a_classifier_can_be_replaced() -> None:
    assert ClassifierConfig().replace(model_dim=64).model_dim == 64
