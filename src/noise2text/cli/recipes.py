"""`noise2text recipes`: list the recipes."""

from __future__ import annotations

import json
from dataclasses import asdict

from noise2text.cli.options import JsonOption, app

__all__ = ["recipes"]


@app.command()
def recipes(as_json: JsonOption = False) -> None:
    """List the recipes, their papers, their presets and what `tiny` reaches on dates."""
    from noise2text.models.registry import list_recipes
    from noise2text.models.tiny_results import measuring_commands, tiny_results

    rows = [
        {
            "name": r.name,
            "paper": r.paper,
            "section": r.paper_section,
            "summary": r.summary,
            "presets": list(r.presets),
            "measured": {name: asdict(result) for name, result in tiny_results(r.name).items()},
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
        for preset, result in tiny_results(str(row["name"])).items():
            print(f"{indent}{preset}: {result.describe()}")
    print("\nMeasured with seed 0 on one thread of a shared machine, by")
    for command in measuring_commands():
        print(f"    {command}")
