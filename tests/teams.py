"""Several processes on this machine that train together, as torchrun would start them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import distributed

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["noise2text.commands.train", "torch.distributed.checkpoint"])

TIMEOUT = 300.0  # seconds after which processes print their stacks and are killed


def run_processes(world_size: int, work: Callable[..., Any], *arguments: Any, **keywords: Any) -> list[int]:
    """Run the same work in several processes; returns their exit codes."""
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)  # so that the processes find this file
    with open_store(world_size) as environment, tempfile.TemporaryDirectory() as folder:
        dump_files = [Path(folder, str(rank)) for rank in range(world_size)]
        processes = [
            _CONTEXT.Process(
                target=_run_worker,
                args=(environment | rank_environment(rank), dump_file, work, arguments, keywords),
            )
            for rank, dump_file in enumerate(dump_files)
        ]
        for process in processes:
            process.start()
        deadline = time.monotonic() + TIMEOUT + 10
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for process in processes:
            process.kill()
            process.join()
        stack_dumps = [
            dump_file.read_text() for dump_file in filter(Path.exists, dump_files)
        ]  # empty for processes that ended
        assert not any(stack_dumps), "\n".join(stack_dumps)
    return [process.exitcode or 0 for process in processes]


@contextmanager
def open_store(world_size: int) -> Iterator[dict[str, str]]:
    """The environment in which processes find each other: this process keeps the store, as torchrun does.

    So its port is never free for somebody else between choosing and using it.
    """
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(world_size),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    del store


def rank_environment(rank: int) -> dict[str, str]:
    """The environment of one process."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


def _run_worker(
    environment: dict[str, str],
    dump_file: Path,
    work: Callable[..., Any],
    arguments: Any,
    keywords: dict[str, Any],
) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= environment
    with dump_file.open("w") as file:
        faulthandler.dump_traceback_later(TIMEOUT, exit=True, file=file)
        work(*arguments, **keywords)
        faulthandler.cancel_dump_traceback_later()
