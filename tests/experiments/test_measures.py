"""What is measured is what the texts are."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.diffusion.schedules import AdjustableRescaled
from noise2text.experiments.arm_texts import GeneratedArm
from noise2text.experiments.measures import ArmTexts, TextMeasures, measure_model, measure_training
from noise2text.metrics.evaluate import bleu, evaluate, evaluate_diversity, find_metrics
from noise2text.models.registry import find_recipe

from ..conftest import Make

PAIRS = [Pair("a", "the cat sat on it"), Pair("b c", "a dog ran", ("one dog ran far",)), Pair("", "x")]
TEXTS = ArmTexts(
    texts=["the cat sat on mats", "one dog ran far", ""],
    candidates=[["a cat sat", "the cat sat on mats"], ["one dog ran far", "one dog ran far"], []],
)
REFERENCES = [pair.references for pair in PAIRS]


def test_every_metric_is_that_of_evaluate() -> None:
    names = ["bleu", "bleu-fairseq", "bleu-diffuseq", "rouge-l", "rouge-l-torchmetrics", "sari", "chrf"]
    numbers, signatures = TextMeasures(names).compute(TEXTS, PAIRS, {})
    metrics = find_metrics(",".join(names))
    found = evaluate(TEXTS.texts, REFERENCES, [pair.src for pair in PAIRS], metrics=metrics)
    for name in names:
        assert numbers[name] == found[name]["score"]
        assert signatures[name] == found[name]["signature"]
    assert numbers["exact_match"] == pytest.approx(100 / 3), "also where the table does not show it"
    assert numbers["empty_texts"] == pytest.approx(100 / 3)
    first = ["a cat sat", "one dog ran far", ""]
    assert numbers["bleu_one_candidate"] == bleu(first, REFERENCES).score < numbers["bleu"]
    assert "13a" in signatures["bleu"]


def test_diversity_is_of_the_candidates_or_of_samples_and_dist_1_of_the_texts() -> None:
    names = ("self_bleu", "div_4", "distinct", "dist_1", "words", "div_4_diffuseq")
    numbers, _ = TextMeasures(names).compute(TEXTS, PAIRS, {})
    expected = evaluate_diversity(TEXTS.candidates)
    assert {name: numbers[name] for name in ("self_bleu", "div_4", "distinct")} == {
        name: expected[name]["score"] for name in ("self_bleu", "div_4", "distinct")
    }
    of_texts = evaluate_diversity([[text] for text in TEXTS.texts])
    assert numbers["dist_1"] == of_texts["dist_1"]["score"]
    assert numbers["words"] == of_texts["words"]["score"] == 3
    same = replace(TEXTS, samples=[["one two three four"] * 3] * 3)
    numbers, _ = TextMeasures(names).compute(same, PAIRS, {})
    assert numbers["self_bleu"] == pytest.approx(100)
    assert numbers["div_4"] == numbers["div_4_diffuseq"] == pytest.approx(100 / 3)
    assert numbers["dist_1"] == of_texts["dist_1"]["score"]


def test_only_what_is_missing_is_computed() -> None:
    done = TextMeasures(["rouge-l"])
    more = TextMeasures(["rouge-l"], "chrf, div-4")
    numbers, signatures = more.compute(TEXTS, PAIRS, done.wanted)
    assert set(signatures) == {"chrf", "div_4"} <= set(numbers)
    assert more.added == ["chrf", "div_4"]
    assert done.wanted.items() < more.wanted.items()


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(Problem, match="no metric 'bleuu'"):
        TextMeasures([], "bleuu")
    with pytest.raises(Problem, match="bertscore=FOLDER"):
        TextMeasures([], "bertscore")


def test_a_model_has_one_score_per_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    wanted = TextMeasures(["bertscore"], f"bertscore={tmp_path}").wanted
    assert wanted["bertscore"] == f"bertscore={tmp_path}"
    assert "bertscore" not in TextMeasures(["bertscore"]).wanted


def test_the_last_logged_nll_counts() -> None:
    lines: list[dict[str, Any]] = [
        {"nll": 3.0, "nll_text": 4.0},
        {"loss": 1.0, "nll": 2.0, "nll_text": None},
        {"valid_bleu": 1.0},
    ]
    assert measure_training(lines) == {"nll": 2.0, "nll_text": 4.0}


def test_a_requested_length_is_counted_and_a_single_text_is_sampled_three_times(small: Make) -> None:
    model = small()
    settings = {"length": 4, "noise_beam": 1, "steps": 2}
    generated = GeneratedArm.generate(
        model, ["1 May 2001"] * 2, seed=0, batch=2, settings=settings, sample_settings=settings, num_samples=3
    )
    lengths = [len(row) for row in model.tokenizer.encode(generated.texts.texts)]
    assert generated.numbers["length_match"] == 100 * lengths.count(4) / 2
    seconds = generated.numbers["decoding_seconds"]
    assert generated.numbers["sentences_per_second"] == pytest.approx(2 / seconds)
    assert generated.texts.samples == [[own] * 3 for (own,) in generated.texts.candidates]


def test_a_model_is_measured_by_its_embeddings_and_its_factor(small: Make) -> None:
    model = small()
    config = find_recipe("difformer").preset("tiny").replace(noise_factor=2.5)
    numbers = measure_model(model, config, [Pair("x", "2001"), Pair("y", "1002")])
    table = model.denoiser.embedding.vectors
    digits = [row[0] for row in model.tokenizer.encode(["0", "1", "2"])]
    cosines = [torch.cosine_similarity(table[a], table[b], dim=0) for a, b in combinations(digits, 2)]
    assert numbers == {
        "parameters": sum(parameter.numel() for parameter in model.parameters()) / 1e6,
        "anisotropy": anisotropy(table),
        "target_anisotropy": pytest.approx(torch.stack(cosines).mean().item(), abs=1e-5),
        "noise_factor": 2.5,
    }
    assert set(measure_model(model, find_recipe("copy").preset("tiny"), [Pair("x", "1")])) == {
        "anisotropy",
        "parameters",
    }


def test_a_factor_that_was_searched_in_training_is_the_one_that_is_measured(small: Make) -> None:
    fixed, searched = small(), small(noise_factor_every=5)
    config = find_recipe("difformer").preset("tiny").replace(noise_factor=2.0)
    assert measure_model(fixed, config, PAIRS)["noise_factor"] == 2.0
    assert isinstance(searched.training_schedule, AdjustableRescaled)
    searched.training_schedule.factor.fill_(4.5)
    assert measure_model(searched, config, PAIRS)["noise_factor"] == 4.5
