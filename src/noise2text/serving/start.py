"""Start a service: read the configs of its models, load the first one, listen."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from noise2text.core.devices import find_device, find_dtype
from noise2text.core.errors import Problem
from noise2text.models.accelerate import make_batch_invariant_on_cpu
from noise2text.models.base import Model
from noise2text.models.folder import load
from noise2text.serving.access import RateLimit, read_keys
from noise2text.serving.app import build_app
from noise2text.serving.limits import Limits
from noise2text.serving.model_cache import ModelPool, describe_models
from noise2text.serving.prometheus import ServiceMetrics
from noise2text.serving.server import GracefulServer, allow_many_connections, listen
from noise2text.serving.service import Service

__all__ = ["Options", "build_service", "serve_models"]


@dataclass(frozen=True)
class Options:
    """Where a service listens, whom it answers and on what it computes."""

    host: str = "127.0.0.1"
    port: int = 8000
    guides: Mapping[str, str] = field(default_factory=dict)
    keys: Path | None = None
    rate_limit: int = 0
    allow_origins: Sequence[str] = ()
    log_texts: bool = False
    device: str | None = None
    precision: str = "auto"


def build_service(models: Sequence[str], limits: Limits, options: Options) -> Service:
    """The service of these models; nothing is loaded yet."""
    if options.rate_limit < 0:
        raise Problem(f"--rate-limit must be at least 0 requests a minute, not {options.rate_limit}.")
    find_dtype(options.precision, find_device(options.device))  # refuse a mistake before anything is loaded
    for name, folder in options.guides.items():
        if not (Path(folder) / "config.json").is_file():
            raise Problem(f"--guide {name}={folder}: there is no classifier in {folder}; check the path.")
    metrics = ServiceMetrics()
    pool = ModelPool(
        describe_models(models),
        limits,
        load_model=lambda folder: load_for_batches(folder, options),
        on_batch=metrics.observe_batch,
    )
    metrics.watch_queues(pool.num_waiting)
    return Service(
        pool,
        guides=options.guides,
        keys=read_keys(options.keys),
        rate_limit=RateLimit(options.rate_limit),
        metrics=metrics,
        log_texts=options.log_texts,
    )


def load_for_batches(folder: Path, options: Options) -> Model:
    """The model of a folder; if it shares batches, a CPU gives an answer the same bits whoever else asks."""
    model = load(folder, device=options.device, precision=options.precision)
    if model.quantizable_module is not None:
        make_batch_invariant_on_cpu(model, model.device)
    return model


def serve_models(
    models: Sequence[str], limits: Limits, options: Options, *, say: Callable[[str], None]
) -> None:
    """Serve until a signal ends the service; `say` shows a line, such as the address."""
    service = build_service(models, limits, options)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("noise2text.serving").setLevel(logging.INFO)
    if not service.keys.keys and not _is_loopback(options.host):
        say(f"Anybody who reaches {options.host} can use this service: --keys FILE asks for API keys.")
    allow_many_connections()
    with listen(options.host, options.port) as listener:
        service.pool.warm_up(next(iter(service.pool.models)))
        server = GracefulServer(build_app(service, allow_origins=options.allow_origins), service.pool)
        say(f"Serving {', '.join(service.pool.models)} at {_format_address(listener)}")
        server.run(sockets=[listener])


def _format_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
