"""A connection to a Ray cluster, or to one that lives as long as the command."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from noise2text.core.errors import Problem

__all__ = ["connect_to_ray", "count_workers"]


@contextmanager
def connect_to_ray(address: str | None = None, *, num_cpus: int | None = None) -> Iterator[Any]:
    """Context manager: the module `ray`, connected to a cluster.

    Args:
        address: HOST:PORT of a cluster, or `local` for a new one on this machine; by default the cluster of
            the variable RAY_ADDRESS, or the one that `ray start` started on this machine, or a new one.
        num_cpus: the cores of a new cluster; by default all of this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use to its makers
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what fails is retried, or raised here
    try:
        import ray
    except ImportError as error:
        raise Problem("--ray needs the package ray: pip install 'noise2text[ray]'.") from error
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS")
    _check_reachable(address)
    try:
        ray.init(
            address=address,
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_cluster(address, str(error).splitlines()[0]) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Raise a Problem if nobody listens at HOST:PORT; Ray would ask for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str | None, reason: str) -> Problem:
    return Problem(
        f"There is no Ray cluster at {address or 'this machine'} ({reason}): start it with ray start, or "
        "leave out the address to start one here."
    )


def count_workers(ray: Any, asked: int | None) -> tuple[int, dict[str, float]]:
    """The number of workers, and what each takes of the cluster: a GPU if there are any, else a core."""
    if asked is not None and asked < 1:
        raise Problem(f"--workers must be at least 1, not {asked}.")
    resources = ray.cluster_resources()
    kind, name = ("num_gpus", "GPU") if resources.get("GPU", 0) else ("num_cpus", "CPU")
    return asked or max(1, int(resources.get(name, 1))), {kind: 1}
