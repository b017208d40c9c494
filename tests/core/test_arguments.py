"""Mistakes in Python are one sentence that says what was given and what to give."""

from __future__ import annotations

from collections import UserList
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noise2text
from noise2text.core.arguments import parse_path, require_new_folder_name, require_texts
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import learn_characters


@pytest.mark.parametrize("wrong", [np.array("a"), str, {"a": 1}, {"a"}, b"a", iter(["a"])])
def test_other_values_are_named(wrong: Any) -> None:
    with pytest.raises(Problem, match="generate takes a list of texts, not "):
        require_texts(wrong, where="generate")


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_a_name_that_no_folder_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"cannot be a folder \(.*\): choose another name"):
        require_new_folder_name(tmp_path / name)


def test_a_folder_is_text_or_a_path() -> None:
    assert parse_path("runs/a", where="load") == parse_path(Path("runs/a"), where="load") == Path("runs/a")
    for wrong in (None, 3, ["runs/a"], ""):
        with pytest.raises(Problem, match="load takes the path of a folder, not "):
            parse_path(wrong, where="load")


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"recipe": None}, "There is no recipe None; there are "),
        ({"out": None}, "train takes the path of a folder, not None"),
        ({"recipe": ["difformer"]}, r"There is no recipe \['difformer'\]; "),
        ({"preset": 3}, "difformer has no preset 3; there are "),
        ({"preset": []}, r"difformer has no preset \[\]; there are "),
        ({"changes": ["lr=1"]}, "as changes, takes settings by name"),
        ({"changes": []}, "as changes, takes settings by name"),
        ({"config": 5}, "as config, takes the path of a file, not 5"),
        ({"fields": "de"}, "names two columns, such as"),
        ({"resume": "no"}, "takes True or False as resume, not 'no'"),
        ({"display": 5}, "takes a Display as display, not 5"),
        (
            {"callbacks": noise2text.TrainingCallback()},
            r"takes a list of callbacks, not .*: give \[callback\]",
        ),
        ({"callbacks": [noise2text.TrainingCallback]}, "give an object of a class that extends"),
        ({"callbacks": [print]}, "takes callbacks such as noise2text.WandbLogger()"),
        ({"device": [1]}, r"There is no device \[1\] here"),
        ({"train": None}, "Pairs are a file, a list of rows"),
        (
            {"lr": 1e-3},
            r"as changes={\"optim.lr\": 1e-3}, and has no argument lr; it is the setting optim.lr",
        ),
        ({"batch_size": 4}, "no argument batch_size; a batch counts padded tokens, .*: set optim.max_tokens"),
        ({"epochs": 4}, "no argument epochs; training counts updates, not epochs: set optim.steps"),
        ({"learning_rate": 4}, "no argument learning_rate; it is called optim.lr"),
        ({"vaild": "x"}, "train has no argument vaild; did you mean valid"),
        ({"qqq": "x"}, "train has no argument qqq; there are recipe, train, valid, "),
        ({"recipe": "diformer", "lr": 1}, "train has no argument lr; there are recipe"),
    ],
)
def test_train_names_a_mistake_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], refusal: str
) -> None:
    monkeypatch.chdir(tmp_path)
    good: dict[str, Any] = {"recipe": "difformer", "train": [("a", "b"), ("b", "c")], "out": "run"}
    with pytest.raises(Problem, match=refusal):
        noise2text.train(**good | {"preset": "tiny", "device": "cpu"} | changed)
    assert not list(tmp_path.iterdir())


public: Any = noise2text  # so that a wrong type can be given
EMPTY: list[Any] = []


@pytest.fixture(scope="module")
def model() -> Any:  # so that a wrong type can be given
    return public.load("de-en", device="cpu", precision="float32")


FAST: dict[str, Any] = {"steps": 6, "length_beam": 1}


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        *[({"floor": floor}, "takes a number as floor, not ") for floor in (None, "x", EMPTY, True)],
        *[
            ({"indices": indices}, "takes a list of whole numbers as indices, one per text, not ")
            for indices in (5, "0", b"0", [1.5], ["0"], [None], {0}, {0: 0}, [[0]])
        ],
        ({"indices": [2**63]}, r"takes indices below 2\*\*63"),
        *[
            ({"selector": selector}, 'give the setting select, such as select="mbr"')
            for selector in ("mbr", "", 0, EMPTY, str, public.Selector)
        ],
        *[({"trace": trace}, "takes True or False as trace, not ") for trace in ("yes", None, 2, EMPTY)],
        ({"batch_size": 4}, "has no argument batch_size; it is called batch"),
        ({"num_return_sequences": 4}, "has no argument num_return_sequences; it is called n"),
        ({"progress": "bar"}, "takes True or False as progress, not 'bar'"),
        *[({"on_step": step}, "takes a function as on_step, not ") for step in ("", 0, EMPTY, "print")],
    ],
)
def test_generate_names_a_mistake(model: Any, wrong: dict[str, Any], refusal: str) -> None:
    with pytest.raises(Problem, match=f"^generate .*{refusal}"):
        model.generate(["Hallo."], **FAST | wrong)


@pytest.mark.parametrize(
    "texts", [("Hallo.", "Danke."), np.array(["Hallo.", "Danke."]), UserList(["Hallo.", "Danke."])]
)
def test_any_sequence_of_texts_will_do(model: Any, texts: Any) -> None:
    assert model.generate(texts, **FAST).texts == model.generate(["Hallo.", "Danke."], **FAST).texts
    assert model.generate(texts[:0], **FAST).texts == []


def test_values_of_numpy_are_those_of_python(model: Any) -> None:
    plain = model.generate(["Hallo."], **FAST, indices=[3], trace=True, floor=1.5, n=2, seed=1)
    array: dict[str, Any] = {
        "indices": np.array([3]),
        "trace": np.bool_(True),
        "floor": np.float32(1.5),
        "n": np.int64(2),
        "seed": np.int64(1),
    }
    assert model.generate(["Hallo."], **FAST, **array) == plain


@pytest.mark.parametrize("name", ["samples", "steps", "seed", "batch"])
def test_likelihood_bound_names_a_mistake(model: Any, name: str) -> None:
    for wrong in ("x", 1.5, EMPTY):
        with pytest.raises(Problem, match=f"likelihood_bound takes a whole number as {name}, not "):
            model.likelihood_bound(["a"], ["b"], **{name: wrong})


def test_likelihood_names_a_mistake(model: Any) -> None:
    for wrong in ({"batch": "x"}, {"per_token": "x"}):
        with pytest.raises(Problem, match="likelihood takes "):
            model.likelihood(["a"], ["b"], **wrong)


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        *[({"device": device}, "There is no device ") for device in ("", 1.5, EMPTY, True, "x" * 999)],
        *[({"precision": each}, "The precision is one of ") for each in (EMPTY, 5)],
        ({"revision": 5}, "A revision is the name of a branch, tag or commit, not 5"),
        ({"revision": "v1"}, "Only a model on the hub has revisions, and 'de-en' is none: leave it out"),
        *[
            ({"folder": name}, "There is no model folder ")
            for name in ("a" * 5000, f"{'a' * 5000}/b", "a\0b")
        ],
        ({"folder": ""}, "load takes the path of a folder, not ''"),
    ],
)
def test_load_names_a_mistake(wrong: dict[str, Any], refusal: str) -> None:
    with pytest.raises(Problem, match=refusal) as problem:
        public.load(**{"folder": "de-en"} | wrong)
    assert len(str(problem.value)) <= 500


def test_save_refuses_what_nothing_could_load(model: Any, tmp_path: Path) -> None:
    good: dict[str, Any] = {"model": model, "recipe": "difformer", "config": model.origin.config}
    for wrong, refusal in (
        ({"model": "de-en"}, "save takes a Model, not 'de-en'"),
        ({"recipe": "diformer"}, "There is no recipe 'diformer'; did you mean difformer"),
        ({"config": {}}, "save takes the config that the model was built with"),
    ):
        with pytest.raises(Problem, match=refusal):
            public.save(tmp_path / "model", **good | wrong)
    for card in ("MIT", [1], 5):
        with pytest.raises(Problem, match="card is a dict of fields"):
            model.save_pretrained(tmp_path / "model", card=card)
    with pytest.raises(Problem, match="A model on the hub has a name such as org/name, not 5"):
        model.push_to_hub(5)
    assert not list(tmp_path.iterdir())


def test_register_names_a_mistake() -> None:
    for wrong in (None, "difformer", public.Recipe):
        with pytest.raises(Problem, match="register takes a Recipe, not "):
            public.register(wrong)


def test_evaluate_names_a_mistake() -> None:
    for wrong in ("x", 1.5, EMPTY, None):
        with pytest.raises(Problem, match="evaluate takes a whole number as n_resamples, not "):
            public.evaluate(["a"], [["a"]], n_resamples=wrong)
    for references in (np.array([1]), [1], [np.array(["a"])[0]]):
        with pytest.raises(Problem, match="Sentence 1"):
            public.evaluate(["a"], references)
    with pytest.raises(Problem, match="The references are a list with one item per sentence"):
        public.evaluate(["a"], {"a": ["b"]})
    assert public.evaluate(["a"], np.array([["a"]]))["exact_match"]["score"] == 100


def test_a_tokenizer_names_a_mistake(tmp_path: Path) -> None:
    tokenizer: Any = learn_characters(["ab"])
    wrong: Any
    for wrong in ("ab", 5, [1], None):
        with pytest.raises(Problem, match=r"Tokenizer.encode takes a list of texts"):
            tokenizer.encode(wrong)
    for wrong in ("ab", 5, [1], [["a"]], [[-1]], [[2**40]]):
        with pytest.raises(Problem, match=r"Tokenizer.decode takes a list of token ids for each text"):
            tokenizer.decode(wrong)
    for wrong in ("ab", 5, ["a"]):
        with pytest.raises(Problem, match=r"Tokenizer.split takes a list of token ids"):
            tokenizer.split(wrong)
    for wrong in (None, 5, ""):
        with pytest.raises(Problem, match=r"Tokenizer.load takes the path of a file"):
            public.Tokenizer.load(wrong)
        with pytest.raises(Problem, match=r"Tokenizer.save takes the path of a file"):
            tokenizer.save(wrong)
    with pytest.raises(Problem, match="Tokenizer takes a Tokenizer, not 'de-en'"):
        public.Tokenizer("de-en")


def test_from_pretrained_gives_a_model_of_its_class() -> None:
    device = {"device": "cpu", "precision": "float32"}
    assert type(public.DiffusionModel.from_pretrained("de-en", **device)) is public.LengthPredictingModel
    with pytest.raises(Problem, match="The model de-en is a LengthPredictingModel, no AutoregressiveModel"):
        public.AutoregressiveModel.from_pretrained("de-en", **device)
