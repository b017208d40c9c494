"""The server: on SIGTERM or Ctrl-C it finishes what was accepted, answers 503 to the rest, and ends."""

from __future__ import annotations

import socket
import threading
from types import FrameType

import uvicorn
from fastapi import FastAPI

from noise2text.core.errors import Problem
from noise2text.serving.model_cache import ModelPool

__all__ = ["GracefulServer", "allow_many_connections", "listen"]


KEEP_ALIVE_SECONDS = 130  # longer than the two minutes of Caddy, which would use a connection that is closed


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; port 0 takes a free one."""
    if not 0 <= port <= 65535:
        raise Problem(f"--port must be between 0 and 65535, not {port}.")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise Problem(
            f"The service cannot listen at {host}, port {port} ({error}): choose another --host or --port."
        ) from error


def allow_many_connections() -> None:
    """Raise the number of files that this process may open to the most that the system allows.

    Each connection is one; the usual limit of 1,024 is reached by a few impatient browsers.
    """
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class GracefulServer(uvicorn.Server):
    """A uvicorn server that empties the queues of its models before it stops listening."""

    def __init__(self, app: FastAPI, pool: ModelPool) -> None:
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=KEEP_ALIVE_SECONDS
        )
        super().__init__(config)
        self._pool = pool
        self._is_draining = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal; stop at once on the second."""
        if self._is_draining:
            self.should_exit = self.force_exit = True
            return
        self._is_draining = True
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self) -> None:
        """Accept nothing more, wait for what was accepted, and let the server end."""
        self._pool.close()
        self._pool.join()
        self.should_exit = True
