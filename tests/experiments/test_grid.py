"""A grid that was stopped goes on to the same table, and an arm that fails leaves the others alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from noise2text.commands.display import SilentDisplay
from noise2text.core.errors import Problem, Stopped
from noise2text.core.locks import lock_file
from noise2text.data.corpus import read_pairs
from noise2text.experiments import grid
from noise2text.experiments.arm_texts import ArmTexts, read_arm_texts, write_arm_texts
from noise2text.experiments.corpus_files import CorpusFiles
from noise2text.experiments.experiment import Arm, Experiment, ModelSpec, TrainedSetting
from noise2text.experiments.measures import TextMeasures
from noise2text.experiments.run_experiment import run_experiment
from noise2text.metrics.evaluate import find_metrics

from ..conftest import SMALL

FAST = SMALL | {
    "optim.steps": 4,
    "save_every": 2,
    "log_every": 1,
    "validation_sentences": 1,
    "noise_factor": 2.0,
}
ROUNDING = {"anchor_weight": 0.0, "rounding_weight": 1.0}
TIMES = {"decoding_seconds", "sentences_per_second", "training_seconds"}


def experiment(*more: Arm) -> Experiment:
    """Two models, the first of which generates in two ways."""
    arms = (
        Arm("plain", ModelSpec("difformer"), {"steps": 2, "stop_early": 0}, paper={"bleu": 3.0}),
        Arm(
            "rescaled",
            ModelSpec("difformer"),
            {"steps": 2, "stop_early": 0, "sampling_noise_factor": TrainedSetting("noise_factor")},
        ),
        Arm("rounding", ModelSpec("difformer", ROUNDING), paper={"bleu": 2.0}),
        *more,
    )
    facts: dict[str, Any] = dict.fromkeys(("paper", "table", "summary", "claim", "metric_note"), "words")
    return Experiment(name="trial", arms=arms, measures=("bleu", "exact_match", "anisotropy"), **facts)


def run(folder: Path, dates: Path, what: Experiment | None = None, **more: Any) -> dict[str, Any]:
    train, valid, test = (str(dates / f"{split}.jsonl") for split in ("train", "valid", "test"))
    files = CorpusFiles(train, valid, test)
    options: dict[str, Any] = {"files": files, "changes": FAST, "sentences": 4, "device": "cpu"}
    return run_experiment(what or experiment(), folder, **(options | more))


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("trial/*/arms/*.json"))]


def test_other_pairs_are_another_experiment_at_any_scale(dates: Path, tmp_path: Path) -> None:
    run(tmp_path / "out", dates)
    models = set(tmp_path.glob("out/models/*/config.json"))
    other = tmp_path / "other"
    other.mkdir()
    for split in ("train", "valid", "test"):
        lines = (dates / f"{split}.jsonl").read_text().splitlines(keepends=True)
        (other / f"{split}.jsonl").write_text("".join(lines[::-1]))
    run(tmp_path / "out", other)
    assert set(tmp_path.glob("out/models/*/config.json")) > models


class LineRecorder(SilentDisplay):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_line(self, line: str) -> None:
        self.lines.append(line)

    def trained(self) -> list[str]:
        """The models whose training was announced."""
        return [line.split(":")[0] for line in self.lines if line.startswith("training ")]


class StopAt(SilentDisplay):
    """Presses Ctrl-C at a step of a training."""

    def __init__(self, training: int, step: int) -> None:
        self.left, self.step = training, step

    def start(self, total: int) -> None:
        self.left -= 1

    def progress(self, step: int, summary: str) -> None:
        if not self.left and step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [(1, 3), (2, 1), (2, 4)])
def test_a_stopped_grid_goes_on_to_the_same_table(dates: Path, tmp_path: Path, stop: tuple[int, int]) -> None:
    with pytest.raises(Stopped, match="same command"):
        run(tmp_path / "stopped", dates, display=StopAt(*stop))
    assert len(records(tmp_path / "stopped")) == (0, 2)[stop[0] - 1]
    whole = run(tmp_path / "whole", dates)
    assert run(tmp_path / "stopped", dates) == whole
    first, second = records(tmp_path / "stopped"), records(tmp_path / "whole")
    for a, b in zip(first, second, strict=True):
        for name in set(a["numbers"]) - TIMES:
            assert a["numbers"][name] == b["numbers"][name]


def test_a_stopped_grid_leaves_the_table_of_what_it_has(dates: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", dates, display=StopAt(2, 1))
    found = json.loads((tmp_path / "stopped/trial/tiny/table.json").read_text())
    whole = run(tmp_path / "whole", dates)
    assert found["rows"][:2] == whole["rows"][:2]
    assert not found["rows"][2]["means"]
    page = (tmp_path / "stopped/trial/tiny/table.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| rounding"))
    assert "not run" in row
    assert "failed" not in page


def test_arms_can_be_run_by_name_and_the_table_has_all_that_were(dates: Path, tmp_path: Path) -> None:
    display = LineRecorder()
    first = run(tmp_path, dates, only="Rounding", display=display)
    assert len(display.trained()) == 1
    assert [bool(row["means"]) for row in first["rows"]] == [False, False, True]
    second = run(tmp_path, dates, only="plain")
    assert [bool(row["means"]) for row in second["rows"]] == [True, False, True]
    assert run(tmp_path, dates) == run(tmp_path / "whole", dates)
    with pytest.raises(Problem, match=r"has 'dates' in its name. They are: plain; rescaled; rounding"):
        run(tmp_path, dates, only="dates")


def test_a_control_learns_the_targets_of_other_sources(dates: Path, tmp_path: Path) -> None:
    arms = (Arm("right", ModelSpec("difformer")), Arm("control", ModelSpec("difformer", shuffled=True)))
    found = run(tmp_path, dates, replace(experiment(), arms=arms))
    assert [row["failures"] for row in found["rows"]] == [[], []]
    folders = {record["arm"]: tmp_path / "models" / record["model"] for record in records(tmp_path)}
    corpora = {arm: json.loads((own / "run.json").read_text())["train"] for arm, own in folders.items()}
    assert corpora["right"] == str(dates / "train.jsonl")
    right, control = (list(read_pairs(corpora[arm])) for arm in ("right", "control"))
    assert [pair.src for pair in right] == [pair.src for pair in control]
    assert sorted(pair.trg for pair in right) == sorted(pair.trg for pair in control)
    # Several dates of the corpus are written in two ways, so a target may be right by chance.
    assert sum(a.trg == b.trg for a, b in zip(right, control, strict=True)) < len(right) / 10


def written(folder: Path, pattern: str) -> dict[Path, int]:
    """When each file of a pattern was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob(pattern) if path.is_file()}


def test_what_is_there_is_not_made_again(dates: Path, tmp_path: Path) -> None:
    before = run(tmp_path, dates)
    assert len(list(tmp_path.glob("models/*/config.json"))) == 2, "the first model generates in two ways"
    models, texts = (written(tmp_path, pattern) for pattern in ("models/*/**/*", "trial/*/arms/*.json"))
    assert run(tmp_path, dates) == before
    assert written(tmp_path, "trial/*/arms/*.json") == texts
    more = run(tmp_path, dates, sentences=5)
    assert more["sentences"] == 5
    after = written(tmp_path, "trial/*/arms/*.json")
    assert all(after[path] > then for path, then in texts.items()), "another test, other numbers"
    assert written(tmp_path, "models/*/**/*") == models, "nothing has to be trained"


def test_the_tables_numbers_are_those_of_the_records(dates: Path, tmp_path: Path) -> None:
    found = run(tmp_path, dates, seeds=2)
    assert found == json.loads((tmp_path / "trial/tiny/table.json").read_text())
    assert found["seeds"] == [0, 1]
    for row in found["rows"]:
        own = [record["numbers"] for record in records(tmp_path) if record["arm"] == row["arm"]]
        assert len(own) == 2
        for name in found["measures"]:
            values = [numbers[name] for numbers in own]
            assert row["means"][name] == fmean(values)
            assert row["spreads"][name] == stdev(values)
    anisotropies = {record["numbers"]["anisotropy"] for record in records(tmp_path)}
    assert len(anisotropies) == 4, "every seed has a model of its own"
    factors = {
        record["arm"]: record["generation"].get("sampling_noise_factor") for record in records(tmp_path)
    }
    assert factors == {"plain": None, "rescaled": 2.0, "rounding": None}


def test_an_arm_that_fails_leaves_the_others_intact(dates: Path, tmp_path: Path) -> None:
    nowhere = ModelSpec("difformer", {"embeddings_from": "nowhere"})
    wrong = (
        Arm("no embeddings", nowhere),
        Arm("no embeddings, slower", nowhere, {"steps": 3, "stop_early": 0}),
        Arm("no such way", ModelSpec("difformer"), {"stop_erly": 1}),
    )
    first, second = LineRecorder(), LineRecorder()
    found = run(tmp_path, dates, experiment(*wrong), display=first)
    rows = {row["arm"]: row for row in found["rows"]}
    assert {name for name, row in rows.items() if row["failures"]} == {arm.name for arm in wrong}
    assert "stop_early" in rows["no such way"]["failures"][0]
    assert "nowhere" in rows["no embeddings"]["failures"][0]
    assert len(first.trained()) == len(set(first.trained())) == 3, "a model that fails is tried once"
    alone = run(tmp_path / "alone", dates)
    assert [row for row in found["rows"] if not row["failures"]] == alone["rows"]
    page = (tmp_path / "trial/tiny/table.md").read_text()
    assert "| failed" in page
    assert "no such way failed, seed 0" in page
    for path in tmp_path.glob("trial/*/arms/*.json"):
        os.utime(path, (4e9, 4e9))  # the clock of the machine has been set back since
    run(tmp_path, dates, experiment(*wrong), display=second)
    assert second.trained() == first.trained()[-1:], "what failed is tried again"


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_a_damaged_result_is_made_again(dates: Path, tmp_path: Path, damage: bytes) -> None:
    before = run(tmp_path, dates)
    damaged = [*tmp_path.glob("trial/*/arms/*.json"), *tmp_path.glob("trial/*/texts/*.jsonl")]
    damaged[0].write_bytes(damage)
    assert run(tmp_path, dates) == before
    record = json.loads(damaged[0].read_bytes())
    damaged[-1].write_bytes(damage)
    assert run(tmp_path, dates, metrics="ter")["rows"]
    assert json.loads(damaged[0].read_bytes())["identity"] == record["identity"]
    assert not any(row.get("error") for row in records(tmp_path))


def test_texts_with_any_end_of_a_line_are_read_back(tmp_path: Path) -> None:
    texts = ["a\u2028b", "c\x85d\x0be", "f\r\ng\x1ch"]
    written = ArmTexts(texts, [[text] for text in texts], [[text] for text in texts])
    write_arm_texts(tmp_path / "texts.jsonl", texts, written)
    assert read_arm_texts(tmp_path / "texts.jsonl") == written


def test_a_student_learns_from_its_teachers_texts(dates: Path, tmp_path: Path) -> None:
    teacher = ModelSpec("difformer", ROUNDING)
    student = Experiment(
        **(vars(experiment()) | {"arms": (Arm("student", ModelSpec("difformer", teacher=teacher)),)})
    )
    found = run(tmp_path, dates, student)
    assert found["rows"][0]["failures"] == []
    (corpus,) = tmp_path.glob("models/*/distilled.jsonl")
    model = tmp_path / "models" / records(tmp_path)[0]["model"]
    assert json.loads((model / "run.json").read_text())["train"] == str(corpus)
    assert corpus.parent != model


def test_a_raw_baseline_stands_beside_a_student_of_the_users_own_corpus(dates: Path, tmp_path: Path) -> None:
    distilled = tmp_path / "distilled.jsonl"
    distilled.write_text("".join((dates / "train.jsonl").read_text().splitlines(keepends=True)[:-5]))
    teacher = ModelSpec("difformer", ROUNDING)
    arms = (Arm("raw", ModelSpec("difformer")), Arm("student", ModelSpec("difformer", teacher=teacher)))
    both = replace(experiment(), arms=arms)
    train, valid, test = (str(dates / f"{split}.jsonl") for split in ("train", "valid", "test"))
    found = run(
        tmp_path / "out", dates, both, files=CorpusFiles(train, valid, test, {"distilled": str(distilled)})
    )
    assert [row["failures"] for row in found["rows"]] == [[], []]
    folders = {
        record["arm"]: tmp_path / "out/models" / record["model"] for record in records(tmp_path / "out")
    }
    corpora = {arm: json.loads((own / "run.json").read_text())["train"] for arm, own in folders.items()}
    assert corpora == {"raw": train, "student": str(distilled)}
    assert len(list(tmp_path.glob("out/models/*/config.json"))) == 2, "no teacher is needed"
    with pytest.raises(Problem, match="no corpus named 'distiled'; there are distilled"):
        run(tmp_path / "out", dates, both, files=CorpusFiles(train, valid, test, {"distiled": "x"}))


def test_a_further_metric_is_of_the_texts_that_are_there(dates: Path, tmp_path: Path) -> None:
    first = run(tmp_path, dates)
    before = records(tmp_path)
    texts, models = (written(tmp_path, pattern) for pattern in ("trial/*/texts/*", "models/*/**/*"))
    more = run(tmp_path, dates, metrics="rouge-l,sari")
    assert more["measures"] == [*first["measures"], "rouge-l", "sari"]
    assert (written(tmp_path, "trial/*/texts/*"), written(tmp_path, "models/*/**/*")) == (texts, models)
    pairs = [json.loads(line) for line in (dates / "test.jsonl").read_text().splitlines()[:4]]
    (sari,) = find_metrics("sari")
    for old, new in zip(before, records(tmp_path), strict=True):
        assert old["numbers"].items() <= new["numbers"].items()
        (path,) = tmp_path.glob(f"trial/tiny/texts/*-{old['arm']}-seed-0.jsonl")
        own = [json.loads(line)["text"] for line in path.read_text().splitlines()]
        score = sari(own, [[pair["trg"]] for pair in pairs], [pair["src"] for pair in pairs])
        assert new["numbers"]["sari"] == score.score
        assert more["signatures"]["sari"] == score.signature
    assert "SARI: `" in (tmp_path / "trial/tiny/table.md").read_text()


def test_a_column_has_results_of_its_own_and_shares_the_models(dates: Path, tmp_path: Path) -> None:
    whole = experiment()
    column = replace(whole, arms=tuple(replace(arm, paper={"bleu": 1.0}) for arm in whole.arms))
    table = replace(whole, columns={"other": column})
    found = run(tmp_path, dates, table)
    display = LineRecorder()
    other = run(tmp_path, dates, table, preset="other", display=display)
    assert display.trained() == []
    assert [row["means"] for row in other["rows"]] == [row["means"] for row in found["rows"]]
    assert (tmp_path / "trial-other/tiny/table.md").exists()
    assert other["rows"][0]["paper"] == {"bleu": 1.0} != found["rows"][0]["paper"]


def test_a_pretrained_model_without_its_folder_fails_alone(dates: Path, tmp_path: Path) -> None:
    arms = (experiment().arms[0], Arm("gpt2", ModelSpec("pretrained-causal", pretrained="gpt2")))
    both = replace(experiment(), arms=arms, presets={"difformer": "tiny"})
    found = run(tmp_path, dates, both, scale="full")
    assert [bool(row["failures"]) for row in found["rows"]] == [False, True]
    assert "--pretrained gpt2=FOLDER" in found["rows"][-1]["failures"][0]


def test_mistakes_are_told_before_anything_is_trained(dates: Path, tmp_path: Path) -> None:
    for name, value in [("widht", 3), ("model_dim", "x")]:
        with pytest.raises(Problem, match=name):
            run(tmp_path / "out", dates, changes={name: value})
    differ = Experiment(**(vars(experiment()) | {"arms": experiment().arms[2:]}))
    with pytest.raises(Problem, match="differ in"):
        run(tmp_path / "out", dates, differ, changes={"anchor_weight": 1.0})
    with pytest.raises(Problem, match="seed"):
        run(tmp_path / "out", dates, seeds=0)
    with pytest.raises(Problem, match="scale"):
        run(tmp_path / "out", dates, scale="huge")
    with pytest.raises(Problem, match="--train"):
        run_experiment(experiment(), tmp_path / "out", scale="full")
    assert not list(tmp_path.glob("out/models/*"))


def test_a_pipe_is_refused_before_it_is_read(dates: Path, tmp_path: Path) -> None:
    """Every arm would read the corpus again."""
    fifo, valid, test = tmp_path / "train.fifo", dates / "valid.jsonl", dates / "test.jsonl"
    os.mkfifo(fifo)
    with pytest.raises(Problem, match=r"cannot read \S*train\.fifo: give a file"):
        run(tmp_path / "out", dates, files=CorpusFiles(str(fifo), str(valid), str(test)))


class EndOtherProcess(LineRecorder):
    """Releases what another process holds, soon after the arms that can be measured without it."""

    def __init__(self, other: ExitStack) -> None:
        super().__init__()
        self.release = threading.Timer(0.5, other.close)

    def show_line(self, line: str) -> None:
        super().show_line(line)
        if line.startswith("[3 of 3]"):
            self.release.start()


def test_what_another_process_works_on_comes_later(dates: Path, tmp_path: Path) -> None:
    usual = LineRecorder()
    whole = run(tmp_path / "whole", dates, display=usual)
    busy, free = usual.trained()
    with ExitStack() as other:
        model = tmp_path / "shared" / "models" / busy.removeprefix("training ")
        assert other.enter_context(lock_file(model, wait=False))
        display = EndOtherProcess(other)
        assert run(tmp_path / "shared", dates, display=display) == whole
    assert display.trained() == [free, busy]


@pytest.mark.long
def test_processes_share_a_folder_and_train_every_model_once(dates: Path, tmp_path: Path) -> None:
    options = [f"--set={name}={value}" for name, value in FAST.items()]
    files = [f"--{split}={dates / split}.jsonl" for split in ("train", "valid", "test")]
    command = [sys.executable, "-m", "noise2text", "experiment", "difformer-components", "--scale=full"]
    command += [*files, *options, f"--out={tmp_path}", "--sentences=2", "--device=cpu", "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    ended = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    first, second = (json.loads(out) for out, _ in ended)
    assert first == second
    assert all(row["means"] and not row["failures"] for row in first["rows"])
    trained = [line for _, printed in ended for line in printed.decode().splitlines() if "training" in line]
    assert len(trained) == len(set(trained)) == 4


def test_other_texts_under_the_same_name_are_other_results(dates: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.jsonl"
    test.write_text((dates / "test.jsonl").read_text())
    files = CorpusFiles(str(dates / "train.jsonl"), str(dates / "valid.jsonl"), str(test))

    def identity() -> str:
        measures = TextMeasures(experiment().measures)
        made = grid.Grid(experiment(), tmp_path, "full", files, {}, measures, None, "cpu", SilentDisplay())
        return made._fingerprint(experiment().arms[0], 0)

    before = identity()
    assert identity() == before
    test.write_text("".join(reversed(test.read_text().splitlines(keepends=True))))
    assert identity() != before


def test_a_folder_that_cannot_be_made_is_one_sentence(dates: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="cannot be created"):
        run(tmp_path / "file", dates)
