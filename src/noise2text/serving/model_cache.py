"""The models of a service: loaded when they are asked for, and the least recently used let go.

What a request may ask for is known without the weights: a folder's config.json and generation_config.json.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from babel import Locale, UnknownLocaleError

from noise2text.core.errors import Problem, suggest
from noise2text.models.base import Model
from noise2text.models.folder import load, load_config
from noise2text.models.output import GenerationOutput
from noise2text.models.shipped import find_model_folder
from noise2text.serving.limits import Limits
from noise2text.serving.request_batching import Job, ModelWorker, WorkerClosed

__all__ = [
    "ModelPool",
    "ServedModel",
    "UnknownModel",
    "describe_models",
    "find_languages",
    "name_language",
]


class UnknownModel(Problem):
    """A request names a model that the service does not have."""


@dataclass(frozen=True)
class ServedModel:
    """A model that the service knows: its name, its folder, its recipe and its generation defaults."""

    name: str
    folder: Path
    recipe: str
    generation_config: Any

    @property
    def languages(self) -> tuple[str, str] | None:
        """The codes of its source and target language, if its name is such a pair, as de-en is."""
        return find_languages(self.name)


def describe_models(arguments: Sequence[str]) -> dict[str, ServedModel]:
    """The models by name, from arguments that are FOLDER, the name of a shipped model, or NAME=FOLDER."""
    models: dict[str, ServedModel] = {}
    for argument in arguments:
        given, equals, path = argument.partition("=")
        folder = find_model_folder(path if equals else given)
        name = given if equals else folder.resolve().name
        if not name or name in models:
            raise Problem(f"Two models are called {name!r}: name one of them with NAME={folder}.")
        recipe, config = load_config(folder)
        models[name] = ServedModel(name, folder, recipe.name, config.generation)
    return models


def find_languages(name: str) -> tuple[str, str] | None:
    """The codes of two languages that a name such as de-en joins; None for another name."""
    match = re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})", name)
    if match is None or not all(name_language(code) for code in match.groups()):
        return None
    return match[1], match[2]


def name_language(code: str) -> str | None:
    """The English name of a language, or None for an unknown code."""
    try:
        return Locale.parse(code).get_language_name("en")
    except (UnknownLocaleError, ValueError):
        return None


class ModelPool:
    """The workers of the models that are loaded, at most `limits.models` of them.

    Args:
        models: the models by name; the first one is meant where a request names none.
        limits: the sizes of the queues, of the batches, and of the pool.
        load_model: loads the model of a folder.
        on_batch: told the model's name and the number of texts and requests of each batch.
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        limits: Limits,
        *,
        load_model: Callable[[Path], Model] = load,
        on_batch: Callable[[str, int, int], None] = lambda name, texts, requests: None,
    ) -> None:
        self.models, self.limits = models, limits
        self._load_model, self._on_batch = load_model, on_batch
        self._workers: OrderedDict[str, ModelWorker] = OrderedDict()  # the least recently used first
        self._ending: list[ModelWorker] = []
        self._lock = threading.Lock()
        self.is_closed = False

    def find(self, name: str | None) -> ServedModel:
        """The model of this name, or the first one."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownModel(f"There is no model {name!r}; {suggest(name, self.models)}")
        return self.models[name]

    def submit(self, name: str, job: Job) -> Future[GenerationOutput]:
        """The future of a job's output, by the worker of the model, which is started if need be."""
        with self._lock:
            if self.is_closed:
                raise WorkerClosed
            return self._find_worker(name).submit(job)

    def warm_up(self, name: str) -> None:
        """Load a model now, and wait for it; raise the Problem if it cannot be loaded."""
        self.submit(name, Job([], {}, None)).result()

    def list_loaded(self) -> list[str]:
        """The names of the models in memory, the least recently used first."""
        with self._lock:
            return [name for name, worker in self._workers.items() if worker.loaded.is_set()]

    def num_waiting(self) -> dict[str, int]:
        """The number of waiting texts of each model."""
        with self._lock:
            return {name: worker.num_waiting for name, worker in self._workers.items()}

    def close(self) -> None:
        """Take no more jobs; what was accepted is finished."""
        with self._lock:
            self.is_closed = True
            for worker in self._workers.values():
                worker.close()

    def join(self) -> None:
        """Wait until the workers of a closed pool have finished."""
        with self._lock:
            workers = [*self._ending, *self._workers.values()]
        for worker in workers:
            worker.join()

    def _find_worker(self, name: str) -> ModelWorker:
        """The worker of a model; a new one waits until the worker whose place it takes has finished."""
        if name in self._workers:
            self._workers.move_to_end(name)
            return self._workers[name]
        while len(self._workers) >= self.limits.models:
            _, oldest = self._workers.popitem(last=False)
            oldest.close()
            self._ending.append(oldest)
        self._ending = [worker for worker in self._ending if worker.is_running]
        self._workers[name] = ModelWorker(
            partial(self._load, name, tuple(self._ending)),
            max_queue=self.limits.queue,
            max_batch=self.limits.batch,
            on_batch=partial(self._on_batch, name),
        )
        return self._workers[name]

    def _load(self, name: str, ending: Sequence[ModelWorker]) -> Model:
        for worker in ending:
            worker.join()
        return self._load_model(self.models[name].folder)
