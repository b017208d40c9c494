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

PATIENCE = 300.0  # seconds after which members that have not ended say where they are, and are ended


def together(world: int, work: Callable[..., Any], *arguments: Any, **named: Any) -> list[int]:
    """Let as many processes do the same work; returns their exit codes."""
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)  # so that the processes find this file
    with meeting_place(world) as place, tempfile.TemporaryDirectory() as folder:
        traces = [Path(folder, str(rank)) for rank in range(world)]
        members = [
            _CONTEXT.Process(target=_member, args=(place | who(rank), trace, work, arguments, named))
            for rank, trace in enumerate(traces)
        ]
        for member in members:
            member.start()
        last = time.monotonic() + PATIENCE + 10
        for member in members:
            member.join(max(0.0, last - time.monotonic()))
        for member in members:
            member.kill()
            member.join()
        late = [trace.read_text() for trace in filter(Path.exists, traces)]  # empty of those that ended
        assert not any(late), "\n".join(late)
    return [member.exitcode or 0 for member in members]


@contextmanager
def meeting_place(world: int) -> Iterator[dict[str, str]]:
    """What members are told of where they meet: this process keeps the store, as torchrun does.

    So its port is never free for somebody else between choosing and using it.
    """
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(world),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    del store


def who(rank: int) -> dict[str, str]:
    """What a member is told of itself."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


def _member(
    environment: dict[str, str], trace: Path, work: Callable[..., Any], arguments: Any, named: dict[str, Any]
) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= environment
    with trace.open("w") as file:
        faulthandler.dump_traceback_later(PATIENCE, exit=True, file=file)
        work(*arguments, **named)
        faulthandler.cancel_dump_traceback_later()
