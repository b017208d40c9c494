"""The demo: the shipped model translates, then a small Difformer is trained to read dates on two cores.

Translation takes seconds: one sentence step by step, one with several candidates, one in requested lengths.

"sunday, 7 april 1957" → "1957-04-07", in several formats and languages. All targets have the same length, so
one length per sentence is decoded. The degeneration score decides the noise factor for these few characters.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from noise2text.commands.display import TerminalDisplay
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.core.locks import lock_output
from noise2text.data.corpus import Pair, read_pairs
from noise2text.data.dates import write_dates
from noise2text.metrics.evaluate import evaluate
from noise2text.models import Model
from noise2text.models.folder import load

__all__ = ["SETTINGS", "demo", "translate"]

PAIRS, TRACED_EXAMPLES = 20_000, 3
MARKER_FILE = "made-by-demo.txt"
TRACED_SENTENCE = "Kannst du mir bitte das Salz geben?"
CANDIDATES_SENTENCE = "Sie möchte heute Abend mit uns ins Kino gehen."
REQUESTED_LENGTHS = (6, 9, 12)
SETTINGS: dict[str, Any] = {
    "tokenizer": "characters",
    "max_source": 48,
    "max_target": 16,
    "dropout": 0.0,
    "optim.steps": 1_000,
    "max_tokens": 2_048,
    "lr": 2e-3,
    "warmup": 200,
    "log_every": 50,
    "validate_every": 500,
    "validation_sentences": 100,
    "length_beam": 1,
    "noise_beam": 2,
}


def demo(out: Path, *, changes: Mapping[str, Any] | None = None) -> float:
    """The exact match in percent after synthesis, training, generation and evaluation."""
    with lock_output(out):
        return _demo(out, changes or {}, Console(highlight=False, soft_wrap=True))


def _demo(out: Path, changes: Mapping[str, Any], console: Console) -> float:
    corpus = out / "corpus"
    _clear_folder(out)
    translate(console)
    write_dates(corpus, pairs=PAIRS, seed=0)
    console.print(
        f"\nNow training from scratch: {PAIRS:,} written-out dates and their ISO form, in {corpus}."
    )
    with TerminalDisplay.open(console) as display:
        model = train(
            "difformer",
            train=str(corpus / "train.jsonl"),
            valid=str(corpus / "valid.jsonl"),
            out=out,
            preset="tiny",
            changes=SETTINGS | dict(changes),
            display=display,
        )
    pairs = list(read_pairs(str(corpus / "test.jsonl")))
    _show_denoising(model, pairs[:TRACED_EXAMPLES], console)
    exact_match = _evaluate(model, pairs, out)
    console.print(f"\nOn {len(pairs)} unseen dates ({out / 'evaluation.json'}):")
    console.print(f"exact match {exact_match:.1f} %")
    page = f"noise2text report {out} --output {out / 'report.html'}"
    console.print(f"\nFor a report on this run (needs noise2text[report]): {page}", markup=False)
    return exact_match


def _clear_folder(out: Path) -> None:
    """Make the folder, or remove what an earlier demo wrote there."""
    if out.exists() and not out.is_dir():
        raise Problem(f"{out} is a file; --out must be a folder.")
    if (out / MARKER_FILE).exists():
        shutil.rmtree(out)
    elif out.exists() and any(out.iterdir()):
        raise Problem(f"{out} is not empty and was not made by the demo: choose another folder.")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER_FILE).write_text("This folder was made by `noise2text demo`, which may replace it.\n")


def _show_denoising(model: Model, pairs: Sequence[Pair], console: Console) -> None:
    console.print("\nFrom noise to text, step by step:")
    traces = model.generate([pair.src for pair in pairs], trace=True).traces
    for pair, steps in zip(pairs, traces, strict=True):
        console.print(f"\n  {pair.src}  (→ {pair.trg})", markup=False)
        for step in steps[::2]:
            console.print(f"    t={step.time:.2f}  {step.noisy:<12} → {step.text}", markup=False)


def _evaluate(model: Model, pairs: Sequence[Pair], out: Path) -> float:
    """The exact match in percent; the texts and all scores are written to the folder."""
    sources = [pair.src for pair in pairs]
    texts = model.generate(sources, batch=100).texts
    result = evaluate(texts, [pair.references for pair in pairs], sources)
    (out / "samples.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (out / "evaluation.json").write_text(json.dumps(result, indent=2))
    return float(result["exact_match"]["score"])


def translate(console: Console) -> None:
    """Print translations of the shipped model de-en: step by step, with candidates, in requested lengths."""
    model = load("de-en", device="cpu")
    console.print("German to English with the shipped model de-en, from noise to text:")
    # With less noise the text can be read earlier.
    (steps,) = model.generate([TRACED_SENTENCE], trace=True, sampling_noise_factor=1.0).traces
    console.print(f"\n  {TRACED_SENTENCE}", markup=False)
    for step in steps[::2]:
        noisy = " ".join(step.noisy.split())
        console.print(f"    t={step.time:.2f}  {noisy:<44} → {step.text}", markup=False)
    output = model.generate([CANDIDATES_SENTENCE], noise_beam=3)
    console.print(f"\n  {CANDIDATES_SENTENCE}  (its candidates, and log p per token)", markup=False)
    score_by_candidate = dict(zip(output.candidates[0], output.scores[0], strict=True))
    for candidate, score in sorted(score_by_candidate.items(), key=lambda each: -each[1]):
        console.print(f"    {score:.1f}  {candidate}", markup=False)
    console.print("\n  The same sentence in a requested number of tokens:", markup=False)
    for length in REQUESTED_LENGTHS:
        (text,) = model.generate([CANDIDATES_SENTENCE], length=length).texts
        console.print(f"    {length:>2}  {text}", markup=False)
