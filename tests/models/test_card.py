"""Model cards: what huggingface_hub reads in them is what the run measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

import noise2text
from noise2text.core.errors import Problem
from noise2text.models.card import MARK, CardScore, ModelFacts, make_card, update_head, write_card

from ..conftest import small_changes


def train(recipe: str, dates: Path, out: Path) -> Any:
    changes = small_changes(recipe, {} if recipe == "copy" else {"optim.steps": 2, "noise_factor": 2.0})
    return noise2text.train(
        recipe,
        train=dates / "train.jsonl",
        valid=dates / "valid.jsonl",
        out=out,
        device="cpu",
        preset="tiny" if recipe != "copy" else None,
        changes=changes,
    )


@pytest.mark.parametrize("recipe", ["difformer", "copy"])
def test_a_run_writes_a_card_with_its_own_scores(recipe: str, dates: Path, tmp_path: Path) -> None:
    train(recipe, dates, tmp_path / "run")
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert card.data.library_name == "noise2text"
    assert recipe in card.data.tags
    assert card.data.metrics == ["bleu", "exact_match"]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    (logged,) = [json.loads(line) for line in lines if "valid_bleu" in line]
    values = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert values == {"bleu": round(logged["valid_bleu"], 2), "exact_match": round(logged["valid_exact"], 2)}
    assert "tok:13a" in card.text
    assert "valid.jsonl" in card.text
    assert "noise2text.load(" in card.text


def facts(**changes: Any) -> ModelFacts:
    config = noise2text.list_recipes()["difformer"].preset("tiny")
    values: dict[str, Any] = {
        "name": "mine",
        "recipe": "difformer",
        "num_parameters": 12345,
        "vocabulary": 67,
        "config": config,
        "generation_config": config.generation,
    }
    return ModelFacts(**values | changes)


def test_a_card_without_scores_has_no_table_of_them() -> None:
    card = make_card(facts())
    assert "## Scores" not in card
    assert "model-index" not in card
    assert "12,345 parameters" in card


def test_what_the_user_says_is_in_the_head() -> None:
    head = {"license": "mit", "language": ["de", "en"], "datasets": ["tatoeba"]}
    score = CardScore("bleu", 12.5, "nrefs:1|tok:13a", "test.jsonl")
    for card in (make_card(facts(scores=[score]), head), update_head(make_card(facts(scores=[score])), head)):
        data: Any = ModelCard(card).data
        assert (data.license, data.language, data.datasets) == ("mit", ["de", "en"], ["tatoeba"])
        assert data.eval_results[0].metric_value == 12.5
        assert data.eval_results[0].metric_name == "nrefs:1|tok:13a"


def test_a_head_is_put_before_a_card_that_has_none() -> None:
    assert update_head("# mine\n", {"license": "mit"}) == "---\nlicense: mit\n---\n\n# mine\n"
    assert update_head("# mine\n", {}) == "# mine\n"
    with pytest.raises(Problem, match="not plain YAML"):
        update_head("---\na: [\n---\ntext", {"license": "mit"})


def test_a_card_that_someone_wrote_stays(tmp_path: Path) -> None:
    write_card(tmp_path, f"{MARK}\nfirst")
    write_card(tmp_path, f"{MARK}\nsecond")
    assert "second" in (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("my own")
    write_card(tmp_path, f"{MARK}\nthird")
    assert (tmp_path / "README.md").read_text() == "my own"
