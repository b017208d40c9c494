"""API keys and rate limits."""

from __future__ import annotations

import hmac
from pathlib import Path
from types import SimpleNamespace

import pytest

from noise2text.core.errors import Problem
from noise2text.serving import access
from noise2text.serving.access import ApiKeys, RateLimit, read_keys


def test_keys_come_from_the_environment_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(access.KEYS_VARIABLE, "one, two")
    path = tmp_path / "keys.txt"
    path.write_text("# of Anna\nthree\n\nvier ü\n", encoding="utf-8")
    assert list(read_keys(path).keys) == ["one", "two", "three", "vier ü"]
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(Problem, match="one per line"):
        read_keys(path)


def test_only_a_whole_key_is_a_key() -> None:
    keys = ApiKeys(["first", "ü"])
    assert [keys.find(each) for each in ("first", "ü", "firs", "first ", "", None)] == [0, 1, *[None] * 4]


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hmac.compare_digest, and also after the right one was found."""
    compared: list[bytes] = []

    def compare(key: bytes, given: bytes) -> bool:
        compared.append(key)
        return hmac.compare_digest(key, given)

    monkeypatch.setattr(access, "hmac", SimpleNamespace(compare_digest=compare))
    assert ApiKeys(["one", "two", "three"]).find("one") == 0
    assert compared == [b"one", b"two", b"three"]


def test_a_bucket_empties_and_fills_evenly() -> None:
    seconds = 0.0
    limit = RateLimit(per_minute=3, now=lambda: seconds)
    assert [limit.seconds_to_wait("a") for _ in range(4)] == [0, 0, 0, 20]
    assert limit.seconds_to_wait("b") == 0  # of its own
    seconds = 15.0
    assert limit.seconds_to_wait("a") == 5
    seconds = 20.0
    assert [limit.seconds_to_wait("a") for _ in range(2)] == [0, 20]
    seconds = 1e6
    assert [limit.seconds_to_wait("a") for _ in range(4)] == [0, 0, 0, 20]  # no more than a full bucket


def test_clients_that_stay_away_are_forgotten() -> None:
    seconds = 0.0
    limit = RateLimit(per_minute=1, now=lambda: seconds, max_buckets=5)
    for number in range(50):
        seconds += 61
        limit.seconds_to_wait(str(number))
    assert 1 <= limit.num_buckets <= 5
