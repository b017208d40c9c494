"""The same seed gives the same texts, whoever else uses the model, and in whatever order and process.

The batch size has tests of its own (test_base.py), and so has forking (test_fork.py).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import noise2text

TEXTS = [
    "Ich habe zwei Brüder.",
    "Wo ist der nächste Bahnhof?",
    "Kannst du mir bitte das Salz geben?",
    "Es regnet.",
    "Sie hat ihre Schlüssel im Büro vergessen.",
    "Danke!",
]
FAST: dict[str, Any] = {"steps": 4, "length_beam": 2, "noise_beam": 2}


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(request: pytest.FixtureRequest) -> noise2text.Model:
    return noise2text.load("de-en", device="cpu", precision=request.param)


@pytest.fixture
def restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_threads_that_share_a_model_get_the_texts_that_each_gets_alone(model: noise2text.Model) -> None:
    shares = [TEXTS[start:] + TEXTS[:start] for start in range(5)]
    alone = [model.generate(share, seed=seed, **FAST).candidates for seed, share in enumerate(shares)]
    with ThreadPoolExecutor(max_workers=5) as pool:
        together = pool.map(
            lambda job: model.generate(job[1], seed=job[0], **FAST).candidates, enumerate(shares)
        )
        assert list(together) == alone


def test_the_order_of_the_input_changes_no_text(model: noise2text.Model) -> None:
    """The noise belongs to the index of a text."""
    usual = model.generate(TEXTS, batch=2, **FAST)
    order = [4, 0, 5, 2, 1, 3]
    shuffled = model.generate([TEXTS[i] for i in order], indices=order, batch=2, **FAST)
    assert shuffled.candidates == [usual.candidates[i] for i in order]


@pytest.mark.usefixtures("restore_threads")
def test_the_number_of_threads_changes_no_text(model: noise2text.Model) -> None:
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(model.generate(TEXTS, **FAST).texts)
    assert found[0] == found[1]


PROGRAM = """
import sys
import noise2text
model = noise2text.load("de-en", device="cpu", precision="float32")
for text in model.generate(sys.argv[1:], steps=4, length_beam=2, noise_beam=2).texts:
    print(text)
"""


def test_a_new_process_generates_the_same_texts() -> None:
    model = noise2text.load("de-en", device="cpu", precision="float32")
    command = [sys.executable, "-c", PROGRAM, *TEXTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == model.generate(TEXTS, **FAST).texts
