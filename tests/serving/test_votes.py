"""Blind votes: nobody sees who wrote what, every vote counts once, and the interval is Wilson's."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from noise2text.core.errors import Problem
from noise2text.serving.votes import BlindTest, Item, VoteBook, wilson_interval

ITEMS = [Item(f"source {n}", f"by A {n}", f"by B {n}") for n in range(20)]


def make_test(folder: Path, items: list[Item] = ITEMS) -> BlindTest:
    return BlindTest(items, VoteBook(folder / "votes.sqlite"))


@given(st.integers(1, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_the_interval_is_wilsons(counts: tuple[int, int]) -> None:
    expected = binomtest(*counts).proportion_ci(0.95, method="wilson")
    assert wilson_interval(*counts) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_without_votes_everything_is_possible() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_every_voter_sees_every_item_once_in_another_order_and_on_random_sides(tmp_path: Path) -> None:
    test = make_test(tmp_path)
    orders, sides = [], Counter[bool]()
    for voter in ("one", "two", "three", "four"):
        ballots = [test.ballot(voter, number) for number in range(1, 21)]
        orders.append([ballot.source for ballot in ballots])
        sides.update(ballot.first.startswith("by A") for ballot in ballots)
        assert sorted(orders[-1]) == sorted(item.source for item in ITEMS)
        assert ballots == [test.ballot(voter, number) for number in range(1, 21)]
        for ballot in ballots:
            assert sorted((ballot.first[:4], ballot.second[:4])) == ["by A", "by B"]
    assert len(set(map(tuple, orders))) == 4
    assert 20 <= sides[True] <= 60  # of 80


def test_a_vote_counts_for_the_system_whatever_its_side_and_once(tmp_path: Path) -> None:
    test = make_test(tmp_path)
    for number in range(1, 21):
        ballot = test.ballot("someone", number)
        test.vote("someone", number, "first" if ballot.first.startswith("by A") else "second")
    tally = test.book.tally()
    assert (tally.a, tally.b, tally.equal, tally.share) == (20, 0, 0, 1.0)
    test.vote("someone", 1, "equal")  # changes the vote
    tally = make_test(tmp_path).book.tally()  # from the file
    assert (tally.a, tally.b, tally.equal) == (19, 0, 1)
    assert tally.low == pytest.approx(wilson_interval(19, 19)[0])


def test_the_export_has_every_vote_with_its_texts(tmp_path: Path) -> None:
    test = make_test(tmp_path)
    test.vote("someone", 3, "equal")
    (line,) = map(json.loads, test.export_lines().splitlines())
    assert line["source"] == test.ballot("someone", 3).source
    assert (line["voter"], line["preferred"]) == ("someone", "equal")
    assert {line["a"][:4], line["b"][:4]} == {"by A", "by B"}


def test_many_voters_at_once_lose_no_vote(tmp_path: Path) -> None:
    test = make_test(tmp_path)

    def vote_on_all(voter: str) -> None:
        for number in range(1, 21):
            test.vote(voter, number, "equal")

    threads = [threading.Thread(target=vote_on_all, args=(f"voter {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert test.book.tally().equal == 80


def test_equal_texts_are_not_voted_on(tmp_path: Path) -> None:
    test = make_test(tmp_path, [Item("s", "same", "same"), Item("t", "one", "other")])
    assert test.ballot("v", 1).source == "t"
    assert test.ballot("v", 1).total == 1
    with pytest.raises(Problem, match="nothing to vote on"):
        make_test(tmp_path, [Item("s", "same", "same")])


def test_mistakes_are_named(tmp_path: Path) -> None:
    test = make_test(tmp_path)
    with pytest.raises(Problem, match="from 1 to 20, not 21"):
        test.ballot("v", 21)
    with pytest.raises(Problem, match="first, second or equal, not 'both'"):
        test.vote("v", 1, "both")
    (tmp_path / "text.sqlite").write_text("not a database, but a text that is long enough to be none" * 20)
    with pytest.raises(Problem, match="cannot hold votes"):
        VoteBook(tmp_path / "text.sqlite")
    assert sqlite3.connect(tmp_path / "votes.sqlite").execute("SELECT count(*) FROM votes").fetchone() == (0,)


def test_votes_belong_to_their_texts(tmp_path: Path) -> None:
    """The votes of another test, or of A and B exchanged, would be counted for the wrong system."""
    make_test(tmp_path).vote("someone", 1, "first")
    exchanged = [Item(item.source, item.b, item.a) for item in ITEMS]
    for others in (exchanged, ITEMS[:10]):
        with pytest.raises(Problem, match="votes on other texts"):
            make_test(tmp_path, others)
    assert make_test(tmp_path).book.tally().a + make_test(tmp_path).book.tally().b == 1


def test_a_file_of_an_older_version_has_votes_on_the_texts_that_it_is_used_with(tmp_path: Path) -> None:
    make_test(tmp_path).vote("someone", 1, "equal")
    with sqlite3.connect(tmp_path / "votes.sqlite") as connection:
        connection.execute("DROP TABLE test")
    assert make_test(tmp_path).book.tally().equal == 1


@pytest.mark.parametrize(
    "row",
    [("someone", 99, "a"), ("someone", -1, "a"), (b"\xff", 1, "a"), ("someone", "x", "a"), ("v", 1, "c")],
)
def test_a_damaged_vote_is_named(tmp_path: Path, row: tuple[object, ...]) -> None:
    test = make_test(tmp_path)
    with sqlite3.connect(tmp_path / "votes.sqlite") as connection:
        connection.execute("INSERT INTO votes (voter, item, preferred) VALUES (?, ?, ?)", row)
    with pytest.raises(Problem, match=r"votes\.sqlite is damaged"):
        test.export_lines()


def read_votes(folder: Path) -> list[dict[str, object]] | None:
    """The votes in a file, or None if it is refused in a sentence."""
    try:
        return [json.loads(line) for line in make_test(folder).export_lines().splitlines()]
    except Problem:
        return None


def test_a_damaged_file_is_a_problem_or_has_votes(tmp_path: Path) -> None:
    test = make_test(tmp_path)
    for number in range(1, 21):
        test.vote("someone", number, "equal")
    whole, path = test.book.path.read_bytes(), test.book.path
    outcomes = []
    for place in range(0, len(whole), 97):
        for damaged in (whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :], whole[:place]):
            path.write_bytes(damaged)
            outcomes.append(read_votes(tmp_path))
    assert None in outcomes
    read = [votes for votes in outcomes if votes is not None]
    assert any(len(votes) == 20 for votes in read)
    for vote in (vote for votes in read for vote in votes):
        assert vote["preferred"] in ("a", "b", "equal")
        assert str(vote["a"]).removeprefix("by A") == str(vote["source"]).removeprefix("source")


def test_a_pipe_holds_no_votes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Problem, match="it is no file"):
        VoteBook(tmp_path / "pipe")
