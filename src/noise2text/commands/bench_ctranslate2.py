"""The peer CTranslate2 in `bench`: quality and time of our Transformer in it, beside a model, in one run.

The systems take turns, round after round, so that other work on the machine slows all of them alike. The time
is the median over the rounds, tokenizing included. With pairs and a trained Transformer the texts are real,
and BLEU is theirs; otherwise a Transformer of the model's shape with random weights writes texts of a fixed
length, and only the times mean something.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.ctranslate2_baseline import CTranslate2Model, convert_transformer
from noise2text.core.errors import Problem
from noise2text.metrics.evaluate import bleu
from noise2text.models import AutoregressiveModel, Model
from noise2text.models.registry import find_recipe

__all__ = ["PeerRow", "bench_ctranslate2", "build_transformer", "count_equal_texts", "report_ctranslate2"]

BEAM = 5
Systems = Mapping[str, Callable[[Sequence[str], int], list[str]]]
"""For each system, a function of texts and a batch size that returns texts."""


@dataclass(frozen=True)
class PeerRow:
    """One system at one batch size."""

    system: str
    batch: int
    seconds: float  # per sentence
    times_as_fast: float  # as CTranslate2's beam search at this batch size
    bleu: float | None  # None without references


def build_transformer(
    model: Model, *, model_dim: int, ffn_dim: int, heads: int, layers: int
) -> AutoregressiveModel:
    """A Transformer of this shape, with the model's tokenizer and random weights."""
    recipe = find_recipe("transformer")
    config = recipe.preset("tiny").replace(
        model_dim=model_dim,
        ffn_dim=ffn_dim,
        heads=heads,
        encoder_layers=layers,
        decoder_layers=layers,
        max_source=model.max_source,
        max_target=getattr(model, "max_target", model.max_source),
    )
    built = recipe.build(config, model.tokenizer)
    assert isinstance(built, AutoregressiveModel)
    return built.eval()


def count_equal_texts(
    transformer: AutoregressiveModel, folder: Path, texts: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """For greedy search and beam search, how many texts of CTranslate2 are ours: in float32 and in int8."""
    peers = [CTranslate2Model.load(transformer, folder, precision=each) for each in ("float32", "int8")]
    found = {}
    for name, beam in (("greedy", 1), (f"beam {BEAM}", BEAM)):
        ours = transformer.generate(texts, beam=beam).texts
        equal = [sum(map(str.__eq__, ours, peer.generate(texts, beam=beam))) for peer in peers]
        found[name] = (equal[0], equal[1])
    return found


def bench_ctranslate2(
    model: Model,
    transformer: AutoregressiveModel,
    folder: Path,
    *,
    batches: Sequence[int],
    configurations: Mapping[str, Mapping[str, Any]],
    texts: Sequence[str],
    references: Sequence[str] = (),
    length: int | None = None,
    rounds: int = 5,
) -> Iterator[PeerRow]:
    """One row per batch size and system: the model with each configuration, and CTranslate2 in int8.

    Args:
        model: the model that is compared.
        transformer: an autoregressive model, which has been converted to `folder`.
        folder: the converted model.
        batches: sentences per batch.
        configurations: generation settings of the model, by name.
        texts: the sources; a batch size of one times at most the first 32.
        references: one per text, for BLEU.
        length: the number of tokens that CTranslate2 writes; by default the Transformer decides.
        rounds: how often every system is timed.
    """
    peer = CTranslate2Model.load(transformer, folder)
    systems: dict[str, Callable[[Sequence[str], int], list[str]]] = {
        name: partial(_generate, model, settings) for name, settings in configurations.items()
    }
    for name, beam in (("greedy", 1), (f"beam {BEAM}", BEAM)):
        systems[f"CTranslate2, {name}"] = partial(_generate_by_peer, peer, beam, length)
    scores = {
        name: bleu(call(texts, 32), [[each] for each in references]).score if references else None
        for name, call in systems.items()
    }
    for batch in batches:
        timed = list(islice(texts, 32)) if batch == 1 else list(texts)
        seconds = _time_in_turns(systems, timed, batch, rounds)
        for name, each in seconds.items():
            ratio = seconds[f"CTranslate2, beam {BEAM}"] / each
            yield PeerRow(name, batch, each / len(timed), ratio, scores[name])


def _generate(model: Model, settings: Mapping[str, Any], texts: Sequence[str], batch: int) -> list[str]:
    return model.generate(texts, batch=batch, **settings).texts


def _generate_by_peer(
    peer: CTranslate2Model, beam: int, length: int | None, texts: Sequence[str], batch: int
) -> list[str]:
    if batch > 1:
        return peer.generate(texts, beam=beam, batch=batch, length=length)
    return [peer.generate([text], beam=beam, length=length)[0] for text in texts]


def _time_in_turns(systems: Systems, texts: Sequence[str], batch: int, rounds: int) -> dict[str, float]:
    """The median seconds of each system for all texts; the first round warms up and does not count."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds + 1):
        for name, call in systems.items():
            start = time.perf_counter()
            call(texts, batch)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def _format_rows(rows: Iterator[PeerRow]) -> Iterator[str]:
    """The rows as a table."""
    yield f"batch  {'system':<28} ms/sentence  times as fast    BLEU"
    for row in rows:
        score = "–" if row.bleu is None else f"{row.bleu:.2f}"
        times = f"{1000 * row.seconds:>11.2f} {row.times_as_fast:>14.2f}"
        yield f"{row.batch:>5}  {row.system:<28} {times} {score:>7}"


def report_ctranslate2(
    model: Model,
    transformer: AutoregressiveModel | None,
    *,
    shape: Mapping[str, int],
    batches: Sequence[int],
    configurations: Mapping[str, Mapping[str, Any]],
    texts: Sequence[str],
    references: Sequence[str],
    length: int,
) -> Iterator[str]:
    """The lines that `noise2text bench --peer ctranslate2` prints."""
    if model.device.type != "cpu":
        raise Problem("The peer ctranslate2 is timed on the CPU: add --device cpu.")
    is_trained = transformer is not None
    transformer = transformer or build_transformer(model, **shape)
    yield f"CPU, {torch.get_num_threads()} threads, CTranslate2 in int8"
    with tempfile.TemporaryDirectory() as folder:
        convert_transformer(transformer, Path(folder))
        if is_trained:
            for name, (exact, quantized) in count_equal_texts(transformer, Path(folder), texts).items():
                yield (
                    f"{name}: of {len(texts):,} texts, {exact:,} of CTranslate2 in float32 and {quantized:,} "
                    f"in int8 are those of our Transformer"
                )
        rows = bench_ctranslate2(
            model,
            transformer,
            Path(folder),
            batches=batches,
            configurations=configurations,
            texts=texts,
            references=references if is_trained else (),
            length=None if is_trained else length,
        )
        yield from _format_rows(rows)
