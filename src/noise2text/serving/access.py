"""Who may ask, and how often: API keys, compared in constant time, and a token bucket for each client.

A bucket holds up to `per_minute` tokens and gains them evenly. A request takes one token, or waits until
there is one: the answer 429 says how long.
"""

from __future__ import annotations

import hmac
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from noise2text.core.errors import Problem

__all__ = ["KEYS_VARIABLE", "ApiKeys", "RateLimit", "read_keys"]

KEYS_VARIABLE = "NOISE2TEXT_API_KEYS"
"""The environment variable with API keys, separated by spaces or commas."""


def read_keys(path: Path | None) -> ApiKeys:
    """The keys of the environment variable and of a file with one key per line; # starts a comment."""
    keys = os.environ.get(KEYS_VARIABLE, "").replace(",", " ").split()
    if path is not None:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise Problem(f"{path} cannot be read as API keys in UTF-8 ({error}): check the file.") from error
        own = [line for line in lines if line and not line.startswith("#")]
        if not own:
            raise Problem(f"{path} has no API keys: write one per line.")
        keys += own
    return ApiKeys(keys)


@dataclass(frozen=True)
class ApiKeys:
    """The keys of a service; without any, everybody may ask."""

    keys: Sequence[str] = ()

    def find(self, given: str | None) -> int | None:
        """The number of the given key, or None; the time that it takes tells nothing about the keys."""
        found = None
        for number, key in enumerate(self.keys):
            if hmac.compare_digest(key.encode(), (given or "").encode()):
                found = number
        return found


@dataclass
class RateLimit:
    """A token bucket for each client; `per_minute` of 0 lets everything through.

    Among `max_buckets` clients, those that have not asked for a minute are forgotten: their buckets are full.
    """

    per_minute: int = 0
    now: Callable[[], float] = time.monotonic
    max_buckets: int = 10_000
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)  # tokens, and when
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_buckets(self) -> int:
        """How many clients are remembered."""
        return len(self._buckets)

    def seconds_to_wait(self, client: str) -> int:
        """0 if the client may ask now, which takes a token; else the whole seconds until it may."""
        if not self.per_minute:
            return 0
        with self._lock:
            now = self.now()
            if len(self._buckets) >= self.max_buckets:
                self._drop_full_buckets(now)
            tokens = self._tokens(client, now)
            if tokens < 1:
                return math.ceil((1 - tokens) * 60 / self.per_minute)
            self._buckets[client] = tokens - 1, now
            return 0

    def _tokens(self, client: str, now: float) -> float:
        tokens, then = self._buckets.get(client, (float(self.per_minute), now))
        return min(float(self.per_minute), tokens + (now - then) * self.per_minute / 60)

    def _drop_full_buckets(self, now: float) -> None:
        """Forget the clients that have not asked for a minute or longer."""
        for client in [each for each in self._buckets if self._tokens(each, now) >= self.per_minute]:
            del self._buckets[client]
