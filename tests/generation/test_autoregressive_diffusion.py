"""What is written once never changes; every row ends, and the batch changes nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.data.layouts.joint import PairGenerationLayout
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.decoder import SourceBatch
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe

from ..conftest import Make, lively, shrunk

TEXTS = ["7 april", "12. mai 2001", "3 june"]
ROOM = 40  # positions of the canvas


def make(name: str, tokenizer: Tokenizer, **changes: Any) -> DiffusionModel:
    torch.manual_seed(0)
    sizes = {"max_source": 20, "max_target": ROOM - 23, "layers": 1}
    config = shrunk(find_recipe(name).preset("tiny"), **(sizes | changes))
    model: DiffusionModel = find_recipe(name).build(config, tokenizer)
    lively(model)
    return model


def favor(model: DiffusionModel, token: int) -> None:
    """Let the model write one token wherever it may."""
    bias = model.denoiser.embedding.bias
    assert bias is not None
    with torch.no_grad():
        bias[token] += 1e4


def count_sampling_runs(model: DiffusionModel, texts: list[str]) -> int:
    """How many rounds of sampling the longest text of the batch took."""
    return max(len(trace) for trace in model.generate(texts, steps=3, trace=True).traces) // 3


def test_a_fixed_token_never_changes(tokenizer: Tokenizer) -> None:
    model = make("diffuseq-autoregressive", tokenizer)
    rows = tokenizer.encode(TEXTS)
    decoder = model.build_decoder(dataclasses.replace(model.generation_config, steps=3, noise_beam=2))
    decoded = decoder.decode(SourceBatch(rows, [0, 1, 2]), trace=True)
    assert len(decoded) == len(rows)
    for candidates in decoded:
        assert len(candidates.steps) > 6
        assert len({tuple(step.clean[0]) for step in candidates.steps}) > 6  # the rounds do not agree
        for candidate, row in enumerate(candidates.tokens):
            for number, step in enumerate(candidates.steps):
                written = step.clean[candidate]
                assert written[: number // 3] == row[: number // 3]  # a token is fixed after three steps
            assert candidates.steps[-1].clean[candidate] == row


@pytest.mark.parametrize("template", ["___{1}", "19___{1}", "19___{1}-07"])
def test_with_one_token_to_write_it_is_plain_sampling(tokenizer: Tokenizer, template: str) -> None:
    model = make("diffuseq", tokenizer)
    plain, grown = (
        model.generate(TEXTS, steps=4, noise_beam=3, template=template, strategy=strategy)
        for strategy in ("parallel", "token-by-token")
    )
    assert grown.candidates == plain.candidates
    assert torch.allclose(torch.tensor(grown.scores), torch.tensor(plain.scores), atol=1e-6)


def test_what_predicts_its_length_is_sampled_so_too(small: Make) -> None:
    model = small()
    options: dict[str, Any] = {"steps": 3, "stop_early": 0, "noise_beam": 1, "length_beam": 2}
    grown = model.generate(TEXTS, strategy="token-by-token", trace=True, **options)
    plain = model.generate(TEXTS, **options)
    for one, other, trace in zip(grown.candidates, plain.candidates, grown.traces, strict=True):
        assert [len(text) for text in one] == [len(text) for text in other]
        assert [text[0] for text in one] == [text[0] for text in other]  # the first round is the same
        assert len(trace) == 3 * max(len(text) for texts in grown.candidates for text in texts)


@pytest.mark.parametrize("name", ["diffuseq-autoregressive", "word-by-word"])
def test_the_batch_changes_nothing(name: str, tokenizer: Tokenizer) -> None:
    model = make(name, tokenizer)
    together, apart = (model.generate(TEXTS, steps=3, noise_beam=2, batch=size) for size in (3, 1))
    assert together.candidates == apart.candidates
    assert torch.allclose(torch.tensor(together.scores), torch.tensor(apart.scores), atol=1e-5)


@pytest.mark.parametrize("name", ["diffuseq-autoregressive", "word-by-word"])
@pytest.mark.parametrize("mark", ["eos", "pad"])
def test_a_row_that_wrote_its_end_stops(name: str, mark: str, tokenizer: Tokenizer) -> None:
    model = make(name, tokenizer)
    favor(model, getattr(tokenizer, mark))
    made = model.generate(TEXTS, steps=3, trace=True)
    assert made.texts == [""] * 3
    assert count_sampling_runs(model, TEXTS) == 1


@pytest.mark.parametrize(("name", "gain"), [("diffuseq-autoregressive", 1), ("word-by-word", 6)])
def test_the_loop_ends_though_the_model_never_does(name: str, gain: int, tokenizer: Tokenizer) -> None:
    model = make(name, tokenizer)
    (letter,) = tokenizer.encode(["a"])[0]
    favor(model, letter)
    made = model.generate(TEXTS, steps=3)
    rooms = [ROOM - 2 - len(text) for text in TEXTS]
    assert made.texts == ["a" * room for room in rooms]
    assert count_sampling_runs(model, TEXTS) == -(-max(rooms) // gain)


def test_a_word_ends_at_padding_and_the_text_at_its_end(tokenizer: Tokenizer) -> None:
    """What was sampled is made up, so that the rule alone decides."""
    model = make("word-by-word", tokenizer)
    decoder: Any = model.build_decoder(model.generation_config)
    canvas = model.layout.make_empty_canvas(
        model.layout.make_source(RaggedRows.from_lists([[8, 9]])), torch.ones(1, 4), width=0
    )
    eos, pad = tokenizer.eos, tokenizer.pad
    written = [[20, 21, pad, 22, pad, eos], [20, eos, 21, 22, pad, 23], [pad, 20, 21, eos, 22, 23], [20] * 6]
    tokens = canvas.tokens.clone()
    tokens[:, 4:10] = torch.tensor(written)
    kept, finished = decoder.select_new_tokens(canvas, tokens)
    assert finished.tolist() == [False, True, True, False]
    grown = decoder.fix_tokens(canvas, tokens, kept, finished)
    assert model.layout.extract_targets(grown, grown.tokens) == [[20, 21], [20], [], [20] * 6]
    assert [(~row).sum().item() for row in grown.given] == [ROOM - 6, 0, 0, ROOM - 10]
    assert grown.padding[0].nonzero()[0].item() == 6 + 6  # the open window moves along


def test_a_separator_ends_the_source_of_a_pair_not_the_pair(tokenizer: Tokenizer) -> None:
    model = make("diffusion-lm", tokenizer)
    favor(model, tokenizer.sep)
    assert model.generate_pairs(2, source="7 m___", steps=2, strategy="token-by-token") == [("7 m", "")] * 2
    layout = PairGenerationLayout(
        **{f.name: getattr(model.layout, f.name) for f in dataclasses.fields(PairGenerationLayout)}
    )
    config = dataclasses.replace(model.generation_config, strategy="token-by-token")
    decoder: Any = dataclasses.replace(model.build_decoder(config), layout=layout)
    canvas = layout.make_empty_canvas(
        layout.make_source(RaggedRows.from_lists([[]] * 3)), torch.ones(3, 1), width=0
    )
    tokens = canvas.tokens.clone()
    tokens[:, 1] = torch.tensor([tokenizer.sep, tokenizer.eos, 20])
    assert decoder.select_new_tokens(canvas, tokens)[1].tolist() == [False, True, False]
