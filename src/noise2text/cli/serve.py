"""`noise2text serve`: answer requests over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.options import Hardware, app
from noise2text.cli.output import warn
from noise2text.cli.ray_options import RayAddress, RayCommand

__all__ = ["serve"]


class Access(OptionGroup):
    """Where the service listens, and whom it answers: fields of `serving.start.Options`."""

    panel = "Access"
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8000
    keys: Annotated[
        Path | None,
        typer.Option(help="A file of API keys, one per line; also the variable NOISE2TEXT_API_KEYS."),
    ] = None
    rate_limit: Annotated[
        int, typer.Option(help="Requests per minute and key, or address without keys; 0 is no limit.")
    ] = 0
    allow_origins: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="An origin whose pages may call the service; may be repeated."),
    ] = None
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts of users.")] = False


class RequestLimits(OptionGroup):
    """The most that may be asked for, wait or be in memory: fields of `serving.limits.Limits`."""

    panel = "Limits"
    models: Annotated[
        int, typer.Option("--max-models", help="Models in memory; the least recently used goes.")
    ] = 2
    queue: Annotated[int, typer.Option("--max-queue", help="Texts that may wait for a model.")] = 1024
    batch: Annotated[int, typer.Option("--max-batch", help="Texts that go through the network together.")] = (
        32
    )
    texts: Annotated[int, typer.Option("--max-texts", help="Texts per request.")] = 64
    characters: Annotated[int, typer.Option("--max-characters", help="Characters per text.")] = 2000
    candidates: Annotated[int, typer.Option("--max-candidates", help="Candidates per text.")] = 64
    steps: Annotated[
        int, typer.Option("--max-steps", help="Denoising steps; the model's default is allowed.")
    ] = 200
    body_bytes: Annotated[int, typer.Option("--max-body", help="Bytes per request.")] = 1 << 20


class Replicas(RayAddress):
    """How many replicas a Ray cluster has: fields of `serving.ray_serve.RayCluster`."""

    min_replicas: Annotated[int, typer.Option(help="With --ray, the fewest replicas.")] = 1
    max_replicas: Annotated[
        int | None, typer.Option(help="With --ray, the most replicas; by default one per GPU, or per core.")
    ] = None
    scale_up_seconds: Annotated[
        float, typer.Option(help="With --ray, how long a load lasts before replicas are added.")
    ] = 30
    scale_down_seconds: Annotated[
        float, typer.Option(help="With --ray, how long replicas have too little to do before some end.")
    ] = 600


@app.command(cls=RayCommand)
def serve(
    served: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Model folders or shipped names; NAME=FOLDER names one."),
    ],
    guide: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="A classifier that requests may name; may be repeated."),
    ] = None,
    **options: Annotated[Any, Access, RequestLimits, Hardware, Replicas],
) -> None:
    """Answer requests over HTTP: generation, denoising steps, and LibreTranslate's interface."""
    from noise2text.core.command_line import parse_assignments
    from noise2text.core.errors import Problem
    from noise2text.serving.limits import Limits

    try:
        from noise2text.serving.start import Options, serve_models
    except ModuleNotFoundError as error:
        raise Problem(
            f"The service needs the package {error.name}: pip install 'noise2text[serve]'."
        ) from error
    access, ray = Access(options), Replicas(options)
    limits = Limits(**vars(RequestLimits(options)))
    service = Options(
        **vars(access) | {"allow_origins": access.allow_origins or []},
        guides=parse_assignments(guide),
        **vars(Hardware(options)),
    )
    if ray.address is None:
        serve_models(served, limits, service, say=warn)
        return
    from noise2text.serving.ray_serve import RayCluster, serve_on_ray

    serve_on_ray(served, limits, service, cluster=RayCluster(**vars(ray)), say=warn)
