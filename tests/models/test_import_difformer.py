"""Checkpoints in the layout of Difformer's released code compute here what they compute there.

There is written out below by the names of fairseq's modules, around torch's own multi-head attention.
"""

from __future__ import annotations

import argparse
import math
import sys
import types
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

import noise2text
from noise2text.cli import app
from noise2text.core.errors import Problem
from noise2text.data.ragged import RaggedRows
from noise2text.models import LengthPredictingModel
from noise2text.models.import_difformer import import_difformer
from noise2text.nn.length_predictor import top_lengths

WORDS = ["das", "ist", "ver@@", "rückt", "ein", "haus", *(f"madeupword{n:04d}" for n in range(2))]
VOCABULARY, LATENT, STATES, HEADS, FFN, LAYERS, POSITIONS = len(WORDS) + 4, 12, 32, 4, 40, 2, 24
STEPS, FACTOR, PAD = 2000, 4.0, 1


class Attention(nn.Module):
    """fairseq's MultiheadAttention, computed by torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(STATES, STATES) for _ in range(4))

    def forward(self, x: Tensor, other: Tensor, padding: Tensor) -> Tensor:
        parts = (self.q_proj, self.k_proj, self.v_proj)
        output, _ = functional.multi_head_attention_forward(
            x.transpose(0, 1),
            other.transpose(0, 1),
            other.transpose(0, 1),
            STATES,
            HEADS,
            torch.cat([part.weight for part in parts]),
            torch.cat([part.bias for part in parts]),
            None,
            None,
            False,
            0.0,
            self.out_proj.weight,
            self.out_proj.bias,
            training=False,
            key_padding_mask=padding,
        )
        return output.transpose(0, 1)


class Layer(nn.Module):
    """A post-norm layer of fairseq's; the decoder's also attend to the source."""

    def __init__(self, *, has_source: bool) -> None:
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attention(), nn.LayerNorm(STATES)
        if has_source:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(), nn.LayerNorm(STATES)
        self.fc1, self.fc2 = nn.Linear(STATES, FFN), nn.Linear(FFN, STATES)
        self.final_layer_norm = nn.LayerNorm(STATES)

    def forward(self, x: Tensor, padding: Tensor, *source: Tensor) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, x, padding))
        if source:
            x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, *source))
        output: Tensor = self.final_layer_norm(x + self.fc2(self.fc1(x).relu()))
        return output


class Side(nn.Module):
    """What the encoder and the decoder have in common."""

    def __init__(self, embed_tokens: nn.Embedding, *, has_source: bool) -> None:
        super().__init__()
        self.register_buffer("version", torch.tensor([3.0]))
        self.embed_tokens = embed_tokens
        self.project_in_dim = nn.Linear(LATENT, STATES, bias=False)
        self.embed_positions = nn.Embedding(POSITIONS + PAD + 1, STATES, PAD)
        self.layers = nn.ModuleList(Layer(has_source=has_source) for _ in range(LAYERS))

    def positions(self, padding: Tensor) -> Tensor:
        numbers: Tensor = (~padding).long().cumsum(1) * ~padding + PAD
        found: Tensor = self.embed_positions(numbers)
        return found


class Decoder(Side):
    """What only the decoder has."""

    def __init__(self, embed_tokens: nn.Embedding) -> None:
        super().__init__(embed_tokens, has_source=True)
        self.project_out_dim = nn.Linear(STATES, LATENT, bias=False)
        self.output_projection = nn.Linear(LATENT, VOCABULARY, bias=False)
        self.output_projection.weight = embed_tokens.weight
        self.embed_length = nn.Embedding(256, STATES)
        self.embed_norm = nn.LayerNorm(STATES)
        self.self_cond_proj = nn.Sequential(
            nn.Linear(2 * STATES, STATES), nn.ReLU(), nn.Linear(STATES, STATES), nn.Dropout(0.3)
        )
        self.embed_time = nn.Sequential(
            nn.Linear(STATES, 4 * STATES), nn.ReLU(), nn.Linear(4 * STATES, STATES)
        )


class ReleasedNetwork(nn.Module):
    """The modules of that code's network, by its names, and what it does with them."""

    def __init__(self) -> None:
        super().__init__()
        table = nn.Embedding(VOCABULARY, LATENT, PAD)
        self.encoder, self.decoder = Side(table, has_source=False), Decoder(table)

    def encode(self, tokens: Tensor) -> Tensor:
        padding = tokens == PAD
        z0 = math.sqrt(LATENT) * self.encoder.embed_tokens(tokens)
        x = self.encoder.project_in_dim(z0) + self.encoder.positions(padding)
        for layer in self.encoder.layers:
            x = layer(x, padding)
        return x

    def length_scores(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The lengths of the targets' 256 classes, begin and end included, and their log-probabilities."""
        visible = (tokens != PAD)[..., None]
        pooled = (self.encode(tokens) * visible).sum(1) / visible.sum(1)
        scores = (pooled @ self.decoder.embed_length.weight.T).log_softmax(-1)
        return torch.arange(256) - 128 + visible.sum(1), scores

    def forward(self, z: Tensor, t: Tensor, padding: Tensor, source: Tensor, last: Tensor) -> Tensor:
        decoder = self.decoder
        both = torch.cat([decoder.project_in_dim(z), decoder.project_in_dim(last)], -1)
        angles = t[:, None] * torch.exp(-math.log(10_000) * torch.arange(STATES // 2) / (STATES // 2))
        time = decoder.embed_time(torch.cat([angles.cos(), angles.sin()], -1))
        x = decoder.embed_norm(decoder.self_cond_proj(both) + time[:, None] + decoder.positions(padding))
        encoded = self.encode(source)
        for layer in decoder.layers:
            x = layer(x, padding, encoded, source == PAD)
        output: Tensor = decoder.project_out_dim(x)
        return output


ARGUMENTS = {
    "arch": "difformer_iwslt_de_en",
    "source_lang": "de",
    "target_lang": "en",
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "dropout": 0.3,
    "diffusion_steps": STEPS,
    "noise_schedule": "sqrt",
    "rescaling_factor": FACTOR,
    "activation_fn": "relu",
    **dict.fromkeys(("embed_norm", "embed_norm_affine", "self_cond", "rescale_timesteps"), True),
    **dict.fromkeys(("pred_length_offset", "share_all_embeddings"), True),
    **dict.fromkeys(("encoder_learned_pos", "decoder_learned_pos"), True),
}


def save_with_enum(state: dict[str, Any], known: argparse.Namespace, file: Path) -> None:
    """Save with a value that that code leaves among its arguments, of a class that only its package has."""
    modules = types.ModuleType("difformer.modules")
    EmbedNormPosition = Enum(
        "EmbedNormPosition", "NO_EMBED_NORM BEFORE_PROJ AFTER_PROJ", module="difformer.modules"
    )
    modules.EmbedNormPosition = EmbedNormPosition  # type: ignore[attr-defined]
    known.embed_norm_position = EmbedNormPosition["AFTER_PROJ"]
    with mock.patch.dict(
        sys.modules, {"difformer": types.ModuleType("difformer"), "difformer.modules": modules}
    ):
        torch.save(state, file)


def write_run(folder: Path, *, as_cfg: bool = False, **arguments: Any) -> ReleasedNetwork:
    """A run's folder with one checkpoint in half precision and its dictionaries, and its network."""
    torch.manual_seed(0)
    network = ReleasedNetwork().eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2)  # no bias is zero, so none can be forgotten
    network.half().float()
    known = argparse.Namespace(**(ARGUMENTS | arguments))
    counts = {"_bleu_counts": np.arange(4), "loss": np.float64(2.5)}
    state = {
        "model": {name: tensor.half() for name, tensor in network.state_dict().items()},
        "args": None if as_cfg else known,
        "cfg": {"model": known, "task": {"data": "data-bin"}} if as_cfg else None,
        "extra_state": {"metrics": counts, "val_loss": 1.0},
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(3)}}},
    }
    folder.mkdir(exist_ok=True)
    save_with_enum(state, known, folder / "checkpoint_best.pt")
    for language in ("de", "en"):
        lines = "".join(f"{word} {9 - number}\n" for number, word in enumerate(WORDS))
        (folder / f"dict.{language}.txt").write_text(lines, "utf-8")
    return network


Imported = tuple[ReleasedNetwork, LengthPredictingModel]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = tmp_path_factory.mktemp("difformer")
    network = write_run(folder / "old")
    import_difformer(folder / "old", folder / "new")
    model = noise2text.load(folder / "new", device="cpu", precision="float32")
    assert isinstance(model, LengthPredictingModel)
    return network, model


def rows_of(model: LengthPredictingModel, *texts: str) -> RaggedRows:
    return RaggedRows.from_lists(model.tokenizer.encode(texts))


def test_the_imported_network_computes_what_the_released_one_does(imported: Imported) -> None:
    network, model = imported
    sources = rows_of(model, "das ist ver@@ rückt", "haus")
    canvas = model.layout.make_canvas(sources, rows_of(model, "ein", "das ist ein haus"))
    z, last = torch.randn(2, 2, 6, LATENT)
    step = torch.tensor([3, 1999])  # the released index; time t is (index + 1) / T
    level = model.schedule((step + 1) / STEPS, length=1)
    encoded, constraint = model.denoiser.encode(canvas.source), model.denoiser.constrain(canvas)
    with torch.no_grad():
        ours = model.denoiser(z, level, encoded, constraint, last).z0
        theirs = network(z, step * 1000 / STEPS, canvas.padding, canvas.source.tokens, last)
    assert torch.allclose(ours[~canvas.padding], theirs[~canvas.padding], atol=2e-5)
    assert theirs[~canvas.padding].std() > 0.1


def test_rounding_and_embedding_are_those_of_the_shared_table(imported: Imported) -> None:
    network, model = imported
    x, tokens = torch.randn(5, LATENT), torch.arange(VOCABULARY)
    assert torch.allclose(model.denoiser.embedding.logits(x), network.decoder.output_projection(x), atol=1e-5)
    theirs = math.sqrt(LATENT) * network.decoder.embed_tokens(tokens)
    assert torch.allclose(model.denoiser.embedding.embed(tokens), theirs)


def test_lengths_are_those_of_the_released_classes(imported: Imported) -> None:
    network, model = imported
    source = model.layout.make_source(rows_of(model, "das ist ver@@ rückt", "haus", "ein haus"))
    with torch.no_grad():
        lengths, scores = model.lengths.propose(model.denoiser.encode(source), 5, top_lengths)
        their_lengths, their_scores = network.length_scores(source.tokens)
    possible = their_scores.masked_fill((their_lengths < 3) | (their_lengths > POSITIONS), -torch.inf)
    best = possible.topk(5, dim=1)
    assert torch.allclose(scores, best.values, atol=1e-5)
    assert (lengths + 2).tolist() == their_lengths.gather(1, best.indices).tolist()


def test_the_canvas_is_that_of_the_released_code(imported: Imported) -> None:
    """Begin and end around both texts, all of them noised; lengths are those of the texts."""
    _, model = imported
    canvas = model.layout.make_canvas(rows_of(model, "das ist", "haus"), rows_of(model, "ein", "ein haus"))
    assert canvas.source.tokens.tolist() == [[0, 4, 5, 2], [0, 9, 2, 1]]
    assert canvas.tokens.tolist() == [[0, 8, 2, 1], [0, 8, 9, 2]]
    assert not canvas.given.any()
    assert (~canvas.padding).tolist() == canvas.scored.tolist() == [[True] * 3 + [False], [True] * 4]
    assert model.layout.extract_targets(canvas, canvas.tokens) == [[8], [8, 9]]
    empty = model.layout.make_empty_canvas(canvas.source, torch.tensor([[1], [2]]), width=2)
    assert empty.padding.tolist() == canvas.padding.tolist()
    assert model.layout.locate_targets(empty, canvas.tokens) == [slice(1, 2), slice(1, 3)]


def test_an_imported_model_generates(imported: Imported) -> None:
    _, model = imported
    output = model.generate(["das ist ver@@ rückt", "haus"], steps=3, noise_beam=2, trace=True)
    assert len(output.texts) == 2
    assert not {"<s>", "</s>", "<pad>", "@@"} & set(" ".join(output.texts).split())
    assert model.generate(["haus"], steps=2, length=3, template="ein ___ haus").texts[0].endswith("haus")


def test_the_longest_text_fits(imported: Imported) -> None:
    _, model = imported
    assert (model.max_source, model.max_target) == (POSITIONS - 2, POSITIONS - 2)
    assert model.generate(["haus " * 99], steps=2, length=POSITIONS - 2).texts


@pytest.mark.parametrize("as_cfg", [False, True])
def test_the_command_imports(as_cfg: bool, tmp_path: Path) -> None:
    """Arguments are in `args`, and since fairseq 0.11 in `cfg`."""
    write_run(tmp_path / "old", as_cfg=as_cfg)
    paths = [str(tmp_path / "old" / "checkpoint_best.pt"), str(tmp_path / "new")]
    done = CliRunner().invoke(app, ["convert", "--from", "difformer", *paths])
    assert done.exit_code == 0, done.output
    model = noise2text.load(tmp_path / "new", device="cpu")
    assert isinstance(model, LengthPredictingModel)
    assert model.generation_config.lengths == "around"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"self_cond": False}, "--self-cond is False; only True can be imported"),
        ({"embed_norm_before_proj": True}, "--embed-norm-before-proj is True"),
        ({"noise_schedule": "edm"}, "--noise-schedule is edm; one of"),
        ({"arch": "transformer_iwslt_de_en"}, "is a transformer_iwslt_de_en"),
        ({"source_lang": "fr", "target_lang": "it"}, "has no dict.fr.txt"),
        ({"encoder_attention_heads": 2}, "not as many heads"),
        ({"diffusion_steps": "many"}, "diffusion_steps|num_timesteps"),
        ({"diffusion_steps": 10**9}, "num_timesteps may be 16,777,216"),
        ({"diffusion_steps": 10**40}, "num_timesteps|below"),
        ({"encoder_attention_heads": 0, "decoder_attention_heads": 0}, "heads|checkpoint_best.pt"),
        ({"arch": 5}, "has not the arguments and weights of a run"),
        ({"noise_schedule": ["sqrt"]}, "has not the arguments and weights of a run"),
    ],
)
def test_what_cannot_be_imported_is_named(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_run(tmp_path / "old", **arguments)
    with pytest.raises(Problem, match=message):
        import_difformer(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "new").exists()


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("code of the checkpoint ran",))


@pytest.mark.parametrize("place", ["args", "model", "extra_state"])
def test_a_checkpoint_that_would_run_code_is_refused(place: str, tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "old")
    file = tmp_path / "old" / "checkpoint_best.pt"
    torch.save({"args": argparse.Namespace(), "model": {}, "extra_state": {}} | {place: Evil()}, file)
    with pytest.raises(Problem, match=r"best\.pt holds a '\S*print', which is not read"):
        import_difformer(tmp_path / "old", tmp_path / "new")
    assert "ran" not in capsys.readouterr().out


def test_a_weight_of_repeated_numbers_is_refused(tmp_path: Path) -> None:
    """A file of a kilobyte could otherwise ask for any amount of memory."""
    write_run(tmp_path / "old")
    file = tmp_path / "old" / "checkpoint_best.pt"
    repeated = torch.zeros(1).half().expand(10**7, 10**4)
    torch.save({"args": argparse.Namespace(), "model": {"encoder.embed_tokens.weight": repeated}}, file)
    with pytest.raises(Problem, match=r"has fewer numbers than its weight 'encoder\.embed_tokens\.weight'"):
        import_difformer(tmp_path / "old", tmp_path / "new")


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_checkpoint_is_a_problem_or_a_model(seed: int, tmp_path: Path) -> None:
    write_run(tmp_path / "old")
    file = tmp_path / "old" / "checkpoint_best.pt"
    changed, random = bytearray(file.read_bytes()), np.random.default_rng(seed)
    for place in random.integers(len(changed) // 20, size=9):  # the beginning has the pickle
        changed[place] = random.integers(256)
    file.write_bytes(changed)
    try:
        import_difformer(tmp_path / "old", tmp_path / "new")
    except Problem:  # and nothing else
        assert not (tmp_path / "new").exists()
    else:
        assert len(noise2text.load(tmp_path / "new", device="cpu").generate(["das"], steps=1).texts) == 1


def test_a_checkpoint_without_its_weights_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "old")
    file = tmp_path / "old" / "checkpoint_best.pt"
    model = {name: torch.zeros(VOCABULARY, 2) for name in ("encoder.embed_tokens.weight",)}
    model |= {f"decoder.{name}.weight": torch.zeros(2, 2) for name in ("embed_length", "project_in_dim")}
    torch.save({"args": argparse.Namespace(**ARGUMENTS), "model": model}, file)
    with pytest.raises(Problem, match="has not the arguments and weights of a run"):
        import_difformer(tmp_path / "old", tmp_path / "new")
    torch.save({"args": argparse.Namespace(**ARGUMENTS), "model": {}}, file)
    with pytest.raises(Problem, match=r"has no encoder\.embed_tokens\.weight"):
        import_difformer(tmp_path / "old", tmp_path / "new")
    write_run(tmp_path / "other")
    (tmp_path / "other" / "dict.en.txt").write_text("das 1\n")
    with pytest.raises(Problem, match="only a joined dictionary"):
        import_difformer(tmp_path / "other", tmp_path / "new")
