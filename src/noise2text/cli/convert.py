"""`noise2text convert`: bring an older or foreign model up to today's format."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import app
from noise2text.core.errors import Problem

__all__ = ["convert"]


class Origin(StrEnum):
    """Whose code wrote a model."""

    NOISE2TEXT = "noise2text"
    DIFFUSEQ = "diffuseq"
    DIFFORMER = "difformer"


class WeightType(StrEnum):
    """How weights are stored."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"


@app.command()
def convert(
    old: Annotated[
        Path, typer.Argument(help="The folder of a model or classifier, or a .pt file of released code.")
    ],
    new: Annotated[Path, typer.Argument(help="The folder to write.")],
    origin: Annotated[
        Origin,
        typer.Option(
            "--from", help="What wrote it: an older noise2text, or DiffuSeq's or Difformer's released code."
        ),
    ] = Origin.NOISE2TEXT,
    weights: Annotated[
        WeightType | None,
        typer.Option(
            help="Store the weights of a model in this type: int8 takes a quarter of the space of float32."
        ),
    ] = None,
) -> None:
    """Convert a model of an older version, or of DiffuSeq's or Difformer's released code.

    The new folder has today's format; the model stays the same. With --weights, a model of today's format is
    written with smaller weights.
    """
    from noise2text.models.shipped import find_model_folder

    if weights is not None:
        from noise2text.models.convert import store_weights

        if origin is not Origin.NOISE2TEXT:
            raise Problem("Convert the released model first; then convert its folder with --weights.")
        store_weights(find_model_folder(old), new, weights)
        print(f"{new}: the model of {old} with its weights in {weights}")
        return
    if origin is Origin.DIFFUSEQ:
        from noise2text.models.import_diffuseq import import_diffuseq

        import_diffuseq(old, new)
    elif origin is Origin.DIFFORMER:
        from noise2text.models.import_difformer import import_difformer

        import_difformer(old, new)
    else:
        from noise2text.models.convert import convert_folder

        convert_folder(find_model_folder(old), new)
    print(f"{new}: the model of {old} in today's format")
