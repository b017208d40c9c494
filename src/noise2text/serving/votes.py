"""Blind votes between two systems: who wrote which text is hidden, and left and right are random.

    share of A = wins of A / (wins of A + wins of B),    with its Wilson interval (Wilson, 1927)

    (p̂ + z²/2n ± z·√(p̂(1 − p̂)/n + z²/4n²)) / (1 + z²/n),    z = 1.96 for 95 %

Votes are rows of an SQLite file, which also holds a checksum of the texts: votes on other texts, or on these
with A and B exchanged, belong to another test. A voter who votes on an item again changes the vote.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem, abbreviate

__all__ = ["Ballot", "BlindTest", "Item", "VoteBook", "VoteCounts", "wilson_interval"]

Z = 1.959963984540054  # of a two-sided interval of 95 %


def wilson_interval(wins: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share of `wins` in `total`; everything is possible without votes."""
    if not total:
        return 0.0, 1.0
    share, weight = wins / total, Z * Z / total
    center = share + weight / 2
    spread = Z * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    return max(0.0, (center - spread) / (1 + weight)), min(1.0, (center + spread) / (1 + weight))


@dataclass(frozen=True)
class Item:
    """A source, and what the systems A and B wrote for it."""

    source: str
    a: str
    b: str


@dataclass(frozen=True)
class Ballot:
    """An item as a voter sees it."""

    number: int  # of the voter's ballots, from 1
    total: int
    source: str
    first: str
    second: str


@dataclass(frozen=True)
class VoteCounts:
    """The votes for A, for B and for neither, and A's share of those that decide, with its interval."""

    a: int
    b: int
    equal: int
    share: float | None
    low: float
    high: float


class VoteBook:
    """The votes in an SQLite file, which is made if it does not exist."""

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_file():  # a pipe, on which one would wait
            raise Problem(f"{path} cannot hold votes (it is no file): choose another file.")
        self.path = path
        with self._open() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS votes (voter TEXT, item INTEGER, preferred TEXT, "
                "at TEXT DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (voter, item))"
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            raise Problem(f"{self.path} cannot hold votes ({error}): choose another file.") from error

    def require_test(self, checksum: str) -> None:
        """Raise a Problem if the votes are on other texts; those of a new file will be on these."""
        with self._open() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS test (checksum TEXT)")
            found = connection.execute("SELECT checksum FROM test").fetchone()
            if found is None:
                connection.execute("INSERT INTO test VALUES (?)", (checksum,))
        if found is not None and found[0] != checksum:
            raise Problem(
                f"{self.path} holds the votes on other texts, or on these with A and B exchanged: give the "
                "files that it was made with, or another --votes."
            )

    def record(self, voter: str, item: int, preferred: str) -> None:
        """Keep a vote for a, b or equal."""
        with self._open() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO votes (voter, item, preferred) VALUES (?, ?, ?)",
                (voter, item, preferred),
            )

    def read(self) -> list[dict[str, Any]]:
        """All votes, in the order in which they came."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT voter, item, preferred, at FROM votes ORDER BY rowid"
            ).fetchall()
        for row in rows:
            kinds = [type(value) for value in row]
            if kinds != [str, int, str, str] or row[2] not in ("a", "b", "equal"):
                raise Problem(f"{self.path} is damaged, it has a vote {abbreviate(row)}: use a copy of it.")
        return [dict(zip(("voter", "item", "preferred", "at"), row, strict=True)) for row in rows]

    def voters(self) -> list[str]:
        """Who has voted, in the order of their first votes."""
        return list(dict.fromkeys(vote["voter"] for vote in self.read()))

    def tally(self, voter: str | None = None) -> VoteCounts:
        """The count of all votes, or of one voter's."""
        votes = [vote["preferred"] for vote in self.read() if voter in (None, vote["voter"])]
        a, b = votes.count("a"), votes.count("b")
        share = a / (a + b) if a + b else None
        return VoteCounts(a, b, votes.count("equal"), share, *wilson_interval(a, a + b))


class BlindTest:
    """Items to vote on, and the votes; each voter gets the items, and their two texts, in another order."""

    def __init__(self, items: Sequence[Item], book: VoteBook) -> None:
        self.items, self.book = items, book
        self.differing = [at for at, item in enumerate(items) if item.a != item.b]
        if not self.differing:
            raise Problem("The two systems wrote the same texts: there is nothing to vote on.")
        texts = json.dumps([[item.source, item.a, item.b] for item in items])
        book.require_test(hashlib.sha256(texts.encode()).hexdigest())

    def ballot(self, voter: str, number: int) -> Ballot:
        """The voter's ballot of this number, from 1."""
        item = self.items[self._item(voter, number)]
        texts = (item.b, item.a) if self._is_swapped(voter, number) else (item.a, item.b)
        return Ballot(number, len(self.differing), item.source, *texts)

    def vote(self, voter: str, number: int, preferred: str) -> None:
        """Record which text of a ballot is better: first, second or equal."""
        systems = ("b", "a") if self._is_swapped(voter, number) else ("a", "b")
        names = {"first": systems[0], "second": systems[1], "equal": "equal"}
        if preferred not in names:
            raise Problem(f"A vote is first, second or equal, not {preferred!r}.")
        self.book.record(voter, self._item(voter, number), names[preferred])

    def export_lines(self) -> str:
        """All votes with their sources and texts, as JSON Lines."""
        votes = self.book.read()
        for vote in votes:
            if not 0 <= vote["item"] < len(self.items):
                raise Problem(
                    f"{self.book.path} is damaged, it has a vote on item {vote['item']}: use a copy of it."
                )
        lines = (vote | asdict(self.items[vote["item"]]) for vote in votes)
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def _item(self, voter: str, number: int) -> int:
        if not 1 <= number <= len(self.differing):
            raise Problem(f"There are ballots from 1 to {len(self.differing)}, not {number}.")
        return sorted(self.differing, key=lambda at: _draw(voter, "order", at))[number - 1]

    def _is_swapped(self, voter: str, number: int) -> bool:
        return _draw(voter, "sides", self._item(voter, number)) % 2 == 1


def _draw(voter: str, purpose: str, item: int) -> int:
    """A random number that the voter and the item decide."""
    return int.from_bytes(hashlib.sha256(f"{voter}|{purpose}|{item}".encode()).digest()[:8], "big")
