"""An output in shards: files of rows, each written whole, by any process on any machine that has the folder.

    texts.jsonl.shards/job.json                                   how the job was started
    texts.jsonl.shards/rows-000000000000-000000010000.jsonl       a shard that is finished

A shard that has its name is finished: it is never written again. An OUTPUT that ends in .jsonl or .parquet is
joined from its shards in the order of the rows; any other OUTPUT is the folder of the shards itself.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.core.files import write_atomically, write_text_file
from noise2text.core.json_files import read_json_object
from noise2text.data.row_ranges import RowRange

__all__ = ["ShardedOutput"]

Record = Mapping[str, Any]


@dataclass(frozen=True)
class ShardedOutput:
    """Where the shards of an output are.

    Fields:
        output: the file or folder that the user asked for.
        suffix: the format of the shards, .jsonl or .parquet.
        columns: the fields of a record, which are the columns of Parquet.
    """

    output: Path
    suffix: str
    columns: tuple[str, ...]

    @classmethod
    def at(cls, output: Path, *, columns: Sequence[str], input_suffix: str) -> ShardedOutput:
        """The shards of an output; those of a folder have the format of the input."""
        suffix = output.suffix if output.suffix in (".jsonl", ".parquet") else ""
        if not suffix and output.suffix:
            raise Problem(f"{output} must end in .jsonl or .parquet, or be a folder for the shards.")
        folder_suffix = ".parquet" if input_suffix == ".parquet" else ".jsonl"
        return cls(output.absolute(), suffix or folder_suffix, tuple(columns))

    @property
    def is_joined(self) -> bool:
        """Whether the output is one file."""
        return self.output.suffix == self.suffix

    @property
    def folder(self) -> Path:
        """The folder of the shards."""
        return self.output.with_name(f"{self.output.name}.shards") if self.is_joined else self.output

    def path(self, rows: RowRange) -> Path:
        """The file of a shard."""
        return self.folder / f"rows-{rows.start:012d}-{rows.stop:012d}{self.suffix}"

    def check_free(self) -> None:
        """Raise a Problem if the output is there already."""
        if self.is_joined and self.output.exists():
            raise Problem(f"{self.output} already exists: choose another file, or delete it.")
        if not self.is_joined and self.output.is_file():
            raise Problem(f"{self.output} is a file: choose a new folder for the shards.")

    def begin(self, started_with: Mapping[str, Any], *, resume: bool) -> None:
        """Write down how the job was started; if it was before, it must have been with the same options."""
        note = self.folder / "job.json"
        if not note.exists():
            if any(self.folder.iterdir()):
                raise Problem(f"{self.folder} has other files: choose a new folder for the shards.")
            write_text_file(note, json.dumps(dict(started_with), indent=1) + "\n")
            return
        if not resume:
            raise Problem(
                f"{self.folder} has the shards of a job that was started before: add --resume to go on, or "
                "delete it to start again."
            )
        before = read_json_object(note)
        for name, value in json.loads(json.dumps(dict(started_with))).items():
            if before.get(name) != value:
                raise Problem(
                    f"{self.folder} was started with {name} = {before.get(name)!r}, not {value!r}: resume "
                    "with the same options, or delete it to start again."
                )

    def is_finished(self, rows: RowRange) -> bool:
        """Whether the shard has been written."""
        return self.path(rows).exists()

    def write(self, rows: RowRange, records: Iterable[Record]) -> None:
        """Write a shard; two processes that have the same one may both do so."""
        writer = f"{socket.gethostname()}-{os.getpid()}"
        write_atomically(self.path(rows), lambda draft: self._write_records(draft, records), writer=writer)

    def finish(self, ranges: Sequence[RowRange]) -> None:
        """Join the shards if the output is one file; drafts of killed processes are removed."""
        if self.is_joined:
            paths = [self.path(rows) for rows in ranges]
            join = _join_parquet if self.suffix == ".parquet" else _join_lines
            write_atomically(self.output, lambda draft: join(paths, draft))
            shutil.rmtree(self.folder)
            return
        for draft in self.folder.glob("*.draft"):
            draft.unlink()

    def _write_records(self, path: Path, records: Iterable[Record]) -> None:
        if self.suffix == ".parquet":
            _write_parquet(path, list(records), self.columns)
            return
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _join_lines(shards: Sequence[Path], output: Path) -> None:
    with output.open("wb") as joined:
        for shard in shards:
            with shard.open("rb") as file:
                shutil.copyfileobj(file, joined, 1 << 20)


def _write_parquet(path: Path, records: Sequence[Record], columns: Sequence[str]) -> None:
    import pyarrow
    from pyarrow import parquet

    scored = pyarrow.list_(pyarrow.struct([("text", pyarrow.string()), ("score", pyarrow.float64())]))
    timed = pyarrow.list_(pyarrow.struct([("time", pyarrow.float64()), ("text", pyarrow.string())]))
    kinds = {
        "row": pyarrow.int64(),
        "alternatives": pyarrow.list_(pyarrow.string()),
        "candidates": scored,
        "trace": timed,
    }
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in columns])
    parquet.write_table(pyarrow.Table.from_pylist(list(records), schema), path)


def _join_parquet(shards: Sequence[Path], output: Path) -> None:
    """One file with a row group for each shard."""
    from pyarrow import parquet

    with parquet.ParquetWriter(output, parquet.read_schema(shards[0])) as joined:
        for shard in shards:
            joined.write_table(parquet.read_table(shard))
