"""`noise2text recipes`: list the recipes."""

from __future__ import annotations

import json
from dataclasses import asdict

from noise2text.cli.folding import print_folded
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
    for recipe in list_recipes().values():
        section = f", section {recipe.paper_section}" if recipe.paper_section.strip("–") else ""
        measured = [f"{preset}: {result.describe()}" for preset, result in tiny_results(recipe.name).items()]
        facts = [recipe.summary, recipe.paper + section, f"presets: {', '.join(recipe.presets)}", *measured]
        print_folded("\n  ".join([recipe.name, *facts]))
    print_folded("\nMeasured with seed 0 on one thread of a shared machine, by")
    print_folded("\n".join(f"  {command}" for command in measuring_commands()))
