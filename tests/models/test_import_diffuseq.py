"""Checkpoints in the layout of DiffuSeq's released code compute here what they compute there.

There is written out below, around the BERT encoder of transformers, which that code uses, too.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import noise2text
from noise2text.cli import app
from noise2text.core.errors import Problem
from noise2text.data.ragged import RaggedRows
from noise2text.models import DiffusionModel
from noise2text.models.import_diffuseq import import_diffuseq
from noise2text.nn.denoiser import Constraint

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
SEQ_LEN, STEPS, HIDDEN, STATES = 24, 2000, 12, 128


class ReleasedNetwork(nn.Module):
    """The modules of that code's network, by its names, and what it does with them."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertEncoder

        bert = BertConfig(
            hidden_size=STATES, num_hidden_layers=2, num_attention_heads=2, intermediate_size=80
        )
        bert._attn_implementation = "eager"
        self.word_embedding = nn.Embedding(len(WORDS), HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, len(WORDS))
        self.lm_head.weight = self.word_embedding.weight
        self.time_embed = nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, STATES))
        self.input_up_proj = nn.Sequential(nn.Linear(HIDDEN, STATES), nn.Tanh(), nn.Linear(STATES, STATES))
        self.input_transformers = BertEncoder(bert)
        self.register_buffer("position_ids", torch.arange(512)[None])
        self.position_embeddings = nn.Embedding(512, STATES)
        self.LayerNorm = nn.LayerNorm(STATES, eps=1e-12)
        self.output_down_proj = nn.Sequential(nn.Linear(STATES, STATES), nn.Tanh(), nn.Linear(STATES, HIDDEN))

    def forward(self, x: Tensor, timesteps: Tensor) -> Tensor:
        angles = timesteps[:, None] * torch.exp(-math.log(10_000) * torch.arange(64) / 64)
        time = self.time_embed(torch.cat([angles.cos(), angles.sin()], -1))
        positions = self.position_embeddings(torch.arange(x.shape[1]))
        states = self.LayerNorm(self.input_up_proj(x) + positions + time[:, None])
        output: Tensor = self.output_down_proj(self.input_transformers(states).last_hidden_state)
        return output


def write_run(folder: Path, **arguments: Any) -> ReleasedNetwork:
    """A run's folder with one checkpoint, and its network."""
    torch.manual_seed(0)
    network = ReleasedNetwork().eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)  # no bias is zero, so none can be forgotten
    folder.mkdir(exist_ok=True)
    averaged = network.state_dict()
    averaged["word_embedding.weight"] = averaged["word_embedding.weight"] + 1  # the head is not averaged
    torch.save(averaged, folder / "ema_0.9999_050000.pt")
    torch.save({}, folder / "ema_0.9999_010000.pt")
    known = {"seq_len": SEQ_LEN, "diffusion_steps": STEPS, "noise_schedule": "sqrt", "hidden_t_dim": 128}
    known |= {"predict_xstart": True, "learn_sigma": False, "rescale_timesteps": True, "vocab": "bert"}
    (folder / "training_args.json").write_text(json.dumps(known | arguments))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    return network


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReleasedNetwork, DiffusionModel]:
    folder = tmp_path_factory.mktemp("diffuseq")
    network = write_run(folder / "old")
    import_diffuseq(folder / "old", folder / "new")
    model = noise2text.load(folder / "new", device="cpu", precision="float32")
    assert isinstance(model, DiffusionModel)
    return network, model


def test_the_imported_network_computes_what_the_released_one_does(
    imported: tuple[ReleasedNetwork, DiffusionModel],
) -> None:
    network, model = imported
    rows = RaggedRows.from_lists(model.tokenizer.encode(["abc de", "h"]))
    canvas = model.layout.make_canvas(rows, rows)
    x = torch.randn(2, SEQ_LEN, HIDDEN)
    step = torch.tensor([3, 1999])  # the released index; time t is (index + 1) / T
    level = model.schedule((step + 1) / STEPS, length=1)
    nothing = torch.zeros_like(canvas.given)
    free = Constraint(torch.zeros_like(x), nothing, nothing)  # no position is given
    encoded = model.denoiser.encode(canvas.source)
    with torch.no_grad():
        ours = model.denoiser(x, level, encoded, free, None).z0
        theirs = network(x, step * 1000 / STEPS)
    assert torch.allclose(ours, theirs, atol=2e-5)


def test_rounding_is_that_of_the_head_as_the_released_code_loads_it(
    imported: tuple[ReleasedNetwork, DiffusionModel],
) -> None:
    network, model = imported
    x = torch.randn(5, HIDDEN)
    assert torch.allclose(model.denoiser.embedding.logits(x), network.lm_head(x), atol=1e-5)


def test_the_canvas_is_that_of_the_released_code(imported: tuple[ReleasedNetwork, DiffusionModel]) -> None:
    """BERT's special tokens around both texts, and one more separator between them."""
    _, model = imported
    source, target = (RaggedRows.from_lists(model.tokenizer.encode([text])) for text in ("ab c", "de"))
    canvas = model.layout.make_canvas(source, target)
    given = ["[CLS]", "a", "##b", "c", "[SEP]", "[SEP]", "[CLS]"]
    padding = ["[PAD]"] * (SEQ_LEN - len(given) - 3)
    assert [WORDS[token] for token in canvas.tokens[0]] == [*given, "d", "##e", "[SEP]", *padding]
    assert canvas.given[0].sum() == len(given)
    assert model.layout.extract_targets(canvas, canvas.tokens) == model.tokenizer.encode(["de"])
    longest = RaggedRows.from_lists([[5] * (SEQ_LEN - 5 - 2)])
    assert model.layout.make_canvas(longest, target).tokens.shape == (1, SEQ_LEN)


def test_an_imported_model_generates(imported: tuple[ReleasedNetwork, DiffusionModel]) -> None:
    _, model = imported
    assert len(model.generate(["abc", "de"], steps=2, noise_beam=1).texts) == 2
    assert "[" not in "".join(model.generate(["abc", "de"], steps=2, noise_beam=1).texts)


def test_the_command_imports(tmp_path: Path) -> None:
    write_run(tmp_path / "old")
    paths = [str(tmp_path / "old" / "ema_0.9999_050000.pt"), str(tmp_path / "new")]
    done = CliRunner().invoke(app, ["convert", "--from", "diffuseq", *paths])
    assert done.exit_code == 0, done.output
    assert noise2text.load(tmp_path / "new", device="cpu").layout.width == SEQ_LEN  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"predict_xstart": False}, "predict_xstart is False; only True can be imported"),
        ({"noise_schedule": "cosine"}, "noise_schedule is cosine"),
        ({"seq_len": "long"}, "training_args.json is missing or lacks"),
        ({"seq_len": 600}, "does not fit its training_args.json"),
        ({"seq_len": 2}, "max_source|max_target|does not fit"),
        ({"seq_len": math.inf}, "training_args.json is missing or lacks"),
        ({"seq_len": 10**12}, "training_args.json"),
        ({"diffusion_steps": 10**9}, "num_timesteps may be 16,777,216"),
        ({"diffusion_steps": 10**40}, "num_timesteps|below"),
        ({"dropout": {}}, "does not fit its training_args.json"),
        ({"predict_xstart": "x" * 10**6}, "predict_xstart is xxx"),
    ],
)
def test_what_cannot_be_imported_is_named(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_run(tmp_path / "old", **arguments)
    with pytest.raises(Problem, match=message):
        import_diffuseq(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "new").exists()


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("code of the checkpoint ran",))


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "old")
    torch.save({"word_embedding.weight": Evil()}, tmp_path / "old" / "ema_0.9999_060000.pt")
    with pytest.raises(Problem, match=r"060000\.pt holds a '\S*print', which is not read"):
        import_diffuseq(tmp_path / "old", tmp_path / "new")
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("training_args.json", "[" * 100_000),
        ("training_args.json", "[1, 2]"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("vocab.txt", "\udcff"),
    ],
)
def test_a_damaged_file_beside_the_checkpoint_is_named(name: str, contents: str, tmp_path: Path) -> None:
    write_run(tmp_path / "old")
    (tmp_path / "old" / name).write_text(contents, errors="surrogateescape")
    with pytest.raises(Problem, match=name):
        import_diffuseq(tmp_path / "old", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_weights_that_describe_a_far_larger_network_are_refused_before_it_is_built(tmp_path: Path) -> None:
    """Each name of a layer costs an attacker a few bytes, and would cost the reader a whole layer."""
    write_run(tmp_path / "old")
    path = tmp_path / "old" / "ema_0.9999_050000.pt"
    weights = torch.load(path)
    for number in range(900):
        weights[f"input_transformers.layer.{number}.x"] = torch.zeros(1)
    weights["input_transformers.layer.0.intermediate.dense.weight"] = torch.zeros(10**6, 0)
    torch.save(weights, path)
    with pytest.raises(Problem, match="far larger network than its weights"):
        import_diffuseq(tmp_path / "old", tmp_path / "new")


def test_a_checkpoint_without_a_layer_is_one_sentence(tmp_path: Path) -> None:
    write_run(tmp_path / "old")
    path = tmp_path / "old" / "ema_0.9999_050000.pt"
    weights = torch.load(path)
    for name in list(weights):
        if name.startswith("input_transformers.layer.0."):
            del weights[name]
            torch.save(weights, path)
            with pytest.raises(Problem, match=r"does not fit its training_args\.json"):
                import_diffuseq(tmp_path / "old", tmp_path / "new")
    torch.save(weights | {"input_up_proj.0.weight": torch.zeros(3)}, path)
    with pytest.raises(Problem, match=r"does not fit its training_args\.json"):
        import_diffuseq(tmp_path / "old", tmp_path / "new")


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "old")
    with (tmp_path / "old" / "vocab.txt").open("a") as file:
        file.write("word\n")
    with pytest.raises(Problem, match="22 tokens"):
        import_diffuseq(tmp_path / "old", tmp_path / "new")
