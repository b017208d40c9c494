"""The shipped model translates, is small, says where it comes from, and yields to a folder of its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import noise2text
from noise2text.core.errors import Problem
from noise2text.core.weights_file import open_weights
from noise2text.models import LengthPredictingModel
from noise2text.models.folder import load_config
from noise2text.models.shipped import find_model_folder, list_shipped_models

SOURCES = ["Der Hund schläft unter dem Tisch.", "Ich habe gestern ein gutes Buch gelesen."]
TARGETS = [
    {"The dog is sleeping under the table.", "The dog sleeps under the table."},
    {"I read a good book yesterday.", "Yesterday I read a good book."},
]


def test_the_shipped_model_translates_sentences_that_were_written_for_this_test() -> None:
    made = noise2text.load("de-en", device="cpu").generate(SOURCES, seed=0)
    assert all(text in right for text, right in zip(made.texts, TARGETS, strict=True))
    assert len(made.candidates[0]) == 3


def test_its_candidates_count_by_how_likely_it_finds_them() -> None:
    model, question = noise2text.load("de-en", device="cpu"), ["Wo ist der nächste Bahnhof?"]
    assert isinstance(model, LengthPredictingModel)
    made = model.generate(question)
    assert made.texts == model.generate(question, select="weighted-mbr").texts
    means = model.likelihood(question * 3, made.candidates[0], per_token=True)
    best = made.scores[0].index(max(made.scores[0]))
    assert best == means.index(max(means))
    assert made.scores[0][best] == pytest.approx(means[best], abs=0.3)  # one is in int8
    assert made.scores[0] != model.generate(question, select="mbr").scores[0]


def test_its_length_can_be_chosen() -> None:
    model = noise2text.load("de-en", device="cpu")
    words = [len(model.generate(SOURCES[:1], length=length).texts[0].split()) for length in (4, 8, 12)]
    assert words == sorted(set(words))


def test_it_has_checksums() -> None:
    with open_weights(find_model_folder("de-en") / "model.safetensors") as weights:
        assert weights.checksums.keys() == {"tensors", "config.json", "tokenizer.json"}


def test_it_is_small_enough_to_live_in_a_repository() -> None:
    size = sum(path.stat().st_size for path in find_model_folder("de-en").iterdir())
    assert size <= 64 * 2**20


def test_its_card_names_the_data_the_license_and_the_scores() -> None:
    card = (find_model_folder("de-en") / "README.md").read_text(encoding="utf-8")
    for needed in ("Tatoeba", "Europarl", "CC BY 2.0 FR", "BLEU", "cannot"):
        assert needed in card
    config = json.loads((find_model_folder("de-en") / "config.json").read_text())["config"]
    assert f"{config['optim']['steps']:,} steps" in card


def test_a_folder_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model_folder("de-en").is_absolute()
    (tmp_path / "de-en").mkdir()
    assert find_model_folder("de-en") == Path("de-en")


def test_an_unknown_name_is_answered_with_what_there_is() -> None:
    assert list_shipped_models() == ["de-en"]
    with pytest.raises(Problem, match="comes with the package: de-en"):
        load_config(Path("summaries"))
    with pytest.raises(Problem, match="did you mean de-en"):
        load_config(Path("de-em"))


def test_what_was_saved_under_an_older_name_is_read(tmp_path: Path) -> None:
    shipped = find_model_folder("de-en")
    contents = json.loads((shipped / "config.json").read_text())
    del contents["config"]["data"]["normalize"]
    contents["config"]["data"]["normalise"] = True
    contents["config"]["model"]["network"] = "published"
    (tmp_path / "config.json").write_text(json.dumps(contents))
    generation = (shipped / "generation_config.json").read_text()
    assert '"preprocess": "sentences' in generation
    (tmp_path / "generation_config.json").write_text(generation.replace('"preprocess"', '"prepare"'))
    _, config = load_config(tmp_path)
    assert config == load_config(shipped)[1].replace({"data.normalize": True, "model.network": "released"})
