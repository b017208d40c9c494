"""The settings of each run side by side, with differences marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noise2text.models.fingerprint import fingerprint_model
from noise2text.report.html import Html, Section, details, element, join_html, table
from noise2text.report.report_data import ReportData

__all__ = ["show_settings"]


def show_settings(data: ReportData) -> Section:
    """The facts about each model, and all settings of training and generation."""
    names = [each.name for each in data.runs]
    facts = [
        _facts(each.inspection["model"], fingerprint_model(each.folder), str(each.folder))
        for each in data.runs
    ]
    trained = [each.inspection["settings"] for each in data.runs]
    generated = [each.inspection["generation"] for each in data.runs]
    body = join_html(
        _settings_table("The models", names, facts, marked=False),
        details("Training settings", _settings_table("Training settings", names, trained)),
        details("Generation settings", _settings_table("Generation settings", names, generated)),
    )
    return Section("settings", "Runs", body)


def _facts(model: Mapping[str, Any], fingerprint: str, folder: str) -> dict[str, Any]:
    shown = {name: f"{value:,}" if isinstance(value, int) else value for name, value in model.items()}
    return {"folder": folder} | shown | {"fingerprint": element("code", fingerprint)}


def _settings_table(
    title: str, names: Sequence[str], columns: Sequence[Mapping[str, Any]], *, marked: bool = True
) -> Html:
    """One row per setting that some run has; with `marked`, rows in which runs differ are bold."""
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
