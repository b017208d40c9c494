"""`noise2text serve`: answer requests over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import DeviceOption, PrecisionOption, app
from noise2text.cli.output import warn
from noise2text.cli.ray_options import RayCommand, RayOption

__all__ = ["serve"]


@app.command(cls=RayCommand)
def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Model folders or shipped names; NAME=FOLDER names one."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8000,
    guide: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="A classifier that requests may name; may be repeated."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="A file of API keys, one per line; also the variable NOISE2TEXT_API_KEYS."),
    ] = None,
    rate_limit: Annotated[
        int, typer.Option(help="Requests per minute and key, or address without keys; 0 is no limit.")
    ] = 0,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may call the service; may be repeated.")
    ] = None,
    max_models: Annotated[int, typer.Option(help="Models in memory; the least recently used goes.")] = 2,
    max_queue: Annotated[int, typer.Option(help="Texts that may wait for a model.")] = 1024,
    max_batch: Annotated[int, typer.Option(help="Texts that go through the network together.")] = 32,
    max_texts: Annotated[int, typer.Option(help="Texts per request.")] = 64,
    max_characters: Annotated[int, typer.Option(help="Characters per text.")] = 2000,
    max_candidates: Annotated[int, typer.Option(help="Candidates per text.")] = 64,
    max_steps: Annotated[int, typer.Option(help="Denoising steps; the model's default is allowed.")] = 200,
    max_body: Annotated[int, typer.Option(help="Bytes per request.")] = 1 << 20,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts of users.")] = False,
    device: DeviceOption = None,
    precision: PrecisionOption = "auto",
    ray: RayOption = None,
    min_replicas: Annotated[int, typer.Option(help="With --ray, the fewest replicas.")] = 1,
    max_replicas: Annotated[
        int | None, typer.Option(help="With --ray, the most replicas; by default one per GPU, or per core.")
    ] = None,
    scale_up_seconds: Annotated[
        float, typer.Option(help="With --ray, how long a load lasts before replicas are added.")
    ] = 30,
    scale_down_seconds: Annotated[
        float, typer.Option(help="With --ray, how long replicas have too little to do before some end.")
    ] = 600,
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
    limits = Limits(
        texts=max_texts,
        characters=max_characters,
        candidates=max_candidates,
        steps=max_steps,
        body_bytes=max_body,
        queue=max_queue,
        batch=max_batch,
        models=max_models,
    )
    options = Options(
        host=host,
        port=port,
        guides=parse_assignments(guide),
        keys=keys,
        rate_limit=rate_limit,
        allow_origins=allow_origin or [],
        log_texts=log_texts,
        device=device,
        precision=precision,
    )
    if ray is None:
        serve_models(models, limits, options, say=warn)
        return
    from noise2text.serving.ray_serve import RayCluster, serve_on_ray

    cluster = RayCluster(ray, min_replicas, max_replicas, scale_up_seconds, scale_down_seconds)
    serve_on_ray(models, limits, options, cluster=cluster, say=warn)
