"""Models of transformers as networks: the losses and texts are the library's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import AutoregressiveModel
from noise2text.models.pretrained_config import PretrainedConfig
from noise2text.models.registry import find_recipe
from noise2text.nn.autoregressive import AutoregressiveNetwork, shift_right

from ..folders import FAMILIES, SEQ2SEQ_FAMILIES, write_model_folder

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "1.1.99"]
TARGETS = ["1957-04-07", "2001-05-12", "99"]


def recipe_of(family: str) -> str:
    return "pretrained-causal" if family == "gpt2" else "pretrained-seq2seq"


def started(family: str, folder: Path, **changes: Any) -> tuple[PretrainedConfig, AutoregressiveModel]:
    """A config and its model, with the weights of a small model in this folder."""
    recipe = find_recipe(recipe_of(family))
    lengths = {"max_source": 40, "max_target": 16}
    config = recipe.preset().replace(
        lengths | changes, from_folder=str(write_model_folder(family, folder)), beam=1
    )
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    config = recipe.resolve(config, tokenizer)
    system = recipe.build(config, tokenizer)
    recipe.initialize(config, system)
    return config, system.eval()


def canvas_of(system: AutoregressiveModel) -> Canvas:
    sources, targets = (RaggedRows.from_lists(system.tokenizer.encode(texts)) for texts in (TEXTS, TARGETS))
    return system.layout.make_canvas(sources, targets)


def model_of(system: AutoregressiveModel) -> Any:
    """The library's network within a system."""
    return system.network.model


def library_loss(family: str, system: AutoregressiveModel, text: str, target: str) -> Tensor:
    """The library's own loss of one pair, laid out by hand: the mean over the target and its end."""
    tokenizer, model = system.tokenizer, model_of(system)
    x, y = (tokenizer.encode([each])[0] for each in (text, target))
    if family == "gpt2":
        line = torch.tensor([[*x, 0, *y, 0]])
        labels = line.clone()
        labels[:, : len(x) + 1] = -100
        loss: Tensor = model(input_ids=line, labels=labels).loss
        return loss
    framed = tokenizer._backend.encode(text).ids
    decoder_prefix = [tokenizer.bos] if family == "bart" else []
    labels = torch.tensor([[*decoder_prefix, *y, tokenizer.eos]])
    logits = model(input_ids=torch.tensor([framed]), labels=labels).logits
    logits, labels = logits[:, len(decoder_prefix) :, : len(tokenizer)], labels[:, len(decoder_prefix) :]
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_the_librarys_and_counts_the_targets_alone(family: str, tmp_path: Path) -> None:
    config, system = started(family, tmp_path)
    canvas = canvas_of(system)
    objective = find_recipe(recipe_of(family)).objective(config, system)
    token_loss = objective(canvas, None)["nll"]
    lengths = torch.tensor([len(target) + 1 for target in TARGETS])
    assert torch.equal(token_loss.mask.sum(1), lengths)
    ours = torch.where(token_loss.mask, token_loss.values, 0).sum(1) / lengths
    theirs = [library_loss(family, system, *pair).detach() for pair in zip(TEXTS, TARGETS, strict=True)]
    torch.testing.assert_close(ours.detach(), torch.stack(theirs), rtol=1e-4, atol=1e-4)
    scores = system.likelihood(TEXTS, TARGETS, per_token=True)
    assert scores == pytest.approx([-float(loss) for loss in theirs], abs=1e-3)
    bound = system.likelihood_bound(TEXTS, TARGETS)
    nats = sum(float(loss) * length for loss, length in zip(theirs, lengths.tolist(), strict=True))
    assert bound.is_exact
    assert bound.nats_per_token == pytest.approx(nats / lengths.sum().item(), abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_texts_are_the_librarys(family: str, tmp_path: Path) -> None:
    _, system = started(family, tmp_path)
    tokenizer, model = system.tokenizer, model_of(system)
    made = system.generate(TEXTS)
    for text, ours in zip(TEXTS, made.texts, strict=True):
        row = tokenizer._backend.encode(text).ids
        given: dict[str, Any] = {"input_ids": torch.tensor([row])}
        if family == "gpt2":
            given["input_ids"] = torch.tensor([[*row, tokenizer.bos]])
        if family == "bart":
            given["decoder_input_ids"] = torch.tensor([[tokenizer.eos, tokenizer.bos]])
        unused = list(range(len(tokenizer), model.config.vocab_size))
        output = model.generate(
            **given,
            attention_mask=torch.ones_like(given["input_ids"]),
            do_sample=False,
            num_beams=1,
            max_new_tokens=16,
            suppress_tokens=[*system.forbidden_tokens.tolist(), *unused],
            pad_token_id=tokenizer.pad,
            eos_token_id=tokenizer.eos,
        )[0].tolist()
        start = {"gpt2": len(row) + 1, "bart": 2}.get(family, 1)
        new = output[start:]
        new = new[: new.index(tokenizer.eos)] if tokenizer.eos in new else new
        assert ours == tokenizer.decode([new])[0]
    assert len(set(made.texts)) > 1


def stepped(network: AutoregressiveNetwork, canvas: Canvas, tokens: Tensor) -> Tensor:
    """The scores (B, L, V) of what follows each token, a step at a time, as the second of two hypotheses."""
    encoded = network.encode(canvas.source)
    cache = network.empty_cache(encoded, 2, length=tokens.shape[1])
    twice = torch.stack([torch.full_like(tokens, 5), tokens], dim=1)  # (B, 2, L)
    twice[..., 0] = tokens[:, None, 0]
    logits = []
    for place in range(tokens.shape[1]):
        position = torch.tensor([place])
        logits.append(
            network.step(twice[..., place], position, cache, encoded, cache_length=tokens.shape[1])[:, 1]
        )
        swap = torch.tensor([[1, 0]]).expand(len(tokens), 2)
        for _ in range(2):
            network.reorder(cache, swap)
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_steps_and_the_whole_agree(family: str, tmp_path: Path) -> None:
    _, system = started(family, tmp_path)
    canvas = canvas_of(system)
    tokens = shift_right(canvas.tokens, system.tokenizer.bos)
    whole = system.network(tokens, system.network.encode(canvas.source))
    torch.testing.assert_close(stepped(system.network, canvas, tokens), whole, rtol=1e-4, atol=1e-4)
    assert whole.shape[-1] == len(system.tokenizer)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hypothesis_goes_on_from_another(family: str, tmp_path: Path) -> None:
    _, system = started(family, tmp_path)
    network, canvas = system.network, canvas_of(system)
    with torch.no_grad():
        encoded = network.encode(canvas.source)
        cache = network.empty_cache(encoded, 2, length=3)
        first = torch.tensor([[9, 10]] * 3)
        network.step(first, torch.tensor([0]), cache, encoded, cache_length=3)
        network.reorder(cache, torch.tensor([[1, 1]] * 3))
        logits = network.step(torch.full((3, 2), 12), torch.tensor([1]), cache, encoded, cache_length=3)
        expected = network(torch.tensor([[10, 12]] * 3), encoded)[:, -1]
    for hypothesis in range(2):
        torch.testing.assert_close(logits[:, hypothesis], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("settings", [{"beam": 3}, {"samples": 3, "top_p": 0.9, "temperature": 1.3}])
def test_neither_the_batch_nor_padding_changes_a_text(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    _, system = started(family, tmp_path)
    together = system.generate(TEXTS, seed=3, **settings)
    alone = system.generate(TEXTS, seed=3, batch=1, **settings)
    assert together.candidates == alone.candidates
    assert all(len(candidates) == 3 for candidates in together.candidates)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_reach_every_trained_parameter(family: str, tmp_path: Path) -> None:
    config, system = started(family, tmp_path)
    objective = find_recipe(recipe_of(family)).objective(config, system)
    objective(canvas_of(system), None)["smoothed"].total().backward()
    for name, parameter in system.named_parameters():
        if not parameter.requires_grad:  # Marian's sinusoids
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("family", SEQ2SEQ_FAMILIES)
def test_the_frame_is_the_tokenizers(family: str, tmp_path: Path) -> None:
    _, system = started(family, tmp_path)
    source = system.layout.make_source(RaggedRows.from_lists(system.tokenizer.encode(TEXTS)))
    for row, padding, text in zip(source.tokens, source.padding, TEXTS, strict=True):
        assert row[~padding].tolist() == system.tokenizer._backend.encode(text).ids


def test_without_the_library_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from noise2text.nn.huggingface import import_transformers

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[pretrained\]'"):
        import_transformers()
