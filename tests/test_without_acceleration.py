"""Removing acceleration/ leaves a package that works: it makes things fast and is needed by nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys

class NoAcceleration:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("noise2text.acceleration"):
            raise ImportError(f"{name} was removed")

sys.meta_path.insert(0, NoAcceleration())
from pathlib import Path
import noise2text
from noise2text.data.dates import write_dates

folder = Path(sys.argv[1])
write_dates(folder, pairs=50, seed=0)
for recipe in ("difformer", "diffuseq", "transformer"):
    model = noise2text.train(
        recipe,
        train=str(folder / "train.jsonl"),
        valid=str(folder / "valid.jsonl"),
        out=folder / recipe,
        preset="tiny",
        changes={"optim.steps": 2, "tokenizer": "characters", "validation_sentences": 2, "noise_factor": 2.0}
        if recipe == "difformer"
        else {"optim.steps": 2, "tokenizer": "characters", "validation_sentences": 2},
        device="cpu",
    )
    assert len(noise2text.load(folder / recipe, device="cpu").generate(["1 may 2001"]).texts) == 1
output = noise2text.generate("de-en", ["Ich habe zwei Brüder."], device="cpu")
assert output.texts == ["I have two brothers."]
assert not any(name.startswith("noise2text.acceleration") for name in sys.modules)
print("works")
"""


@pytest.mark.long
def test_the_package_trains_and_generates_without_acceleration(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=500
    )
    assert done.stdout.strip() == "works", done.stderr
