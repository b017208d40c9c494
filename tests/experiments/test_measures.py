"""What is measured is what the texts are."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from noise2text.data.corpus import Pair
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.experiments.measures import MEASURES, measure_model, measure_texts
from noise2text.metrics.evaluate import bleu
from noise2text.models.output import GenerationOutput
from noise2text.models.registry import find_recipe

from ..conftest import Make


def test_texts_first_candidates_lengths_and_speed(small: Make) -> None:
    pairs = [Pair("a", "2001-02-03"), Pair("b", "2001-02-04", ("2001-02-05",)), Pair("", "x")]
    made = GenerationOutput(
        texts=["2001-02-03", "2001-02-05", ""],
        candidates=[["1999-02-03", "2001-02-03"], ["2001-02-05", "2001-02-05"], []],
    )
    numbers, signatures = measure_texts(made, pairs, model=small(), requested_length=10, seconds=1.5)
    assert set(numbers) <= set(MEASURES)
    assert numbers["exact"] == pytest.approx(200 / 3)
    references = [pair.references for pair in pairs]
    assert (
        numbers["bleu_one_candidate"]
        == bleu(["1999-02-03", "2001-02-05", ""], references).score
        < numbers["bleu"]
    )
    assert numbers["length_match"] == pytest.approx(200 / 3)
    assert (numbers["decoding_seconds"], numbers["sentences_per_second"]) == (1.5, 2)
    assert "13a" in signatures["bleu"]
    assert (
        "length_match" not in measure_texts(made, pairs, model=small(), requested_length=None, seconds=1.0)[0]
    )


def test_a_model_is_measured_by_its_embeddings_and_its_factor(small: Make) -> None:
    model = small()
    config = find_recipe("difformer").preset("tiny").replace(noise_factor=2.5)
    numbers = measure_model(model, config, [Pair("x", "2001"), Pair("y", "1002")], {"training_seconds": 3.0})
    table = model.denoiser.embedding.vectors
    digits = [row[0] for row in model.tokenizer.encode(["0", "1", "2"])]
    cosines = [torch.cosine_similarity(table[a], table[b], dim=0) for a, b in combinations(digits, 2)]
    assert numbers == {
        "training_seconds": 3.0,
        "anisotropy": anisotropy(table),
        "target_anisotropy": pytest.approx(torch.stack(cosines).mean().item(), abs=1e-5),
        "noise_factor": 2.5,
    }
    assert set(measure_model(model, find_recipe("copy").preset("tiny"), [Pair("x", "1")], {})) == {
        "anisotropy"
    }
