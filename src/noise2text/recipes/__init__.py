"""Recipes: every system of the papers, one file for each system or family.

A file in this folder is a recipe if it defines `RECIPE`, or several if it defines `RECIPES`. Importing this
package registers them all; `models/registry.py` does so when a recipe is first needed. A recipe can also
live in another package, as an entry point of the group `noise2text.recipes` (examples/my_recipe).
"""

from __future__ import annotations

import importlib
import pkgutil

from noise2text.models.registry import register

for _file in pkgutil.iter_modules(__path__):
    _module = importlib.import_module(f"{__name__}.{_file.name}")
    for _recipe in getattr(_module, "RECIPES", None) or (_module.RECIPE,):
        register(_recipe)
