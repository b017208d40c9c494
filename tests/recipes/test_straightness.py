"""A real run of SeqDiffuSeq, however small, ends with losses closer to a line than sqrt's (its figure 2)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from noise2text.analysis.positions import position_losses
from noise2text.commands.train import train
from noise2text.data.corpus import Pair, read_pairs, write_pairs
from noise2text.models import DiffusionModel
from noise2text.models.folder import load_config

from ..conftest import SMALL

CHANGES: dict[str, Any] = SMALL | {
    "decoder_layers": 1,
    "embedding_dim": 64,  # so many that sqrt is easy at almost all times
    "max_source": 4,
    "max_target": 3,
    "max_tokens": 400,
    "warmup": 25,
    "lr": 5e-3,
    "optim.steps": 200,
    "refit_bin_size": 100,
    "refit_min_count": 100,
    "validate_every": 200,
    "save_every": 200,
    "validation_sentences": 2,
    "generation.steps": 2,
    "log_every": 200,
}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words of three letters that nothing foretells, the second of only four."""
    random, folder = Random(0), tmp_path_factory.mktemp("words")
    alphabets = ["abcdefghijklmnop", "abcd", "abcdefghijklmnop"]
    pairs = [Pair("x", "".join(map(random.choice, alphabets))) for _ in range(2000)]
    write_pairs(folder / "train.jsonl", pairs[20:])
    write_pairs(folder / "valid.jsonl", pairs[:20])
    return folder


def straightness(words: Path, out: Path, *, refit_every: int) -> list[float]:
    """R² of a line through each letter's losses, after a run that was refitted so often or, for 0, never."""
    files: dict[str, Any] = {name: str(words / f"{name}.jsonl") for name in ("train", "valid")}
    changes = CHANGES | {"refit_every": refit_every, "refit_start": refit_every}
    model = train("seqdiffuseq", out=out, preset="tiny", changes=changes, device="cpu", **files)
    assert isinstance(model, DiffusionModel)
    recipe, config = load_config(out)
    pairs = list(read_pairs(files["train"]))[:300]
    times = [(point + 0.5) / 20 for point in range(20)]
    sums, counts = position_losses(
        model, recipe.objective(config, model), pairs, times=times, batch=100, term="difficulty"
    )
    losses = (sums / counts).numpy()
    return [float(np.corrcoef(times, losses[:, place])[0, 1] ** 2) for place in range(3)]


def test_after_refits_every_position_is_closer_to_a_line_than_under_sqrt(words: Path, tmp_path: Path) -> None:
    refitted = straightness(words, tmp_path / "refitted", refit_every=50)
    sqrt = straightness(words, tmp_path / "sqrt", refit_every=0)
    assert min(refitted) > 0.98
    assert max(sqrt) < 0.9
