"""The service on Ray Serve: replicas of the same application, as many as the load needs.

A replica is what `noise2text serve` starts on one machine, with a queue, batches and models of its own. An
answer depends on its request alone, so it does not matter which replica gives it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI

from noise2text.commands.ray_cluster import connect_to_ray, count_workers
from noise2text.core.errors import Problem
from noise2text.core.signals import defer_signals
from noise2text.serving.access import ApiKeys
from noise2text.serving.app import build_app
from noise2text.serving.limits import Limits
from noise2text.serving.server import listen
from noise2text.serving.start import Options, build_service

__all__ = ["RayCluster", "describe_deployment", "serve_on_ray"]

NAME = "noise2text"
SECONDS_TO_END = 60  # for what replicas have accepted
SECONDS_TO_PASS_ON = 2  # for answers on their way through Ray's proxies


@dataclass(frozen=True)
class RayCluster:
    """Where replicas run and how many; without a maximum, one per GPU, or per core without GPUs.

    Load, or its absence, must last `scale_up_seconds` or `scale_down_seconds` before the number changes.
    """

    address: str | None = None
    min_replicas: int = 1
    max_replicas: int | None = None
    scale_up_seconds: float = 30
    scale_down_seconds: float = 600

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.min_replicas < 1:
            raise Problem(f"--min-replicas must be at least 1, not {self.min_replicas}.")
        for name in ("scale_up_seconds", "scale_down_seconds"):
            if getattr(self, name) <= 0:
                option = f"--{name.replace('_', '-')}"
                raise Problem(f"{option} must be more than 0, not {getattr(self, name)}.")


def serve_on_ray(
    models: Sequence[str],
    limits: Limits,
    options: Options,
    *,
    cluster: RayCluster,
    say: Callable[[str], None],
) -> None:
    """Serve until a signal ends the service; replicas finish what they have accepted."""
    cluster.check()
    models = list(map(_make_absolute, models))
    keys = build_service(models, limits, options).keys  # also finds mistakes before anything is started
    with listen(options.host, options.port) as listener:
        port = listener.getsockname()[1]
    guides = {name: os.path.abspath(folder) for name, folder in options.guides.items()}
    options = replace(options, port=port, guides=guides, keys=None)
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")  # a busy machine starts slowly
    with connect_to_ray(cluster.address) as ray:
        number, resources = count_workers(ray, cluster.max_replicas)
        if number < cluster.min_replicas:
            raise Problem(f"--min-replicas {cluster.min_replicas} is above the {number} that are allowed.")
        deployment = describe_deployment(
            lambda: build_replica(models, limits, options, keys=keys),
            limits=limits,
            cluster=replace(cluster, max_replicas=number),
            resources=resources,
        )
        _run(deployment, options, say=say)


def build_replica(models: Sequence[str], limits: Limits, options: Options, *, keys: ApiKeys) -> FastAPI:
    """The application of a replica, with its first model loaded; runs in the replica's process."""
    logging.getLogger("noise2text.serving").setLevel(logging.INFO)
    service = build_service(models, limits, options)
    service.keys = keys  # the machine of the replica has neither the file nor the variable
    service.pool.warm_up(next(iter(service.pool.models)))
    return build_app(service, allow_origins=options.allow_origins)


def describe_deployment(
    build: Callable[[], FastAPI], *, limits: Limits, cluster: RayCluster, resources: dict[str, float]
) -> Any:
    """What Ray Serve deploys: a replica is full when a batch waits behind the one that is generated."""
    from ray import serve

    @serve.ingress(build)
    class Replica:
        app: FastAPI  # by `build`

        async def drain(self) -> None:
            """Answer 503 to new requests, and return when those that were accepted are answered."""
            pool = self.app.state.service.pool
            pool.close()
            await asyncio.to_thread(pool.join)

    return serve.deployment(
        Replica,
        name=NAME,
        ray_actor_options=resources,
        max_ongoing_requests=2 * limits.batch,
        max_queued_requests=limits.queue,
        backpressure_config={"retry_after_s": 1},
        graceful_shutdown_timeout_s=SECONDS_TO_END,
        autoscaling_config={
            "min_replicas": cluster.min_replicas,
            "max_replicas": cluster.max_replicas,
            "target_ongoing_requests": limits.batch,
            "upscale_delay_s": cluster.scale_up_seconds,
            "downscale_delay_s": cluster.scale_down_seconds,
            "metrics_interval_s": min(10.0, cluster.scale_up_seconds),
            "look_back_period_s": min(30.0, cluster.scale_up_seconds),
        },
    )


def _run(deployment: Any, options: Options, *, say: Callable[[str], None]) -> None:
    """Deploy, wait for a signal, and take everything down."""
    from ray import serve
    from ray.exceptions import RayError

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    quiet = {"enable_access_log": False, "log_level": "WARNING"}  # a path may have a text of a user
    with defer_signals() as is_stopped:
        try:
            serve.start(http_options={"host": options.host, "port": options.port}, logging_config=quiet)
            serve.run(deployment.bind(), name=NAME, logging_config=quiet)
            say(f"Serving on Ray at http://{options.host}:{options.port}")
            while not is_stopped():
                time.sleep(0.1)
            _drain_replicas()
        except (RayError, RuntimeError) as error:
            if is_stopped():
                raise Problem("Ray Serve could not end in good order; its logs say why.") from error
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise Problem(f"Ray Serve could not start the replicas ({reason}); its logs say why.") from error
        finally:
            serve.shutdown()


def _drain_replicas() -> None:
    """Let replicas answer what they have accepted, and 503 to the rest: a deleted route would answer 404."""
    from ray import serve

    with suppress(TimeoutError):
        draining = serve.get_app_handle(NAME).broadcast("drain")
        draining.results(timeout_s=SECONDS_TO_END, return_exceptions=True)
    time.sleep(SECONDS_TO_PASS_ON)


def _make_absolute(argument: str) -> str:
    """The model FOLDER, NAME=FOLDER or shipped name, with an absolute path, for processes elsewhere."""
    name, equals, folder = argument.rpartition("=")
    return f"{name}{equals}{os.path.abspath(folder)}" if os.path.isdir(folder) else argument
