"""A conversation with a model: each line is a text, or a command that begins with a colon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from noise2text.core.config import apply_overrides, describe
from noise2text.core.errors import Problem, abbreviate, find_closest
from noise2text.core.setting_words import is_known_word
from noise2text.generation.alternatives import FLOOR, draw_enough_candidates
from noise2text.models import Model

__all__ = ["HELP", "Chat"]

MAX_DIGITS = 18  # of a number: a seed has 63 bits
MAX_NAME = 80
COMMANDS = ("help", "settings", "reset", "quit")
HELP = """Write a text and press Enter. Commands begin with a colon:
  :n 5             five different texts per text, best first
  :steps 10        any generation setting, here the number of steps
  :seed 1          other noise
  :settings        what is set now
  :reset           the model's own settings again
  :help            this help
  :quit            quit, as Ctrl-D does"""


class Chat:
    """The model, and the settings that commands have changed so far."""

    def __init__(self, model: Model, overrides: dict[str, Any] | None = None, *, n: int = 1) -> None:
        self.model, self.overrides = model, dict(overrides or {})
        self.numbers: dict[str, Any] = {"n": n, "seed": 0}
        config = apply_overrides(model.generation_config, self.overrides, origin="chat")
        draw_enough_candidates(config, self.overrides, n=n, floor=FLOOR)  # refuse a mistake before a text

    def answer_all(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The lines to show for each line, until one quits; a mistake is shown and changes nothing."""
        for line in lines:
            if line.strip() in (":quit", ":q", ":exit"):
                return
            try:
                yield self._answer(line.strip())
            except Problem as problem:
                yield [str(problem)]

    def _answer(self, line: str) -> list[str]:
        if not line:
            return []
        if not line.startswith(":"):
            return self.model.generate([line], **self.numbers, **self.overrides).alternatives[0]
        name, _, value = line[1:].partition(" ")
        return self._obey(name.replace("-", "_"), value.strip())

    def _check_name(self, name: str, value: str) -> None:
        """Raise a Problem with a hint for a name that is close to a known one, or that has no value.

        Others are left to `apply_overrides`, which knows further names for settings.
        """
        settings = [each for each, _, _ in describe(self.model.generation_config)]
        known = [*settings, *self.numbers, *COMMANDS]
        if name == "set":  # as on the command line
            key, _, rest = value.replace("=", " ").partition(" ")
            key = find_closest(key.replace("-", "_"), [*settings, *self.numbers]) or "steps"
            raise Problem(f"There is no command :set; write :{key} {rest.strip() or 10}.")
        closest = find_closest(name, known)
        if name not in known and closest is not None and not is_known_word(name, settings):
            raise Problem(
                f"There is no :{name[:MAX_NAME]}; did you mean :{closest}? :help lists the commands."
            )
        if not value:
            raise Problem(f":{name[:MAX_NAME]} needs a value, such as :steps 10; :help lists the commands.")

    def _obey(self, name: str, value: str) -> list[str]:
        """Follow a command; the setting that it changes is checked first."""
        if name in ("help", "h", ""):
            return HELP.splitlines()
        if name == "reset":
            self.overrides, self.numbers = {}, {"n": 1, "seed": 0}
        elif name in self.numbers:
            if not value.isdecimal() or len(value) > MAX_DIGITS or (name == "n" and int(value) < 1):
                raise Problem(f":{name} takes a whole number, not {abbreviate(value)}.")
            self.numbers[name] = int(value)
        elif name != "settings":
            self._check_name(name, value)
            changed = self.overrides | {name: value}
            apply_overrides(self.model.generation_config, changed, origin="chat")
            self.overrides = changed
        settings = {**self.numbers, **self.overrides}
        return [", ".join(f"{key} = {setting}" for key, setting in settings.items())]
