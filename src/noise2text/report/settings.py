"""What was run: each run's model, settings and generation side by side, with what differs marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noise2text.models.fingerprint import identity
from noise2text.report.evidence import Evidence
from noise2text.report.markup import Html, Section, details, element, joined, table

__all__ = ["settings"]


def settings(evidence: Evidence) -> Section:
    """The facts of each model, and all settings of training and generation."""
    names = [each.name for each in evidence.subjects]
    facts = [
        _facts(each.seen["model"], identity(each.folder), str(each.folder)) for each in evidence.subjects
    ]
    trained = [each.seen["settings"] for each in evidence.subjects]
    generated = [each.seen["generation"] for each in evidence.subjects]
    body = joined(
        _side_by_side("The models", names, facts, marked=False),
        details("Settings of training", _side_by_side("Settings of training", names, trained)),
        details("Settings of generation", _side_by_side("Settings of generation", names, generated)),
    )
    return Section("settings", "What was run", body)


def _facts(model: Mapping[str, Any], fingerprint: str, folder: str) -> dict[str, Any]:
    shown = {name: f"{value:,}" if isinstance(value, int) else value for name, value in model.items()}
    return {"folder": folder} | shown | {"fingerprint": element("code", fingerprint)}


def _side_by_side(
    title: str, names: Sequence[str], columns: Sequence[Mapping[str, Any]], *, marked: bool = True
) -> Html:
    """A row for each setting that some run has; a row in which runs differ is shaded where `marked`."""
    rows = []
    for key in dict.fromkeys(key for column in columns for key in column):
        values = [_shown(column[key]) if key in column else "–" for column in columns]
        differs = marked and len(set(values)) > 1
        rows.append([element("b", key) if differs else key, *values])
    return table(["", *names], rows, label=title)


def _shown(value: Any) -> object:
    if isinstance(value, Html):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
