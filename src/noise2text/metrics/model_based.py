"""Metrics computed by models: BERTScore, and COMET with and without a reference.

BERTScore (Zhang et al., 2020) is F₁ of the greedy matches between the contextual embeddings of both texts;
COMET (Rei et al., 2020) is a regression on human judgements, and COMET-QE does not need a reference. Scores
of different models cannot be compared, so each score is named after the folder of its model. Models come from
local folders only, and nothing is downloaded. With several references, the best one counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.metrics.metric import EvaluationInput, Metric, Statistics, count_references, mean_statistics

__all__ = ["MODEL_METRICS", "bert_score", "comet", "comet_without_reference"]

MAX_LENGTH_UNSET = 1_000_000  # tokens; more means that the folder does not state a limit
RESERVED_POSITIONS = 2  # RoBERTa and similar models reserve two of their positions


def bert_score(folder: Path) -> Metric:
    """BERTScore with the transformers model in a folder, without rescaling or idf weights."""
    config = _config(folder)
    label = f"BERTScore({_name(folder)})"
    return Metric(label, label, partial(_bert_score, folder=folder.resolve(), config=config))


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(
            f"BERTScore needs the folder of a model of transformers, and {folder} holds no config.json."
        ) from error
    if not isinstance(config, dict) or not isinstance(config.get("max_position_embeddings", 0), int):
        raise Problem(
            f"BERTScore needs the folder of a model of transformers; {folder}/config.json is of none."
        )
    return config


def _bert_score(texts: EvaluationInput, *, folder: Path, config: dict[str, Any]) -> Statistics:
    if "t5" in str(folder) and "t5" not in str(config.get("model_type")):
        raise Problem(f"bert-score takes every path with t5 in it for a T5: give {folder} another name.")
    try:
        layer = _layer(folder, config)
    except ImportError as error:
        raise Problem("BERTScore needs bert-score: pip install 'noise2text[bertscore]'.") from error
    scorer = _load_scorer(folder, layer, int(config.get("max_position_embeddings", 512)) - RESERVED_POSITIONS)
    versions = f"bert-score:{version('bert-score')}|transformers:{version('transformers')}"
    signature = f"model:{_name(folder)}|layer:{layer}|F1|idf:no|rescaled:no|empty:0"
    num_references = count_references(texts.references)
    return mean_statistics(
        _best_f1(scorer, texts), f"{signature}|nrefs:{num_references}|refs:best|{versions}"
    )


@cache
def _load_scorer(folder: Path, layer: int, max_length: int) -> Any:
    """The loaded model, one per process."""
    from bert_score import BERTScorer

    try:
        scorer = BERTScorer(model_type=str(folder), num_layers=layer)
    except (OSError, ValueError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise Problem(f"The model in {folder} cannot be loaded for BERTScore: {reason}") from error
    tokenizer = scorer._tokenizer
    if tokenizer.model_max_length > MAX_LENGTH_UNSET:  # which the package cannot handle
        tokenizer.model_max_length = max_length
    return scorer


def _best_f1(scorer: Any, texts: EvaluationInput) -> list[float]:
    """F₁ of each text with its best reference; 0 if either is blank, because the package may fail on it."""
    indices = [index for index, own in enumerate(texts.references) for _ in own]
    hypotheses, references = [texts.hypotheses[index] for index in indices], list(chain(*texts.references))
    nonempty = [k for k, text in enumerate(hypotheses) if text.strip() and references[k].strip()]
    values = dict.fromkeys(range(len(hypotheses)), 0.0)
    if nonempty:
        *_, f1 = scorer.score([hypotheses[k] for k in nonempty], [references[k] for k in nonempty])
        values |= dict(zip(nonempty, f1.tolist(), strict=True))
    found: list[list[float]] = [[] for _ in texts.hypotheses]
    for k, index in enumerate(indices):
        found[index].append(values[k])
    return [max(own) for own in found]


def _layer(folder: Path, config: dict[str, Any]) -> int:
    """The layer that the package recommends for a model it knows by name; otherwise the last one."""
    from bert_score.utils import model2layers

    names = (folder.name, str(config.get("_name_or_path", "")), folder.name.replace("--", "/"))
    tuned = [model2layers[name] for name in names if name in model2layers]
    found = tuned or [config[key] for key in ("num_hidden_layers", "num_layers", "n_layer") if key in config]
    if not found:
        raise Problem(f"{folder / 'config.json'} does not say how many layers the model has.")
    return int(found[0])


def comet(folder: Path) -> Metric:
    """COMET with the checkpoint in a folder, from source, text and reference."""
    return _comet_metric(folder, "COMET", _with_reference)


def comet_without_reference(folder: Path) -> Metric:
    """COMET's quality estimation with the checkpoint in a folder, from source and text alone."""
    return _comet_metric(folder, "COMET-QE", _without_reference)


CometInputs = Callable[[EvaluationInput], list[list[dict[str, str]]]]  # the model's inputs per sentence


def _comet_metric(folder: Path, label: str, build_inputs: CometInputs) -> Metric:
    checkpoint = folder / "checkpoints" / "model.ckpt"
    if not checkpoint.is_file():
        raise Problem(f"{label} needs the folder of a COMET model, and there is no file {checkpoint}.")
    label = f"{label}({_name(folder)})"
    return Metric(
        label, label, partial(_comet, checkpoint=checkpoint, build_inputs=build_inputs), needs_sources=True
    )


def _with_reference(texts: EvaluationInput) -> list[list[dict[str, str]]]:
    sentences = zip(texts.sources or (), texts.hypotheses, texts.references, strict=True)
    return [[{"src": source, "mt": text, "ref": one} for one in own] for source, text, own in sentences]


def _without_reference(texts: EvaluationInput) -> list[list[dict[str, str]]]:
    return [
        [{"src": source, "mt": text}]
        for source, text in zip(texts.sources or (), texts.hypotheses, strict=True)
    ]


def _comet(texts: EvaluationInput, *, checkpoint: Path, build_inputs: CometInputs) -> Statistics:
    try:
        from comet import load_from_checkpoint
    except ImportError as error:
        raise Problem("COMET needs the package unbabel-comet: install it with pip.") from error
    model = load_from_checkpoint(str(checkpoint), local_files_only=True)
    sentences = build_inputs(texts)
    flat = [row for sentence in sentences for row in sentence]
    scores = iter(model.predict(flat, batch_size=16, gpus=0, progress_bar=False).scores)
    values = [max(next(scores) for _ in sentence) for sentence in sentences]
    signature = f"model:{checkpoint.parents[1].name}|{_inputs_signature(sentences)}"
    return mean_statistics(values, f"{signature}|refs:best|unbabel-comet:{version('unbabel-comet')}")


def _inputs_signature(sentences: Sequence[Sequence[dict[str, str]]]) -> str:
    return "reads:" + "+".join(sentences[0][0])


def _name(folder: Path) -> str:
    return folder.resolve().name


MODEL_METRICS: dict[str, Callable[[Path], Metric]] = {
    "bertscore": bert_score,
    "comet": comet,
    "comet-qe": comet_without_reference,
}
