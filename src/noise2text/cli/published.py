"""`noise2text published`: list the results that papers report."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from noise2text.cli.options import JsonOption, app

__all__ = ["published"]


@app.command()
def published(
    task: Annotated[str | None, typer.Option(help="Only this task, e.g. qqp or iwslt14-de-en.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the results that papers report.

    Each comes with its table and the kind of metric.
    """
    import dataclasses

    from noise2text.metrics.comparison import format_published
    from noise2text.metrics.published import published as find

    rows = find(task)
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    print("\n\n".join(format_published(rows)))
