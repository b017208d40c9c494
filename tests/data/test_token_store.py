"""The stored tokens are the encoded ones, and an incomplete store does not load."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair, ReadCounts, read_pairs
from noise2text.data.token_store import PreparationReport, TokenStore, prepare
from noise2text.data.tokenizer import Tokenizer, learn_characters

LETTERS = learn_characters(["abcdefgh"])
WORDS = [Pair("abc" * (i % 7 + 1), "h" * (i % 5 + 1)) for i in range(300)]
FILES = {"tokens.bin", "index.npy", "prepared.json"}


def rows(prepared: TokenStore) -> list[tuple[list[int], list[int]]]:
    sources, targets = prepared.get_pairs(np.arange(len(prepared)))
    return list(zip(sources, targets, strict=True))


def encoded(pairs: list[Pair], tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    sources, targets = (tokenizer.encode(side) for side in zip(*((p.src, p.trg) for p in pairs), strict=True))
    return list(zip(sources, targets, strict=True))


sides = st.text(alphabet="abcdefgh", min_size=1, max_size=12)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.builds(Pair, sides, sides), min_size=1, max_size=200))
def test_pairs_come_back_as_they_were_encoded(tmp_path: Path, pairs: list[Pair]) -> None:
    prepared = prepare(pairs, LETTERS, tmp_path, max_source=12, max_target=12)
    for either in (prepared, TokenStore.load(tmp_path, tokenizer=LETTERS)):
        assert rows(either) == encoded(pairs, LETTERS)
        assert either.lengths.tolist() == [[len(p.src), len(p.trg)] for p in pairs]
        assert either.report == PreparationReport(len(pairs), 0, 0, 0)
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize("count", [4095, 4096, 4097, 9000])  # pairs are tokenized in chunks of 4,096
def test_chunks_change_nothing(tmp_path: Path, count: int) -> None:
    pairs = (WORDS * 30)[:count]
    assert rows(prepare(pairs, LETTERS, tmp_path, max_source=99, max_target=99)) == encoded(pairs, LETTERS)


def test_what_is_too_long_is_cut_and_counted(tmp_path: Path) -> None:
    pairs = [Pair("abc", "abc"), Pair("abcd", "abcde"), Pair("abcde", "a"), Pair("a", "abcd")]
    prepared = prepare(pairs, LETTERS, tmp_path, max_source=3, max_target=4)
    assert rows(prepared) == [(s[:3], t[:4]) for s, t in encoded(pairs, LETTERS)]
    assert prepared.report == PreparationReport(pairs=4, skipped=0, truncated_sources=2, truncated_targets=1)
    assert (prepared.max_source, prepared.max_target) == (3, 4)


def test_what_loses_all_its_tokens_is_left_out_and_counted(tmp_path: Path) -> None:
    normalizing = learn_characters(["abc"], normalize=True)
    pairs = [Pair("a", "b"), Pair("你", "b"), Pair("a", "()"), Pair("c", "a")]
    prepared = prepare(pairs, normalizing, tmp_path, max_source=9, max_target=9)
    assert rows(prepared) == encoded([pairs[0], pairs[3]], normalizing)
    assert prepared.report == PreparationReport(pairs=2, skipped=2, truncated_sources=0, truncated_targets=0)
    with pytest.raises(Problem, match="None of 2 pairs"):
        prepare(pairs[1:3], normalizing, tmp_path / "empty", max_source=9, max_target=9)
    assert list((tmp_path / "empty").iterdir()) == []


def test_lines_that_reading_skips_are_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text("a\tb\nbad\nc\td\n\n")
    counts = ReadCounts(num_pairs=5, num_skipped=5)  # of an earlier corpus
    pairs = read_pairs(str(tmp_path / "c.tsv"), skip_bad=True, counts=counts)
    prepared = prepare(pairs, LETTERS, tmp_path / "out", max_source=9, max_target=9, counts=counts)
    assert prepared.report == PreparationReport(pairs=2, skipped=2, truncated_sources=0, truncated_targets=0)


@pytest.mark.parametrize("size, bytes_a_token", [(65_530, 2), (65_531, 4)])
def test_tokens_take_two_bytes_where_they_fit(tmp_path: Path, size: int, bytes_a_token: int) -> None:
    first = 0x10000
    large = learn_characters([chr(first + i) for i in range(size)])
    last = chr(first + size - 1)
    prepared = prepare([Pair(last, last * 2)], large, tmp_path, max_source=9, max_target=9)
    assert rows(prepared) == [([size + 5], [size + 5] * 2)]
    assert (tmp_path / "tokens.bin").stat().st_size == 3 * bytes_a_token


def test_pairs_come_in_the_order_asked_for(tmp_path: Path) -> None:
    prepared = prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)
    everything, wanted = rows(prepared), [299, 0, 17, 0]
    sources, targets = prepared.get_pairs(np.array(wanted))
    assert list(zip(sources, targets, strict=True)) == [everything[i] for i in wanted]


def test_the_tokens_stay_on_disk(tmp_path: Path) -> None:
    prepared = prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)
    assert isinstance(prepared._tokens.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        prepared._tokens[0] = 1


def test_a_pair_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9).get_pairs(np.array([300]))


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)
    with pytest.raises(Problem, match="another tokenizer"):
        TokenStore.load(tmp_path, tokenizer=learn_characters(["abcdefghi"]))


def test_what_is_missing_truncated_or_foreign_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no finished prepared corpus"):
        TokenStore.load(tmp_path / "nowhere")
    prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)
    whole = {name: (tmp_path / name).read_bytes() for name in FILES}
    for name, content in whole.items():
        for broken in (None, b"", content[:-2], content[: len(content) // 2], b"\xff" + content, b"[]"):
            (tmp_path / name).unlink()
            if broken is not None:
                (tmp_path / name).write_bytes(broken)
            with pytest.raises(Problem, match="prepare"):
                TokenStore.load(tmp_path)
            (tmp_path / name).write_bytes(content)
    TokenStore.load(tmp_path)


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"dtype": "O"}, {"dtype": "<u4"}, {"report": {"pairs": 300}}, {"report": 3}]
)
def test_an_altered_description_does_not_open(tmp_path: Path, change: dict[str, object]) -> None:
    prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)
    about = json.loads((tmp_path / "prepared.json").read_text())
    (tmp_path / "prepared.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(Problem):
        TokenStore.load(tmp_path)


def test_an_index_of_another_kind_does_not_open(tmp_path: Path) -> None:
    prepared = prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)
    wrong = prepared.lengths.copy()
    wrong[0] += [-50, 50]
    for index in (
        prepared.lengths[:-1],
        prepared.lengths.astype(np.int64),
        wrong,
        np.array([{}], dtype=object),
    ):
        np.save(tmp_path / "index.npy", index, allow_pickle=True)
        with pytest.raises(Problem, match="damaged"):
            TokenStore.load(tmp_path)


def test_a_failure_leaves_the_older_corpus_and_no_partial_file(tmp_path: Path) -> None:
    prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)

    def failing() -> Iterator[Pair]:
        yield from WORDS
        raise Problem("corpus.tsv, line 301: bad")

    with pytest.raises(Problem, match="line 301"):
        prepare(failing(), LETTERS, tmp_path, max_source=2, max_target=2)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert TokenStore.load(tmp_path).max_source == 9


@pytest.mark.parametrize("calls", range(4))
def test_a_killed_preparation_is_whole_or_does_not_open(tmp_path: Path, calls: int) -> None:
    """The process dies before a renaming (0: of tokens.bin) over an older corpus, or lives (3)."""
    prepare(WORDS, LETTERS, tmp_path, max_source=9, max_target=9)
    program = f"""
import os, signal
from pathlib import Path
from noise2text.data.corpus import Pair
from noise2text.data.token_store import prepare
from noise2text.data.tokenizer import learn_characters
rename, left = os.replace, {calls}
def replace(*names):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    rename(*names)
os.replace = replace
pairs = [Pair("abc", "abcdefgh")] * 300
prepare(pairs, learn_characters(["abcdefgh"]), Path({str(tmp_path)!r}), max_source=9, max_target=9)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    if calls == 3:
        assert done.returncode == 0
        assert TokenStore.load(tmp_path).lengths.tolist() == [[3, 8]] * 300
    else:
        assert done.returncode == -signal.SIGKILL
        with pytest.raises(Problem, match="no finished prepared corpus"):
            TokenStore.load(tmp_path)
    again = prepare(WORDS, LETTERS, tmp_path, max_source=99, max_target=99)
    assert rows(again) == encoded(WORDS, LETTERS)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_limits_and_folders_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="at least 1"):
        prepare(WORDS, LETTERS, tmp_path, max_source=0, max_target=9)
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="cannot be written"):
        prepare(WORDS, LETTERS, tmp_path / "file", max_source=9, max_target=9)
