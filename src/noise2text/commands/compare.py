"""Compare models: generate texts for one test set and write one table.

A row is a model folder with its generation settings; a YAML file may add rows:

    fast:                    # the name of the row
      model: runs/difformer  # the model folder; by default the name
      steps: 5               # any generation setting; also teacher: DIR and likelihood: sum
    transformer:             # settings for a MODEL of the command line, by its path or its last part
      beam: 1

Texts are cached in OUT/outputs under a hash of everything that decides them. So a comparison that was
stopped, or that is repeated with one more model, generates only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.display import Display, SilentDisplay
from noise2text.commands.generation_job import GenerationJob, remove_teacher, require_batch
from noise2text.commands.input_texts import WINDOW
from noise2text.core.config import apply_overrides
from noise2text.core.config_files import read_config
from noise2text.core.devices import find_device
from noise2text.core.errors import Problem
from noise2text.core.files import write_text_file
from noise2text.core.locks import lock_folder
from noise2text.core.version import __version__
from noise2text.data.chunks import take_chunk
from noise2text.data.corpus import Pair, read_pairs
from noise2text.metrics.comparison import SystemOutput, evaluate_systems, to_markdown, to_tsv
from noise2text.metrics.published import PublishedResult, published
from noise2text.models.fingerprint import fingerprint_model
from noise2text.models.folder import load

__all__ = ["CompareOptions", "ComparedModel", "compare", "resolve_models"]


@dataclass(frozen=True)
class ComparedModel:
    """A row of the table: a model and its generation settings."""

    name: str
    folder: Path
    overrides: dict[str, Any]
    teacher: Path | None = None
    likelihood: str = "mean"

    def describe(self) -> str:
        """The folder and the changed settings, in one line."""
        more = {} if self.teacher is None else {"teacher": self.teacher, "likelihood": self.likelihood}
        changed = ", ".join(f"{name} = {value}" for name, value in (self.overrides | more).items())
        return f"{self.folder}, {changed or 'default settings'}"


@dataclass(frozen=True)
class CompareOptions:
    """The options that all models share."""

    seed: int = 0
    batch: int = 32
    device: str | None = None
    precision: str = "auto"

    def __post_init__(self) -> None:
        require_batch(self.batch)

    def describe_device(self) -> str:
        """The name of the device."""
        device = find_device(self.device)
        if device.type == "cuda":
            return torch.cuda.get_device_name(device)
        return f"{platform.machine()} {device.type}, {torch.get_num_threads()} threads"


def resolve_models(models: Sequence[Path], config: Mapping[str, Any]) -> list[ComparedModel]:
    """The rows in order: the models of the command line, then those that are only in the file."""
    short_names = [model.name for model in models]
    rest, compared_models = dict(config), []
    for model, name in zip(models, short_names, strict=True):
        row = name if short_names.count(name) == 1 else str(model)
        if name in rest and short_names.count(name) > 1:
            raise Problem(f"Several models are called {name}: use the path {model} in the --settings file.")
        own = next((key for key in (str(model), name) if key in rest and not _names_model(rest[key])), "")
        compared_models.append(_compared_model(row, model, rest.pop(own, None)))
    compared_models += [_compared_model(str(name), None, overrides) for name, overrides in rest.items()]
    if not compared_models:
        raise Problem(
            "There is nothing to compare: give model folders, or name models in the --settings file."
        )
    names = [compared.name for compared in compared_models]
    for name in names:
        if names.count(name) > 1:
            raise Problem(
                f"Two rows are called {name!r}: give one of them another name in the --settings file."
            )
    return compared_models


def _names_model(overrides: Any) -> bool:
    return isinstance(overrides, dict) and "model" in overrides


def _compared_model(name: str, folder: Path | None, overrides: Any) -> ComparedModel:
    if not isinstance(overrides, dict | None):
        raise Problem(f"The settings of {name} must be `setting: value` lines, not {overrides!r}.")
    overrides = dict(overrides or {})
    named = Path(str(overrides.pop("model", name)))
    teacher = overrides.pop("teacher", None)
    if (overrides.get("select") == "teacher") != (teacher is not None):
        raise Problem(
            f"To select by a teacher, give {name} both `select: teacher` and `teacher: DIR` in the "
            f"--settings file."
        )
    if teacher is None and "likelihood" in overrides:
        raise Problem(
            f"likelihood is a setting of the teacher: also give {name} `select: teacher` and `teacher: DIR` "
            f"in the --settings file."
        )
    return ComparedModel(
        name=name,
        folder=folder or named,
        overrides=overrides,
        teacher=None if teacher is None else Path(str(teacher)),
        likelihood=str(overrides.pop("likelihood", "mean")),
    )


def compare(
    models: Sequence[Path],
    *,
    test: str,
    out: Path,
    settings: Path | None = None,
    reported: str | None = None,
    options: CompareOptions | None = None,
    display: Display | None = None,
) -> str:
    """The text of comparison.md, which is written with comparison.json and outputs.tsv."""
    options, display = options or CompareOptions(), display or SilentDisplay()
    rows = [] if reported is None else published(reported)
    compared_models = resolve_models(models, {} if settings is None else read_config(settings))
    pairs = list(read_pairs(test))
    with lock_folder(out):
        return _compare(compared_models, pairs, Path(test).name, out, rows, options, display)


def _compare(
    compared_models: Sequence[ComparedModel],
    pairs: Sequence[Pair],
    test: str,
    out: Path,
    rows: Sequence[PublishedResult],
    options: CompareOptions,
    display: Display,
) -> str:
    """The text of comparison.md, after everything is written."""
    outputs = _generate_all(compared_models, [pair.src for pair in pairs], out / "outputs", options, display)
    result: dict[str, Any] = {
        "test": test,
        "speed": f"{options.describe_device()}, batch {options.batch}",
    }
    references = [pair.references for pair in pairs]
    sources = [pair.src for pair in pairs]
    result |= evaluate_systems(outputs, references, sources)
    for compared in compared_models:
        result["systems"][compared.name]["made_by"] = f"{compared.describe()}, seed {options.seed}"
    page = to_markdown(result, rows)
    result["published"] = [asdict(row) for row in rows]
    write_text_file(out / "comparison.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    write_text_file(out / "outputs.tsv", to_tsv(outputs, references, sources))
    write_text_file(out / "comparison.md", page)
    return page


# Generation, and the cache of generated texts


def _generate_all(
    compared_models: Sequence[ComparedModel],
    sources: list[str],
    folder: Path,
    options: CompareOptions,
    display: Display,
) -> dict[str, SystemOutput]:
    """The texts of each model; cached ones are not generated again."""
    windows = list(_cut_windows(sources, options.batch))
    cache_folders = {each.name: _cache_folder(each, sources, folder, options) for each in compared_models}
    missing = {
        each.name: [window for window in windows if _read_cached(cache_folders[each.name], window) is None]
        for each in compared_models
    }
    pending = [each for each in compared_models if missing[each.name]]
    for each in pending:  # find a mistake about the last model before the others generate
        overrides = remove_teacher(each.overrides, each.teacher, likelihood=each.likelihood)
        apply_overrides(load(each.folder, device="cpu").generation_config, overrides, origin=each.name)
    display.start(sum(len(window) for own in missing.values() for window in own))
    done = 0
    for each in pending:
        for window, output in _generate(each, sources, missing[each.name], options):
            write_text_file(
                cache_folders[each.name] / f"{window.start}.json",
                json.dumps(asdict(output), ensure_ascii=False),
            )
            done += len(window)
            display.progress(done, each.name)
    cached = [each.name for each in compared_models if each not in pending]
    if cached:
        display.show_line(f"{folder}: the outputs of {', '.join(cached)} are cached")
    return {
        name: _concatenate([_read_cached(cache_folder, window) for window in windows])
        for name, cache_folder in cache_folders.items()
    }


def _cache_folder(compared: ComparedModel, sources: list[str], folder: Path, options: CompareOptions) -> Path:
    """The cache folder of a model, named after everything that decides its texts and their speed."""
    cache_key = {
        "version": __version__,
        "model": fingerprint_model(compared.folder, classifier=str(compared.overrides.get("guide", ""))),
        "teacher": None if compared.teacher is None else fingerprint_model(compared.teacher),
        "likelihood": compared.likelihood,
        "settings": compared.overrides,
        "terms": [options.seed, options.batch, options.describe_device(), options.precision],
        "sources": sources,
    }
    digest = hashlib.sha256(json.dumps(cache_key, sort_keys=True, default=str).encode()).hexdigest()[:16]
    safe_name = re.sub(r"[^\w.-]+", "_", compared.name)
    return folder / f"{safe_name}-{digest}"


def _read_cached(cache_folder: Path, window: range) -> SystemOutput | None:
    """The cached texts of a window of sources; None if they are missing or incomplete."""
    try:
        return SystemOutput(**json.loads((cache_folder / f"{window.start}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _concatenate(parts: Sequence[SystemOutput | None]) -> SystemOutput:
    complete = [part for part in parts if part is not None]
    return SystemOutput(
        texts=[text for part in complete for text in part.texts],
        candidates=[candidates for part in complete for candidates in part.candidates],
        seconds=sum(part.seconds for part in complete),
    )


def _cut_windows(sources: Sequence[str], batch: int) -> Iterator[range]:
    """Ranges of sources that are generated and cached together; fewer of very long ones."""
    rest, start = iter(sources), 0
    while window := take_chunk(rest, batch * WINDOW, measure=len):
        yield range(start, start + len(window))
        start += len(window)


def _generate(
    compared: ComparedModel, sources: list[str], windows: Sequence[range], options: CompareOptions
) -> Iterator[tuple[range, SystemOutput]]:
    """The texts of one model for windows of sources, with the time without loading."""
    loaded = GenerationJob(
        compared.folder,
        overrides=compared.overrides,
        seed=options.seed,
        batch=options.batch,
        teacher=compared.teacher,
        likelihood=compared.likelihood,
        device=options.device,
        precision=options.precision,
    ).load()
    for window in windows:
        start = time.perf_counter()
        request = loaded.make_request([sources[index] for index in window], window)
        (output,) = loaded.model.generate_together([request], batch=options.batch)
        yield window, SystemOutput(output.texts, output.candidates, time.perf_counter() - start)
