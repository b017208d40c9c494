"""Generate for a corpus of any size on a Ray cluster: one shard of rows at a time, on every GPU.

    ranges of rows → Ray Data → workers, one model each → shards of the output → one file, or a folder

Only the places of rows travel over Ray; a worker reads its rows and writes its shard itself. So all machines
need the input, the output's folder and the models at the same paths, on a shared disk. The noise of a text
depends on the seed and the number of its row: texts are those of one machine. A worker that dies loses the
shard that it was writing, which another one then writes; a finished shard is never written again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from noise2text.commands.generate import GeneratedText, split_output
from noise2text.commands.generation_job import GenerationJob
from noise2text.commands.input_texts import WINDOW
from noise2text.commands.ray_cluster import connect_to_ray, count_workers
from noise2text.commands.shards import ShardedOutput
from noise2text.core.errors import Problem, Stopped
from noise2text.core.locks import lock_folder
from noise2text.data.chunks import take_chunk
from noise2text.data.row_ranges import RowRange, cut_into_ranges, list_row_files, read_sources_of_range

__all__ = ["PairRecords", "RayOptions", "RecordMaker", "ShardWorker", "TextRecords", "generate_on_ray"]

ShowProgress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""From the number of rows to a context whose value is called with the rows of each finished shard."""

MAX_BLOCKS = 10_000  # the pieces in which Ray Data hands out shards


class RecordMaker(Protocol):
    """What a shard says about a text."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a record."""

    def make(self, row: int, source: str, generated: GeneratedText) -> dict[str, Any] | None:
        """The record of a row; None leaves the row out."""


@dataclass(frozen=True)
class TextRecords:
    """Rows of `generate`: the text, and on request its alternatives, candidates and trace."""

    more: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return ("row", "text", *self.more)

    def make(self, row: int, source: str, generated: GeneratedText) -> dict[str, Any] | None:
        record = {"row": row} | generated.as_record()
        return {name: record[name] for name in self.columns if name in record}


@dataclass(frozen=True)
class PairRecords:
    """Rows of `distill`: a source and the teacher's text; pairs with an empty side are left out."""

    columns: tuple[str, ...] = ("row", "src", "trg")

    def make(self, row: int, source: str, generated: GeneratedText) -> dict[str, Any] | None:
        is_whole = source.strip() and generated.text.strip()
        return {"row": row, "src": source, "trg": generated.text} if is_whole else None


@dataclass(frozen=True)
class RayOptions:
    """Where a job runs: the cluster's address, the number of workers, and the rows of a shard."""

    address: str | None = None
    workers: int | None = None
    shard_rows: int = 10_000


def generate_on_ray(
    job: GenerationJob,
    records: RecordMaker,
    *,
    input: str,
    output: Path,
    options: RayOptions,
    resume: bool = False,
    show_line: Callable[[str], None] = lambda line: None,
    show_progress: ShowProgress = lambda total: nullcontext(lambda count: None),
) -> int:
    """Write the output; returns the number of rows that were generated now."""
    job.check()
    files = list_row_files(input)
    shards = ShardedOutput.at(output, columns=records.columns, input_suffix=files[0].suffix)
    shards.check_free()
    ranges = cut_into_ranges(str(input), options.shard_rows)
    if not ranges:
        raise Problem(f"{input} is empty: there is nothing to generate.")
    started_with = job.describe() | {
        "columns": list(records.columns),
        "input": list(map(str, files)),
        "rows": ranges[-1].stop,  # not the bytes: a row that failed may have been corrected
        "shard_rows": options.shard_rows,
    }
    with connect_to_ray(options.address) as ray, lock_folder(shards.folder):
        shards.begin(started_with, resume=resume)
        missing = [rows for rows in ranges if not shards.is_finished(rows)]
        if len(missing) < len(ranges):
            show_line(f"{len(ranges) - len(missing):,} of {len(ranges):,} shards are already finished.")
        with show_progress(sum(rows.stop - rows.start for rows in missing)) as advance:
            done = _write_shards(
                _map_shards(ray, (job, records, shards), missing, workers=options.workers),
                folder=shards.folder,
                show_line=show_line,
                advance=advance,
            )
        shards.finish(ranges)
    return done


def _write_shards(
    results: Iterator[dict[str, Any]],
    *,
    folder: Path,
    show_line: Callable[[str], None],
    advance: Callable[[int], None],
) -> int:
    """The number of rows written; a bad row fails its shard, and is a Problem when the others are done."""
    done, truncated, problems = 0, 0, []
    try:
        for result in results:
            if result["problem"]:
                problems.append(result["problem"])
            else:
                done, truncated = done + result["rows"], truncated + result["truncated"]
                advance(result["rows"])
    except KeyboardInterrupt as stop:
        raise Stopped(f"Stopped: {folder} has the finished shards; resume to go on.") from stop
    if problems:
        others = f" {len(problems):,} shards have such rows; the others are kept." if problems[1:] else ""
        raise Problem(f"{problems[0]}{others}")
    if truncated:
        show_line(f"{truncated:,} of {done:,} inputs were too long for the model and were truncated.")
    return done


def _map_shards(
    ray: Any,
    work: tuple[GenerationJob, RecordMaker, ShardedOutput],
    missing: Sequence[RowRange],
    *,
    workers: int | None,
) -> Iterator[dict[str, Any]]:
    """What the workers say about each shard, in the order in which they finish; `work` is theirs."""
    if not missing:
        return
    from ray import data
    from ray.exceptions import RayError

    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    number, resources = count_workers(ray, workers)
    items = [{"shard": json.dumps(asdict(rows))} for rows in missing]
    pieces = data.from_items(items, override_num_blocks=min(len(items), MAX_BLOCKS))
    results = pieces.map_batches(
        ShardWorker,
        fn_constructor_args=work,
        batch_size=1,
        compute=data.ActorPoolStrategy(size=min(number, len(items))),
        **resources,
    )
    try:
        yield from results.iter_rows()
    except RayError as error:  # a worker raises what would fail every shard, such as a missing model
        reason = str(error).strip().splitlines()[-1].removeprefix(f"{Problem.__module__}.Problem: ")
        raise Problem(f"The workers on Ray stopped: {reason}") from error


class ShardWorker:
    """A process with a loaded model, which Ray Data calls with one shard after another."""

    def __init__(self, job: GenerationJob, records: RecordMaker, shards: ShardedOutput) -> None:
        self.loaded, self.records, self.shards = job.load(), records, shards

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """The numbers of rows and of truncated inputs of each shard, or the sentence of its Problem."""
        results = [self.write(_parse_range(shard)) for shard in batch["shard"]]
        return {name: [result[name] for result in results] for name in ("rows", "truncated", "problem")}

    def write(self, rows: RowRange) -> dict[str, Any]:
        """What became of a shard: `rows` and `truncated`, or a `problem`."""
        if self.shards.is_finished(rows):  # by a worker that died before it could say so
            return {"rows": rows.stop - rows.start, "truncated": 0, "problem": ""}
        try:
            records, truncated = self._generate(rows)
            self.shards.write(rows, records)
        except Problem as problem:
            return {"rows": 0, "truncated": 0, "problem": str(problem)}
        return {"rows": rows.stop - rows.start, "truncated": truncated, "problem": ""}

    def _generate(self, rows: RowRange) -> tuple[list[dict[str, Any]], int]:
        """The records of the rows, and how many of their sources were truncated."""
        model, job, records, truncated = self.loaded.model, self.loaded.job, [], 0
        sources, row = read_sources_of_range(rows), rows.start
        while window := take_chunk(sources, job.batch * WINDOW, measure=len):
            indices = range(row, row + len(window))
            (output,) = model.generate_together([self.loaded.make_request(window, indices)], batch=job.batch)
            made = map(self.records.make, indices, window, split_output(output, n=job.n))
            records += [record for record in made if record is not None]
            row, truncated = row + len(window), truncated + output.truncated
        if row != rows.stop:
            raise Problem(f"{rows.path} has fewer rows than when the job started: give the same input.")
        return records, truncated


def _parse_range(shard: str) -> RowRange:
    values = json.loads(shard)
    return RowRange(**values | {"fields": tuple(values["fields"])})
