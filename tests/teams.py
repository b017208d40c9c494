"""Several processes on this machine that train together, as torchrun would start them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["noise2text.runs.train", "torch.distributed.checkpoint"])


def together(world: int, work: Callable[..., Any], *arguments: Any, **named: Any) -> list[int]:
    """Let as many processes do the same work; returns their exit codes."""
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)  # so that the processes find this file
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    members = [
        _CONTEXT.Process(target=_member, args=(rank, world, port, work, arguments, named))
        for rank in range(world)
    ]
    for member in members:
        member.start()
    for member in members:
        member.join()
    return [member.exitcode or 0 for member in members]


def _member(
    rank: int, world: int, port: int, work: Callable[..., Any], arguments: Any, named: dict[str, Any]
) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    work(*arguments, **named)
