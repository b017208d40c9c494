"""From the settings of a request to a generation config of its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem, suggest
from noise2text.serving.limits import CANDIDATE_FACTORS, Limits, check_config

__all__ = ["name_candidates", "resolve_config", "resolve_guide"]


def name_candidates(config: Any, n: int, settings: Mapping[str, Any]) -> dict[str, int]:
    """The settings that give at least n candidates, and as many lengths as the model tries by default."""
    if n < 1:
        raise Problem(f"The number of candidates n must be at least 1, not {n}.")
    if clash := [name for name in CANDIDATE_FACTORS if name in settings]:
        raise Problem(f"Give either n or {' and '.join(clash)}: both decide the number of candidates.")
    is_given_length = settings.get("length", getattr(config, "length", None)) is not None
    lengths = min(n, config.length_beam) if hasattr(config, "length_beam") and not is_given_length else 1
    if hasattr(config, "noise_beam"):
        own = {"noise_beam": math.ceil(n / lengths)}
        return own | ({"length_beam": lengths} if hasattr(config, "length_beam") else {})
    name = next((each for each in ("length_beam", "beam", "neighbours") if hasattr(config, each)), None)
    if name is None:
        raise Problem("This model generates one text for each text: leave out n.")
    return {"samples" if getattr(config, "samples", 0) else name: n}


def resolve_guide(settings: Mapping[str, Any], guides: Mapping[str, str]) -> dict[str, Any]:
    """The settings with the folder of the classifier that they name; a request cannot name a folder."""
    name = settings.get("guide")
    if not name:
        return dict(settings)
    if name not in guides:
        known = suggest(str(name), guides) if guides else "the service has none; see serve --guide."
        raise Problem(f"There is no classifier {name!r}; {known}")
    return {**settings, "guide": guides[name]}


def resolve_config(
    settings: Mapping[str, Any], default: Any, *, guides: Mapping[str, str], limits: Limits
) -> tuple[dict[str, Any], Any]:
    """The settings to generate with and the whole config, after all checks."""
    resolved = resolve_guide(settings, guides)
    config = apply_overrides(default, resolved, origin="The request")
    check_config(config, default, limits)
    return resolved, config
