"""The bound by term and by time: the same numbers that the model gives, for all models in one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from noise2text.analysis.catalogue import find_analysis
from noise2text.analysis.finding import to_svg
from noise2text.analysis.inputs import Inputs
from noise2text.core.errors import Problem

from .models import PAIRS, find_model_folder, tiny


def test_the_bound_is_the_models_by_term_and_by_time(tmp_path: Path) -> None:
    folders = [find_model_folder(name, tmp_path / name) for name in ("difformer", "transformer")]
    inputs = Inputs(models=folders, pairs=PAIRS, options={"intervals": "4", "sentences": "2"}, seed=3)
    by_term, by_time = find_analysis("bound")(inputs)
    sources, targets = [pair.src for pair in PAIRS[:2]], [pair.trg for pair in PAIRS[:2]]
    wanted = tiny("difformer").likelihood_bound(sources, targets, samples=4, seed=3)
    diffusion, exact = by_term.rows
    assert diffusion["nats_per_token"] == pytest.approx(wanted.nats_per_token, rel=1e-4)
    assert {name: diffusion[name] for name in wanted.terms} == pytest.approx(wanted.terms, rel=1e-4)
    assert exact["tokens"] == exact["nats_per_token"]
    assert [row["model"] for row in by_time.rows] == ["difformer"] * 4
    times = [(row["from"], row["to"]) for row in by_time.rows]
    assert times == [(each.start, each.end) for each in wanted.intervals]
    assert sum(float(row["nats_per_token"] or 0) for row in by_time.rows) == pytest.approx(
        wanted.terms["diffusion"], rel=1e-4
    )
    assert "likelihood|exact" in by_time.signature
    assert "unit of time" in (to_svg(by_time) or "")


def test_without_a_diffusion_model_there_is_no_table_by_time(tmp_path: Path) -> None:
    folder = find_model_folder("transformer", tmp_path / "transformer")
    (by_term,) = find_analysis("bound")(Inputs(models=[folder], pairs=PAIRS))
    assert by_term.name == "bound-by-term"
    with pytest.raises(Problem, match="intervals"):
        find_analysis("bound")(Inputs(models=[folder], pairs=PAIRS, options={"intervals": "0"}))
