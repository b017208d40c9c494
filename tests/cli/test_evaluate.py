"""The command that judges texts, in each of its formats; every mistake is one sentence and a failure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import noise2text

from .conftest import Outcome


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / name for name in ("h.txt", "r.jsonl", "s.txt", "other.txt", "c.jsonl")}
    paths["h.txt"].write_text("the cat sat on the mat\na dog barks\n")
    paths["r.jsonl"].write_text(
        '{"trg": "the cat sat on the mat"}\n{"trg": "the dog barks", "refs": ["a hound barks"]}\n'
    )
    paths["s.txt"].write_text("die katze\nder hund\n")
    paths["other.txt"].write_text("the cat\na dog\n")
    paths["c.jsonl"].write_text(
        '{"text": "the cat sat on the mat", "candidates": ["the cat sat on the mat", "the cat"]}\n'
        '{"text": "a dog barks", "candidates": [{"text": "a dog barks"}, {"text": "dogs"}]}\n'
    )
    return paths


def test_evaluate_prints_scores_with_signatures(run: Callable[..., Outcome], files: dict[str, Path]) -> None:
    given = ("evaluate", "--hyp", files["h.txt"], "--ref", files["r.jsonl"])
    done = run(*given, "--src", files["s.txt"], "--json")
    result = json.loads(done.out)
    assert 0 < result["bleu"]["score"] < 100
    assert "version" in result["bleu"]["signature"]
    assert result["exact_match"]["score"] == 50
    assert result["copy_source"]["bleu"]["score"] < result["bleu"]["score"]
    assert result["copying"]["references"]["copies"]["score"] == 0
    plain = run(*given)
    assert "version" in plain.out
    assert run(*given, "--src", files["s.txt"], "--format", "json").out == done.out


def test_every_option_reaches_every_format(run: Callable[..., Outcome], files: dict[str, Path]) -> None:
    given = [
        *("evaluate", "--hyp", files["h.txt"], "--ref", files["r.jsonl"], "--src", files["s.txt"]),
        *("--metrics", "bleu-lc,chrf++,sari", "--against", files["other.txt"], "--confidence"),
        *("--candidates", files["c.jsonl"]),
    ]
    result = json.loads(run(*given, "--json").out)
    assert list(result)[:3] == ["bleu-lc", "chrf++", "sari"]
    assert result["sari"]["interval"]["low"] <= result["sari"]["score"]
    assert [test["metric"] for test in result["against"]["tests"]] == ["BLEU (lowercase)", "chrF++", "SARI"]
    assert result["diversity"]["distinct"]["score"] == 100
    rows = {row["metric"]: row for row in csv.DictReader(io.StringIO(run(*given, "--format", "csv").out))}
    assert rows["SARI"]["score"] == f"{result['sari']['score']:.2f}"
    assert rows["SARI"]["signature"].startswith(result["sari"]["signature"])
    latex = run(*given, "--format", "latex").out
    table = run(*given).out
    for name, row in rows.items():
        assert row["score"] in latex
        assert f"{name} " in table
    assert latex.count("\\textbar{}") > 10


def test_diversity_comes_from_one_file_with_candidates(
    run: Callable[..., Outcome], files: dict[str, Path]
) -> None:
    done = run("evaluate", "--hyp", files["c.jsonl"], "--ref", files["r.jsonl"], "--json")
    result = json.loads(done.out)
    assert result["exact_match"]["score"] == 50
    assert result["diversity"]["words"]["score"] == pytest.approx((4 + 2) / 2)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--metrics", "bluee"], "There is no metric 'bluee'"),
        (["--metrics", "sari"], "--src"),
        (["--metrics", "bertscore=nowhere"], "nowhere holds no config.json"),
        (["--metrics", "comet=nowhere"], "model.ckpt"),
        (["--candidates", "h.txt"], "has no candidates"),
        (["--against", "missing.txt"], "missing.txt"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Callable[..., Outcome], files: dict[str, Path], options: list[str], part: str
) -> None:
    named = [str(files.get(option, option)) for option in options]
    done = run("evaluate", "--hyp", files["h.txt"], "--ref", files["r.jsonl"], *named)
    assert done.code == 1
    assert part in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_no_number_stands_twice(run: Callable[..., Outcome], tmp_path: Path) -> None:
    """What is asked for of copying is not said again below, nor counted for the source itself."""
    for name, text in (("h", "a b c\nd e\n"), ("r", "a b d\nd e\n"), ("s", "a b c\nx y\n")):
        (tmp_path / name).write_text(text)
    files = ("--hyp", tmp_path / "h", "--ref", tmp_path / "r", "--src", tmp_path / "s")
    made = run("evaluate", *files, "--metrics", "bleu,ibleu,source_bleu,copies", "--format", "csv")
    assert made.code == 0, made.err
    names = [line.split(",")[0] for line in made.out.splitlines()]
    assert len(names) == len(set(names))
    assert "BLEU of the source" in names
    assert not [name for name in names if "the source of the source" in name]


def test_a_model_is_scored_by_its_likelihood(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("7 april 1957\t1957-04-07\n12 may 2001\t2001-05-12\n")
    given = ("evaluate", "--likelihood", model, "--test", pairs, "--samples", "3", "--seed", "1")
    printed = json.loads(run(*given, "--set", "sampling_noise_factor=2", "--json").out)
    loaded = noise2text.load(model)
    expected = loaded.likelihood_bound(
        ["7 april 1957", "12 may 2001"],
        ["1957-04-07", "2001-05-12"],
        samples=3,
        seed=1,
        sampling_noise_factor=2.0,
    )
    assert printed["nats_per_token"] == pytest.approx(expected.nats_per_token)
    assert printed["signature"] == expected.signature
    assert "|steps:5|" in json.loads(run(*given, "--set", "steps=5", "--json").out)["signature"]
    plain = run(*given).out
    assert "| diffusion " in plain
    assert "an upper bound of −log p: 2 pairs" in plain
    assert "steps:" in plain


def test_mistakes_about_the_likelihood_are_one_sentence(
    run: Callable[..., Outcome], model: Path, files: dict[str, Path]
) -> None:
    both = run("evaluate", "--likelihood", model, "--test", files["r.jsonl"], "--hyp", files["h.txt"])
    assert both.code != 0
    assert "leave out --hyp" in both.err
    hyp, ref = ("--hyp", files["h.txt"]), ("--ref", files["r.jsonl"])
    for given in ((), hyp, ref, (*hyp, *ref, "--test", files["r.jsonl"])):
        neither = run("evaluate", *given)
        assert (neither.code, neither.err.count("\n")) == (1, 1)
        assert "--hyp FILE --ref FILE" in neither.err
        assert "--likelihood MODEL --test FILE" in neither.err
    for given in ((), ref):
        without = run("evaluate", "--likelihood", model, *given)
        assert (without.code, without.err.count("\n")) == (1, 1)
        assert "--likelihood takes pairs, --test FILE" in without.err
    unknown = run("evaluate", "--likelihood", model, "--test", files["r.jsonl"], "--set", "noise=2")
    assert unknown.code != 0
    assert "Traceback" not in unknown.err
