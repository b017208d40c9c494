"""Models side by side: who stands in the table, what is generated again, what is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from noise2text import load
from noise2text.commands.compare import ComparedModel, CompareOptions, compare, resolve_models
from noise2text.commands.display import SilentDisplay
from noise2text.commands.train import train
from noise2text.core.errors import Problem

from ..conftest import small_changes

FEW = "few:\n  model: {}\n  steps: 2\n  stop_early: 0\n  length_beam: 1\n  noise_beam: 3\n"


class RecordingDisplay(SilentDisplay):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_line(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def models(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Difformer and a Transformer of two training steps, and copying."""
    folder = tmp_path_factory.mktemp("models")
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    for name in ("difformer", "transformer"):
        few = small_changes(name, {"optim.steps": 2})
        train(name, out=folder / name, preset="tiny", changes=few, device="cpu", **files)
    train("copy", out=folder / "copy", preset="tiny", device="cpu", **files)
    return {name: folder / name for name in ("difformer", "transformer", "copy")}


@pytest.fixture
def test_set(dates: Path, tmp_path: Path) -> str:
    path = tmp_path / "test.jsonl"
    path.write_text("".join((dates / "test.jsonl").read_text().splitlines(keepends=True)[:12]))
    return str(path)


CPU = CompareOptions(device="cpu", batch=8)


def test_a_comparison_writes_the_table_the_numbers_and_the_outputs(
    models: dict[str, Path], test_set: str, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(FEW.format(models["difformer"]) + "transformer:\n  beam: 1\n")
    out = tmp_path / "out"
    chosen = [models["copy"], models["transformer"]]
    page = compare(chosen, test=test_set, out=out, settings=settings, reported="qqp", options=CPU)
    assert (out / "comparison.md").read_text() == page
    numbers = json.loads((out / "comparison.json").read_text())
    assert list(numbers["systems"]) == ["copy", "transformer", "few"]
    assert numbers["systems"]["copy"]["copied"] == 1
    assert numbers["systems"]["few"]["candidates"] == 3
    assert "self_bleu" in numbers["systems"]["few"]
    assert "beam = 1" in numbers["systems"]["transformer"]["made_by"]
    assert numbers["published"][0]["task"] == "qqp"
    assert all(own["sentences_per_second"] > 0 for own in numbers["systems"].values())
    rows = [line.split("\t") for line in (out / "outputs.tsv").read_text().splitlines()]
    assert rows[0] == ["source", "reference", "copy", "transformer", "few"]
    assert len(rows) == 13
    assert all(row[0] == row[2] for row in rows[1:])


def test_the_texts_are_those_of_generate_with_the_same_settings(
    models: dict[str, Path], test_set: str, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(FEW.format(models["difformer"]))
    compare(
        [],
        test=test_set,
        out=tmp_path / "out",
        settings=settings,
        options=CompareOptions(seed=3, device="cpu"),
    )
    rows = [line.split("\t") for line in (tmp_path / "out" / "outputs.tsv").read_text().splitlines()[1:]]
    overrides: dict[str, Any] = {"steps": 2, "stop_early": 0, "length_beam": 1, "noise_beam": 3}
    made = load(models["difformer"], device="cpu").generate([row[0] for row in rows], seed=3, **overrides)
    assert [row[2] for row in rows] == [" ".join(text.split()) for text in made.texts]


def test_outputs_are_generated_again_only_if_something_has_changed(
    models: dict[str, Path], test_set: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(models["transformer"], model)
    out, display = tmp_path / "out", RecordingDisplay()

    def written() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (out / "outputs").glob("*/*.json")}

    def again(options: CompareOptions = CPU, *more: Path, display: RecordingDisplay | None = None) -> int:
        """Compare the models and return how many texts were written."""
        before = written()
        compare([model, *more], test=test_set, out=out, options=options, display=display)
        new = [path for path, time in written().items() if before.get(path) != time]
        return sum(len(json.loads(path.read_text())["texts"]) for path in new)

    assert again() == 12
    first = (out / "comparison.json").read_text()
    assert again(display=display) == 0
    assert (out / "comparison.json").read_text() == first
    assert "transformer" not in display.lines[0]
    assert "model are cached" in display.lines[0]
    assert again(CPU, models["copy"]) == 12, "only the new one"
    assert again(CompareOptions(device="cpu", batch=8, seed=1)) == 12
    (kept,) = (path for path in (out / "outputs").glob("copy-*/*.json"))
    kept.write_text(kept.read_text()[:40])
    assert again(CPU, models["copy"]) == 12, "a torn file"
    overrides = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps(overrides | {"beam": 2}))
    assert again() == 12, "the model has changed"


def test_a_comparison_that_was_killed_goes_on_with_the_next_window(
    models: dict[str, Path], dates: Path, tmp_path: Path
) -> None:
    options, out = CompareOptions(device="cpu", batch=1), tmp_path / "out"
    test = str(tmp_path / "test.jsonl")
    Path(test).write_text("".join((dates / "test.jsonl").read_text().splitlines(keepends=True)[:40]))
    compare([models["copy"]], test=test, out=out, options=options)
    whole = (out / "outputs.tsv").read_text()
    (kept,) = (out / "outputs").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == ["0.json", "16.json", "32.json"]
    (kept / "16.json").unlink()
    before = (kept / "0.json").stat().st_mtime_ns
    compare([models["copy"]], test=test, out=out, options=options)
    assert (out / "outputs.tsv").read_text() == whole
    assert (kept / "0.json").stat().st_mtime_ns == before


def test_the_file_gives_settings_by_path_or_name_and_adds_models() -> None:
    found = resolve_models(
        [Path("runs/a"), Path("runs/b")],
        {"runs/b": {"beam": 1}, "a": {"steps": 5}, "c": {"model": "runs/a", "steps": 2}, "runs/d": None},
    )
    assert found == [
        ComparedModel("a", Path("runs/a"), {"steps": 5}),
        ComparedModel("b", Path("runs/b"), {"beam": 1}),
        ComparedModel("c", Path("runs/a"), {"steps": 2}),
        ComparedModel("runs/d", Path("runs/d"), {}),
    ]


def test_settings_for_a_name_that_two_models_have_are_refused() -> None:
    with pytest.raises(Problem, match="Several models are called x: use the path a/x"):
        resolve_models([Path("a/x"), Path("b/x")], {"x": {"steps": 5}})


def test_folders_of_one_name_are_told_apart_by_their_paths() -> None:
    found = resolve_models([Path("one/best"), Path("two/best")], {"two/best": {"beam": 2}})
    assert [(each.name, each.overrides) for each in found] == [("one/best", {}), ("two/best", {"beam": 2})]


def test_a_teacher_may_choose(models: dict[str, Path], test_set: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    more = f"  select: teacher\n  teacher: {models['transformer']}\n  likelihood: sum\n"
    settings.write_text(FEW.format(models["difformer"]) + more)
    page = compare([], test=test_set, out=tmp_path / "out", settings=settings, options=CPU)
    assert "likelihood = sum" in page


def test_mistakes_are_named_before_anything_is_generated(
    models: dict[str, Path], test_set: str, tmp_path: Path
) -> None:
    settings, out = tmp_path / "settings.yaml", tmp_path / "out"
    model = models["transformer"]

    def problem(text: str, match: str, *, folders: list[Path] | None = None) -> None:
        settings.write_text(text)
        with pytest.raises(Problem, match=match):
            compare(
                [model] if folders is None else folders,
                test=test_set,
                out=out,
                settings=settings,
                options=CPU,
            )
        assert not out.exists()

    problem(
        "late:\n  model: {}\n  stepz: 3\n".format(models["difformer"]), "late: there is no setting 'stepz'"
    )
    late = f"late:\n  model: {models['difformer']}\n"
    problem(f"{late}  select: teacher\n", "both `select: teacher` and `teacher: DIR` in the --settings file")
    problem(f"{late}  teacher: {model}\n", "both `select: teacher` and `teacher: DIR` in the --settings file")
    problem(f"{late}  likelihood: sum\n", "likelihood is a setting of the teacher")
    problem(f"{late}  select: teacher\n  teacher: {model}\n  likelihood: max\n", "give mean or sum")
    problem("transformer: 5\n", "settings of transformer must be")
    problem("transformer:\n  model: elsewhere\n", "Two rows are called 'transformer'")
    problem("", "nothing to compare", folders=[])
    problem("", "nowhere is not a complete model", folders=[tmp_path / "nowhere"])
    with pytest.raises(Problem, match="no published rows for the task 'x'"):
        compare([model], test=test_set, out=out, reported="x", options=CPU)
    with pytest.raises(Problem, match="at least 1 sentence"):
        CompareOptions(batch=0)
