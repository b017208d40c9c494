"""The pool of models: named, loaded when asked for, the least recently used let go."""

from __future__ import annotations

from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.models import Model
from noise2text.serving.limits import Limits
from noise2text.serving.model_cache import ModelPool, UnknownModel, describe_models, find_languages
from noise2text.serving.request_batching import Job, WorkerClosed

from .conftest import Gate


def test_models_are_named_after_their_folders_or_as_asked(folder: Path) -> None:
    models = describe_models([str(folder), f"de-en={folder}"])
    assert list(models) == ["tiny", "de-en"]
    assert models["tiny"].recipe == "difformer"
    assert models["tiny"].generation_config.steps == 6
    assert (models["tiny"].languages, models["de-en"].languages) == (None, ("de", "en"))
    with pytest.raises(Problem, match="NAME="):
        describe_models([str(folder), str(folder)])
    with pytest.raises(Problem, match="no model folder"):
        describe_models(["nowhere"])


def test_only_pairs_of_languages_are_languages() -> None:
    assert find_languages("fr-de") == ("fr", "de")
    assert [find_languages(name) for name in ("qqp", "xx-yy", "de-en-2", "De-En")] == [None] * 4


def test_the_least_recently_used_model_is_let_go(folder: Path, model: Model) -> None:
    loads: list[Path] = []

    def load_model(path: Path) -> Model:
        loads.append(path)
        return model

    models = describe_models([f"{name}={folder}" for name in "abc"])
    pool = ModelPool(models, Limits(models=2), load_model=load_model)
    for name in "aba":
        pool.warm_up(name)
    assert (pool.list_loaded(), len(loads)) == (["b", "a"], 2)
    pool.warm_up("c")
    assert pool.list_loaded() == ["a", "c"]
    pool.warm_up("b")
    assert (pool.list_loaded(), len(loads)) == (["c", "b"], 4)


def test_a_model_that_is_let_go_first_finishes_what_it_accepted(folder: Path, model: Model) -> None:
    gate = Gate(model)
    models = describe_models([f"{name}={folder}" for name in "ab"])
    pool = ModelPool(models, Limits(models=1), load_model=gate.load)
    config = model.generation_config
    first, second = Job(["x"], {}, config), Job(["y"], {}, config)
    pool.submit("a", first)
    pool.submit("b", second)
    gate.opened.set()
    assert len(first.future.result(30).texts) == len(second.future.result(30).texts) == 1
    assert gate.batches == [["x"], ["y"]]
    pool.close()
    pool.join()
    with pytest.raises(WorkerClosed):
        pool.submit("a", Job(["z"], {}, config))


def test_an_unknown_model_gets_a_suggestion(folder: Path) -> None:
    pool = ModelPool(describe_models([f"de-en={folder}"]), Limits())
    assert pool.find(None).name == "de-en"
    with pytest.raises(UnknownModel, match="did you mean de-en"):
        pool.find("de-em")
