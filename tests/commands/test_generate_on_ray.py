"""On a cluster every row is generated once, with the text that one machine would generate, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from noise2text.commands.distill import distill
from noise2text.commands.generate_on_ray import (
    PairRecords,
    RayOptions,
    RecordMaker,
    ShardWorker,
    TextRecords,
    generate_on_ray,
)
from noise2text.commands.generation_job import GenerationJob
from noise2text.commands.ray_cluster import connect_to_ray
from noise2text.commands.shards import ShardedOutput
from noise2text.core.errors import Problem
from noise2text.data.row_ranges import cut_into_ranges
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.folder import load

from ..conftest import save_noisy_model

DATES = ["7 april 1957", "monday", "3rd of may 2001", "12-12-12", "", "a", "june, 1880", "9 9 9"]
SOURCES = [text and f"{text} {number}" for number in range(10) for text in DATES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """The folder of a small untrained Difformer, whose weights let the noise decide about the texts."""
    return save_noisy_model(tmp_path_factory.mktemp("models") / "tiny", tokenizer)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"src": text}) + "\n" for text in SOURCES))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_worker(
    job: GenerationJob, records: RecordMaker, corpus: Path, output: Path, *, rows: int
) -> ShardedOutput:
    """Write all shards in this process, in reverse, as a cluster may."""
    shards = ShardedOutput.at(output, columns=records.columns, input_suffix=corpus.suffix)
    shards.folder.mkdir()
    worker = ShardWorker(job, records, shards)
    ranges = cut_into_ranges(str(corpus), rows)
    assert not [result for each in reversed(ranges) if (result := worker.write(each))["problem"]]
    shards.finish(ranges)
    return shards


def test_shards_have_the_texts_of_the_whole(folder: Path, corpus: Path, tmp_path: Path) -> None:
    expected = load(folder, device="cpu").generate(SOURCES, seed=3).texts
    assert len(set(expected)) > 60  # the noise of a row decides its text
    job, records = GenerationJob(folder, seed=3, batch=4, device="cpu"), TextRecords(("candidates",))
    run_worker(job, records, corpus, tmp_path / "out.jsonl", rows=7)
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["row"] for row in rows] == list(range(len(SOURCES)))
    assert [row["text"] for row in rows] == expected
    assert not (tmp_path / "out.jsonl.shards").exists()
    run_worker(job, records, corpus, tmp_path / "out.parquet", rows=7)
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["row", "text", "candidates"]
    assert table.to_pylist() == rows


def test_distilled_shards_are_the_corpus_of_distill(folder: Path, corpus: Path, tmp_path: Path) -> None:
    distill(folder, input=str(corpus), output=tmp_path / "plain.jsonl", seed=2, device="cpu")
    shards = run_worker(
        GenerationJob(folder, seed=2, device="cpu"), PairRecords(), corpus, tmp_path / "out", rows=16
    )
    parts = sorted(shards.folder.glob("rows-*.jsonl"))
    assert len(parts) == 5
    rows = [row for part in parts for row in read_rows(part)]
    assert [row.pop("row") for row in rows] == [at for at, text in enumerate(SOURCES) if text]
    assert rows == read_rows(tmp_path / "plain.jsonl")


def test_a_folder_of_other_things_is_not_written_to(folder: Path, tmp_path: Path) -> None:
    records = TextRecords()
    (tmp_path / "there.jsonl").write_text("")
    with pytest.raises(Problem, match="already exists"):
        ShardedOutput.at(
            tmp_path / "there.jsonl", columns=records.columns, input_suffix=".jsonl"
        ).check_free()
    with pytest.raises(Problem, match=r"must end in \.jsonl or \.parquet"):
        ShardedOutput.at(tmp_path / "out.csv", columns=records.columns, input_suffix=".jsonl")
    shards = ShardedOutput.at(tmp_path, columns=records.columns, input_suffix=".jsonl")
    with pytest.raises(Problem, match="has other files"):
        shards.begin({}, resume=True)


def test_a_job_is_resumed_with_the_same_options_only(folder: Path, tmp_path: Path) -> None:
    job = GenerationJob(folder)
    shards = ShardedOutput.at(tmp_path / "out", columns=TextRecords().columns, input_suffix=".parquet")
    shards.folder.mkdir()
    shards.begin(job.describe(), resume=False)
    shards.begin(job.describe(), resume=True)
    with pytest.raises(Problem, match="add --resume"):
        shards.begin(job.describe(), resume=False)
    with pytest.raises(Problem, match=r"was started with numbers = 'seed=0.*, not 'seed=1"):
        shards.begin(GenerationJob(folder, seed=1).describe(), resume=True)
    assert shards.suffix == ".parquet"


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[ray\]'"), connect_to_ray():
        pass


def test_a_wrong_address_is_refused_at_once() -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # free when it is closed
    with pytest.raises(Problem, match=f"no Ray cluster at 127.0.0.1:{port} "):
        connect_to_ray(f"127.0.0.1:{port}").__enter__()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster of this process, with two workers."""
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with connect_to_ray("local", num_cpus=2):
        yield


def find_workers() -> list[int]:
    """The processes of workers whose cluster this process has started."""

    def parent(process: Path) -> Path:
        return process.parent / (process / "stat").read_text().rsplit(")", 1)[1].split()[1]

    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end while it is looked at
            is_worker = (process / "cmdline").read_bytes().startswith(b"ray::MapWorker")
            if is_worker and parent(parent(process)).name == str(os.getpid()):
                found.append(int(process.name))
    return found


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_nothing_is_lost_or_doubled_when_a_worker_dies(folder: Path, corpus: Path, tmp_path: Path) -> None:
    """One of two workers is killed midway; a bad row fails its shard alone; resuming redoes that alone."""
    expected = load(folder, device="cpu").generate(SOURCES, seed=5).texts
    good = corpus.read_text()
    corpus.write_text(good.replace('{"src": "9 9 9 9"}', '{"src": 19990909}'))
    out, shards = tmp_path / "out.jsonl", tmp_path / "out.jsonl.shards"
    arguments: dict[str, Any] = {
        "input": str(corpus),
        "output": out,
        "options": RayOptions(shard_rows=1),
    }
    job = GenerationJob(folder, seed=5, device="cpu")
    killed_at = []

    def kill() -> None:
        finished = 0
        while not finished or (len(find_workers()) < 2 and finished < 10):
            time.sleep(0.01)
            finished = len(list(shards.glob("rows-*.jsonl")))
        os.kill(find_workers()[-1], signal.SIGKILL)
        killed_at.append(finished)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(Problem, match='line 80: "src" is not a string'):
        generate_on_ray(job, TextRecords(), **arguments)
    killer.join()
    assert 0 < killed_at[0] < len(SOURCES) - 1
    finished = {path.name: path.stat().st_mtime_ns for path in shards.glob("rows-*.jsonl")}
    assert len(finished) == len(SOURCES) - 1
    assert not out.exists()

    corpus.write_text(good)
    assert generate_on_ray(job, TextRecords(), resume=True, **arguments) == 1
    rows = read_rows(out)
    assert [row["row"] for row in rows] == list(range(len(SOURCES)))
    assert [row["text"] for row in rows] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
