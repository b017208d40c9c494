"""Compare: several models answer one test set and stand in one table.

A contestant is a model folder and its generation settings; a YAML file may name more of them:

    fast:                    # the name of a row
      model: runs/difformer  # whose folder; the name itself without it
      steps: 5               # any generation setting; also teacher: DIR and likelihood: sum
      stop_early: 0
    transformer:             # settings for a MODEL of the command line, by its path or its last part
      beam: 1

Answers are kept in OUT/outputs under a hash of all that decides them, so a comparison that was stopped, or is
made again with one model more, generates only what is missing.
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

from noise2text.commands.display import Display, Quiet
from noise2text.commands.generate import WINDOW, choose_selector, require_teacher
from noise2text.core.config import change, read_config
from noise2text.core.devices import find_device
from noise2text.core.errors import Problem
from noise2text.core.files import write_text_file
from noise2text.core.version import __version__
from noise2text.data.corpus import Pair, read_pairs
from noise2text.metrics.comparison import Answers, judge_all, markdown, tsv
from noise2text.metrics.published import published
from noise2text.models.fingerprint import identity
from noise2text.models.folder import load

__all__ = ["Contestant", "Terms", "compare", "line_up"]


@dataclass(frozen=True)
class Contestant:
    """A row of the table: a model and how it generates."""

    name: str
    folder: Path
    settings: dict[str, Any]
    teacher: Path | None = None
    likelihood: str = "mean"

    def describe(self) -> str:
        """The folder and what was changed of its own settings, in one line."""
        more = {} if self.teacher is None else {"teacher": self.teacher, "likelihood": self.likelihood}
        changed = ", ".join(f"{name} = {value}" for name, value in (self.settings | more).items())
        return f"{self.folder}, {changed or 'its own settings'}"


@dataclass(frozen=True)
class Terms:
    """What is the same for all contestants."""

    seed: int = 0
    batch: int = 32
    device: str | None = None
    precision: str = "auto"

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise Problem(f"The batch must hold at least 1 sentence, not {self.batch}.")

    def machine(self) -> str:
        """What generates, in words."""
        device = find_device(self.device)
        if device.type == "cuda":
            return torch.cuda.get_device_name(device)
        return f"{platform.machine()} {device.type}, {torch.get_num_threads()} threads"


def line_up(models: Sequence[Path], config: Mapping[str, Any]) -> list[Contestant]:
    """The contestants in order: the models of the command line, then those that only the file names."""
    short = [model.name for model in models]
    rest, made = dict(config), []
    for model, name in zip(models, short, strict=True):
        row = name if short.count(name) == 1 else str(model)
        if name in rest and short.count(name) > 1:
            raise Problem(f"Several models are called {name}: name the settings by the path, {model}.")
        own = next((key for key in (str(model), name) if key in rest and not _has_folder(rest[key])), "")
        made.append(_contestant(row, model, rest.pop(own, None)))
    made += [_contestant(str(name), None, settings) for name, settings in rest.items()]
    if not made:
        raise Problem("There is nothing to compare: name a model folder, or models in the --settings file.")
    names = [contestant.name for contestant in made]
    for name in names:
        if names.count(name) > 1:
            raise Problem(
                f"Two rows are called {name!r}: give one of them another name in the --settings file."
            )
    return made


def _has_folder(settings: Any) -> bool:
    return isinstance(settings, dict) and "model" in settings


def _contestant(name: str, folder: Path | None, settings: Any) -> Contestant:
    if not isinstance(settings, dict | None):
        raise Problem(f"The settings of {name} must be `setting: value` lines, not {settings!r}.")
    settings = dict(settings or {})
    named = Path(str(settings.pop("model", name)))
    teacher = settings.pop("teacher", None)
    return Contestant(
        name=name,
        folder=folder or named,
        settings=settings,
        teacher=None if teacher is None else Path(str(teacher)),
        likelihood=str(settings.pop("likelihood", "mean")),
    )


def compare(
    models: Sequence[Path],
    *,
    test: str,
    out: Path,
    settings: Path | None = None,
    reported: str | None = None,
    terms: Terms | None = None,
    display: Display | None = None,
) -> str:
    """Generate, judge and write comparison.md, comparison.json and outputs.tsv; returns the page."""
    terms, display = terms or Terms(), display or Quiet()
    rows = [] if reported is None else published(reported)
    contestants = line_up(models, {} if settings is None else read_config(settings))
    pairs = list(read_pairs(test))
    answers = _all_answers(contestants, [pair.src for pair in pairs], out / "outputs", terms, display)
    result: dict[str, Any] = {"test": Path(test).name, "speed": f"{terms.machine()}, batch {terms.batch}"}
    references = [_references(pair) for pair in pairs]
    sources = [pair.src for pair in pairs]
    result |= judge_all(answers, references, sources)
    for contestant in contestants:
        result["systems"][contestant.name]["made_by"] = f"{contestant.describe()}, seed {terms.seed}"
    page = markdown(result, rows)
    result["published"] = [asdict(row) for row in rows]
    write_text_file(out / "comparison.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    write_text_file(out / "outputs.tsv", tsv(answers, references, sources))
    write_text_file(out / "comparison.md", page)
    return page


def _references(pair: Pair) -> tuple[str, ...]:
    return pair.refs if pair.trg in pair.refs else (pair.trg, *pair.refs)


# Answers, and where they are kept


def _all_answers(
    contestants: Sequence[Contestant], sources: list[str], folder: Path, terms: Terms, display: Display
) -> dict[str, Answers]:
    """What each contestant wrote; what is kept from before is not generated again."""
    windows = [
        range(len(sources))[start : start + terms.batch * WINDOW]
        for start in range(0, len(sources), terms.batch * WINDOW)
    ]
    places = {each.name: _place(each, sources, folder, terms) for each in contestants}
    missing = {
        each.name: [window for window in windows if _kept(places[each.name], window) is None]
        for each in contestants
    }
    late = [each for each in contestants if missing[each.name]]
    for each in late:  # a mistake about the last model must not cost the time of the others
        settings = dict(each.settings)
        require_teacher(settings, each.teacher, by=each.likelihood)
        if each.teacher is not None:
            del settings["select"]
        change(load(each.folder, device="cpu").how, settings, where=each.name)
    display.start(sum(len(window) for own in missing.values() for window in own))
    done = 0
    for each in late:
        for window, made in _generate(each, sources, missing[each.name], terms):
            write_text_file(
                places[each.name] / f"{window.start}.json", json.dumps(asdict(made), ensure_ascii=False)
            )
            done += len(window)
            display.progress(done, each.name)
    reused = [each.name for each in contestants if each not in late]
    if reused:
        display.say(f"{folder}: the outputs of {', '.join(reused)} were there already")
    return {name: _joined([_kept(place, window) for window in windows]) for name, place in places.items()}


def _place(contestant: Contestant, sources: list[str], folder: Path, terms: Terms) -> Path:
    """The folder of a contestant's answers, named after all that decides them and their speed."""
    decided = {
        "version": __version__,
        "model": identity(contestant.folder, guide=str(contestant.settings.get("guide", ""))),
        "teacher": None if contestant.teacher is None else identity(contestant.teacher),
        "likelihood": contestant.likelihood,
        "settings": contestant.settings,
        "terms": [terms.seed, terms.batch, terms.machine(), terms.precision],
        "sources": sources,
    }
    found = hashlib.sha256(json.dumps(decided, sort_keys=True, default=str).encode()).hexdigest()[:16]
    readable = re.sub(r"[^\w.-]+", "_", contestant.name)
    return folder / f"{readable}-{found}"


def _kept(place: Path, window: range) -> Answers | None:
    """The answers to a window of the sources, if they are there and whole."""
    try:
        return Answers(**json.loads((place / f"{window.start}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _joined(parts: Sequence[Answers | None]) -> Answers:
    whole = [part for part in parts if part is not None]
    return Answers(
        texts=[text for part in whole for text in part.texts],
        candidates=[own for part in whole for own in part.candidates],
        seconds=sum(part.seconds for part in whole),
    )


def _generate(
    contestant: Contestant, sources: list[str], windows: Sequence[range], terms: Terms
) -> Iterator[tuple[range, Answers]]:
    """The answers of one model to windows of the sources, timed without its loading."""
    system = load(contestant.folder, device=terms.device, precision=terms.precision)
    settings = dict(contestant.settings)
    selector = choose_selector(
        system,
        settings,
        contestant.teacher,
        by=contestant.likelihood,
        device=terms.device,
        precision=terms.precision,
    )
    for window in windows:
        begun = time.perf_counter()
        made = system.generate(
            [sources[place] for place in window],
            seed=terms.seed,
            batch=terms.batch,
            places=window,
            selector=selector,
            **settings,
        )
        yield window, Answers(made.texts, made.candidates, time.perf_counter() - begun)
