"""`noise2text recipes`: list the recipes."""

from __future__ import annotations

import json

from noise2text.cli.options import JsonOption, app

__all__ = ["recipes"]


@app.command()
def recipes(as_json: JsonOption = False) -> None:
    """List the recipes, their papers and their presets."""
    from noise2text.models.registry import list_recipes

    rows = [
        {
            "name": r.name,
            "paper": r.paper,
            "section": r.paper_section,
            "summary": r.summary,
            "presets": list(r.presets),
        }
        for r in list_recipes().values()
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        indent = " " * (width + 2)
        print(f"{row['name']:<{width}}  {row['summary']}")
        print(f"{indent}{row['paper']}, section {row['section']}")
        print(f"{indent}presets: {', '.join(row['presets'])}")
