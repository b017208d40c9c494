"""Sequence-level distillation: a teacher's text for every source of a corpus (Kim and Rush, 2016).

A source has many correct targets; those of a teacher are more consistent, and easier to learn for parallel
decoding. The result is an ordinary corpus in the order of the input.

Process r of n generates texts for the sources r, r + n, r + 2n, … and appends them, one line each, to
OUTPUT.part-r-of-n; the first line of a part records how it was made. A process that was killed finds its
complete lines there, checks that they belong to the same sources, and continues after them. When all are
done, process 0 merges the parts into OUTPUT. n changes only the speed: the noise of a text depends on its
index in the input.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from noise2text.commands.display import Display, SilentDisplay
from noise2text.commands.generation_job import require_batch
from noise2text.commands.input_texts import WINDOW
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem, Stopped
from noise2text.core.files import explain_write_failures, write_atomically
from noise2text.core.locks import lock_open_file
from noise2text.data.chunks import take_chunk
from noise2text.data.corpus import read_sources
from noise2text.data.corpus_paths import display_name, is_pipe
from noise2text.models import Model
from noise2text.models.fingerprint import fingerprint_model
from noise2text.models.folder import load
from noise2text.training.process_group import ProcessGroup

__all__ = ["DistillGroup", "DistillResult", "distill"]


class DistillGroup(ProcessGroup):
    """The processes that share the sources, and the file of each."""

    def part(self, output: Path) -> Path:
        """The file to which this process appends."""
        return output.with_name(f"{output.name}.part-{self.rank}-of-{self.world_size}")

    def parts(self, output: Path) -> list[Path]:
        """The files of all processes."""
        return [DistillGroup(rank, self.world_size).part(output) for rank in range(self.world_size)]


@dataclass(frozen=True)
class DistillResult:
    """The number of pairs written, and of sources left out because one side would be empty."""

    pairs: int
    left_out: int


def distill(
    teacher: Path,
    *,
    input: str,
    output: Path,
    overrides: Mapping[str, Any] | None = None,
    seed: int = 0,
    batch: int = 32,
    device: str | None = None,
    precision: str = "auto",
    display: Display | None = None,
) -> DistillResult | None:
    """The numbers of pairs written and left out, in process 0; None in the others."""
    group, display, overrides = (
        DistillGroup.from_environment(),
        display or SilentDisplay(),
        dict(overrides or {}),
    )
    require_batch(batch)
    _check_output(output, group)
    with _open_part(group.part(output), output) as part:
        _check_output(output, group)  # again: another process may have just finished
        sources = _ProcessSources(input, group)
        model = load(teacher, device=group.device(device), precision=precision)
        generation_config = apply_overrides(model.generation_config, overrides, origin="distill")
        provenance = {
            "teacher": fingerprint_model(teacher, classifier=getattr(generation_config, "guide", "")),
            "generation_config": str(generation_config),
            "seed": seed,
            "precision": precision,
        }
        with group.connect():  # without a device: files need no GPU
            done = _resume_part(part, provenance, sources, group.part(output))
            try:
                _generate_part(model, part, sources, done, overrides, seed=seed, batch=batch, display=display)
            except KeyboardInterrupt as stop:
                raise Stopped("Stopped; run the same command to continue.") from stop
            group.barrier()
            return _merge(output, group, display) if group.rank == 0 else None


class _ProcessSources:
    """The sources of this process and their indices in the input; a file is read again, a pipe is kept."""

    def __init__(self, path: str, group: DistillGroup) -> None:
        if is_pipe(path) and group.world_size > 1:
            raise Problem(f"Several processes cannot share {display_name(path)}, a pipe: give a file.")
        self.path, self.group = path, group
        self.cached = list(read_sources(path)) if is_pipe(path) else None
        # Find an unreadable line now rather than after hours.
        self.total = sum(1 for _ in self._all())
        if not self.total:
            raise Problem(f"{path} is empty: there is nothing to distill.")
        self.count = len(range(group.rank, self.total, group.world_size))

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return islice(enumerate(self._all()), self.group.rank, None, self.group.world_size)

    def _all(self) -> Iterator[str]:
        return iter(self.cached) if self.cached is not None else read_sources(self.path)


# The part of one process


def _check_output(output: Path, group: DistillGroup) -> None:
    if output.exists():
        _remove_merged_parts(output)
        raise Problem(f"{output} already exists: choose another file, or delete it.")
    if output.suffix != ".jsonl":
        raise Problem(
            f"The pairs are written as JSON Lines: choose a file that ends in .jsonl, not {output}."
        )
    part_names = {path.name for path in group.parts(output)}
    for path in _find_parts(output):
        if path.name not in part_names:
            world_size = path.name.rsplit("-", 1)[1]
            raise Problem(
                f"{path} was started with {world_size} processes: continue with {world_size}, not "
                f"{group.world_size}, or delete the parts."
            )


def _remove_merged_parts(output: Path) -> None:
    """Remove the parts of a process that was killed after it had merged them."""
    for path in _find_parts(output):
        with suppress(OSError, Problem), path.open("r+b") as part:
            lock_open_file(part.fileno(), path, output=output)  # nobody is writing it
            if path.stat().st_mtime <= output.stat().st_mtime:
                path.unlink()


def _find_parts(output: Path) -> list[Path]:
    return sorted(output.parent.glob(f"{glob.escape(output.name)}.part-*-of-*"))


@contextmanager
def _open_part(path: Path, output: Path) -> Iterator[BinaryIO]:
    """Context manager: the file of this process, locked; it is removed if nothing was written."""
    with explain_write_failures(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        part = path.open("r+b")
    with part:
        lock_open_file(part.fileno(), path, output=output)
        try:
            yield part
        finally:
            with suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()


def _resume_part(part: BinaryIO, provenance: dict[str, Any], sources: _ProcessSources, path: Path) -> int:
    """The number of texts in the part; an incomplete last line is cut off, ready to append."""
    done, complete_bytes = -1, 0
    remaining_sources = iter(sources)
    for line in part:
        if not line.endswith(b"\n"):
            break
        if done < 0:
            _check_provenance(line, provenance, path)
        else:
            _check_source(line, next(remaining_sources, None), path, number=done + 2)
        done, complete_bytes = done + 1, complete_bytes + len(line)
    part.seek(complete_bytes)
    part.truncate()
    if done < 0:
        _append(part, [provenance])
    return max(0, done)


def _check_provenance(line: bytes, provenance: dict[str, Any], path: Path) -> None:
    found = _parse(line)
    for name, value in provenance.items():
        if found.get(name) != value:
            before, now = _find_difference(str(found.get(name)), str(value))
            raise Problem(
                f"{path} was started with another {name}: {before}, not {now}; delete it to start again."
            )


def _find_difference(first: str, second: str) -> tuple[str, str]:
    """What each of two values has that the other has not, of the parts between commas."""
    parts, other_parts = first.split(", "), second.split(", ")
    return (
        ", ".join(part for part in parts if part not in other_parts),
        ", ".join(part for part in other_parts if part not in parts),
    )


def _check_source(line: bytes, source: tuple[int, str] | None, path: Path, *, number: int) -> None:
    if source is None or _parse(line).get("src") != source[1]:
        where = "the end" if source is None else f"line {source[0] + 1}"
        raise Problem(
            f"{path}, line {number} does not belong to {where} of the input: give the input that it was made "
            f"from, or delete it to start again."
        )


def _parse(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _append(part: BinaryIO, records: list[dict[str, Any]]) -> None:
    with explain_write_failures(Path(part.name)):
        for record in records:
            part.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        part.flush()
        os.fsync(part.fileno())


def _generate_part(
    model: Model,
    part: BinaryIO,
    sources: _ProcessSources,
    done: int,
    overrides: dict[str, Any],
    *,
    seed: int,
    batch: int,
    display: Display,
) -> None:
    """Append texts for the sources that have none yet, window by window."""
    display.start(sources.count)
    if done:
        display.show_line(f"{done:,} of {sources.count:,} are already done")
    rest, truncated = islice(sources, done, None), 0
    while window := take_chunk(rest, batch * WINDOW, measure=lambda pair: len(pair[1])):
        indices, texts = [index for index, _ in window], [text for _, text in window]
        output = model.generate(texts, seed=seed, batch=batch, indices=indices, **overrides)
        pairs = zip(texts, output.texts, strict=True)
        _append(part, [{"src": source, "trg": text} for source, text in pairs])
        done, truncated = done + len(window), truncated + output.truncated
        display.progress(done, "sources")
    if truncated:
        display.show_line(
            f"{truncated:,} sources were longer than {model.max_source} tokens and were truncated"
        )


# All parts


def _merge(output: Path, group: DistillGroup, display: Display) -> DistillResult:
    """The numbers of pairs merged, in the order of the input, and left out; the parts are deleted."""
    counts = {True: 0, False: 0}

    def write(draft: Path) -> None:
        with ExitStack() as stack:
            merged = stack.enter_context(draft.open("wb"))
            parts = [stack.enter_context(path.open("rb")) for path in group.parts(output)]
            for part in parts:
                part.readline()  # the provenance
            for line in _interleave(parts):
                pair = json.loads(line)
                is_nonempty = bool(pair["src"].strip() and pair["trg"].strip())
                counts[is_nonempty] += 1
                if is_nonempty:
                    merged.write(line)

    write_atomically(output, write)
    for path in group.parts(output):
        path.unlink()
    left_out = f"; {counts[False]:,} left out because the source or text is empty" if counts[False] else ""
    display.show_line(f"{output}: {counts[True]:,} pairs{left_out}")
    return DistillResult(counts[True], counts[False])


def _interleave(parts: Sequence[BinaryIO]) -> Iterator[bytes]:
    """One line of each file in turn; only the last round may be incomplete."""
    while True:
        for part in parts:
            line = part.readline()
            if not line:
                return
            yield line
