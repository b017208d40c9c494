"""Curves are what the runs logged; the smoothed ones are scipy's filter from both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.curves import read_metrics, smooth_curve
from noise2text.analysis.finding import to_svg
from noise2text.analysis.inputs import Inputs
from noise2text.core.errors import Problem

analyze_curves = ANALYSES["curves"]


def log(folder: Path, *records: dict[str, float], end: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(lines + end)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """One that logs nll with and without padding, and one that has only one nll."""
    wide = [{"step": step, "loss": 4 / step, "nll": 1 / step, "nll_text": 8.0 / step} for step in (1, 2, 3)]
    plain = [{"step": step, "loss": 2 / step, "nll": 2 / step, "gradient": 1.0} for step in (2, 4)]
    return [
        log(tmp_path / "wide", *wide, {"step": 3, "valid_bleu": 10.0}),
        log(tmp_path / "plain", *plain, {"step": 4, "valid_bleu": 20.0}),
    ]


def test_smoothing_by_hand() -> None:
    assert smooth_curve([4, 0, 0], 0.5) == pytest.approx([4 / 1.75, 1, 1 / 1.75])
    assert smooth_curve([1, None, 4], 0.5) == [pytest.approx(1.6), None, pytest.approx(3.4)]
    assert smooth_curve([3, 1, 2], 0) == [3, 1, 2]
    assert smooth_curve([], 0.5) == []


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.floats(0, 0.95))
def test_smoothing_is_a_filter_from_both_sides(values: list[float], weight: float) -> None:
    def spread(of: Any) -> Any:
        before, after = (lfilter([1], [1, -weight], side) for side in (of, of[::-1]))
        return before + after[::-1] - of

    expected = spread(values) / spread([1.0] * len(values))
    assert smooth_curve(values, weight) == pytest.approx(expected.tolist(), abs=1e-9)


@given(st.floats(-5, 5), st.integers(1, 20), st.floats(0, 0.95))
def test_a_level_curve_stays_so(value: float, count: int, weight: float) -> None:
    assert smooth_curve([value] * count, weight) == pytest.approx([value] * count)


def test_metrics_are_read_by_name_and_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    run = log(tmp_path, {"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}, end='{"step": 3, "lo')
    (found,) = read_metrics(run).values()
    assert (list(found.steps), list(found.values)) == ([1, 2], [2.0, None])


def test_each_number_is_a_finding_with_the_raw_values(runs: list[Path]) -> None:
    found = {finding.name: finding for finding in analyze_curves(Inputs(models=runs))}
    assert list(found) == [
        *(f"curve-{name}" for name in ("loss", "nll", "nll_text", "valid_bleu", "gradient")),
        "curve-nll-padding",
    ]
    rows = [(row["run"], row["step"], row["value"]) for row in found["curve-loss"].rows]
    assert rows == [("wide", 1, 4), ("wide", 2, 2), ("wide", 3, 4 / 3), ("plain", 2, 1), ("plain", 4, 0.5)]
    assert found["curve-loss"].rows[0]["smoothed"] == pytest.approx((4 + 0.6 * 2 + 0.36 * 4 / 3) / 1.96)
    bleu = [(row["value"], row["smoothed"]) for row in found["curve-valid_bleu"].rows]
    assert bleu == [(10, 10), (20, 20)]


def test_nll_with_and_without_padding_stand_in_one_picture(runs: list[Path]) -> None:
    found = {finding.name: finding for finding in analyze_curves(Inputs(models=runs))}["curve-nll-padding"]
    assert [row["value"] for row in found.rows] == pytest.approx([1, 1 / 2, 1 / 3, 8, 4, 8 / 3])
    svg = to_svg(found) or ""
    for words in ("wide, with padding", "wide, without padding", "step", "nll"):
        assert f">{words}<" in svg
    assert ">plain, with padding<" not in svg


def test_pictures_name_runs_and_axes_and_show_the_raw_behind(runs: list[Path]) -> None:
    plain, smooth = (
        to_svg(analyze_curves(Inputs(models=runs, options={"only": "loss", "smoothing": weight}))[0]) or ""
        for weight in (0, 0.5)
    )
    for words in ("wide", "plain", "step", "loss"):
        assert f">{words}<" in smooth
    assert smooth.count("stroke-opacity: 0.3") == 2
    assert "stroke-opacity: 0.3" not in plain


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    both = [log(tmp_path / side / "run", {"step": 1, "loss": 1.0}) for side in "ab"]
    assert [row["run"] for row in analyze_curves(Inputs(models=both))[0].rows] == [str(run) for run in both]


def test_mistakes_are_told_in_a_sentence(runs: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    log(broken, end="nonsense\n{}\n")
    damaged = log(tmp_path / "damaged", end="{}\n")
    (damaged / "metrics.jsonl").write_bytes(b"\xff\n{}\n")
    for inputs, words in (
        (Inputs(models=[tmp_path]), "has no metrics.jsonl"),
        (Inputs(models=[log(tmp_path / "empty")]), "no numbers yet"),
        (Inputs(models=[broken]), "line 1"),
        (Inputs(models=[damaged]), "line 1"),
        (Inputs(models=runs, options={"only": "los"}), "No run has logged 'los'"),
        (Inputs(models=runs, options={"smoothing": 1}), "below 1"),
    ):
        with pytest.raises(Problem, match=words):
            analyze_curves(inputs)
