"""Which fields of a row are the source and the target: by their names, by --fields, or by their order.

src,trg   source,target   de,en   german,english    known names, in objects and in the header of a table
{"translation": {"de": "…", "en": "…"}}             a row of the Hugging Face hub; the first is the source
corpus.csv[de,en]                                   the fields that --fields names, as part of a path
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noise2text.core.errors import Problem, suggest

__all__ = ["is_header", "map_columns", "map_object"]

SOURCES = ("src", "source", "input")
TARGETS = ("trg", "tgt", "target", "output")
OTHERS = ("text", "hyp", "label", "refs", "id")
LANGUAGE_NAMES = (
    "ar bg cs da de el en es et fi fr he hi hr hu id it ja ko lt lv nl no pl pt ro ru sk sl sv th tr uk vi "
    "zh arabic chinese czech danish dutch english finnish french german greek hindi hungarian italian "
    "japanese korean norwegian polish portuguese romanian russian spanish swedish turkish ukrainian"
)
LANGUAGES = frozenset(LANGUAGE_NAMES.split())


def is_header(names: Sequence[str]) -> bool:
    """Whether these cells of a first line are names of columns and not texts."""
    lowered = [name.strip().lower() for name in names]
    known = {*SOURCES, *TARGETS, *OTHERS}
    if len(lowered) == 1:
        return lowered[0] in known
    languages = [name for name in lowered if name in LANGUAGES]
    return sum(name in known for name in lowered) > 1 or len(set(languages)) > 1


def map_columns(names: Sequence[str], fields: Sequence[str], path: str) -> dict[str, int]:
    """The column of src and trg, or of text, and of what else has a known name."""
    lowered = [name.strip().lower() for name in names]
    others = {name: lowered.index(name) for name in OTHERS if name in lowered}
    if fields:
        chosen = [_find_column(name, names, path) for name in fields]
        label = {name: column for name, column in others.items() if name == "label"}
        return label | dict(zip(("src", "trg") if len(chosen) == 2 else ("text",), chosen, strict=True))
    source, target = (
        next((lowered.index(name) for name in known if name in lowered), None) for known in (SOURCES, TARGETS)
    )
    if source is not None or target is not None:
        return others | {key: at for key, at in (("src", source), ("trg", target)) if at is not None}
    if "text" in others or "hyp" in others:
        return others
    unnamed = [at for at, name in enumerate(lowered) if name not in OTHERS]
    languages = [at for at in unnamed if lowered[at] in LANGUAGES]
    chosen = languages if len(languages) == 2 else unnamed
    if len(chosen) > 2:
        example = ",".join(names[at] for at in (languages or chosen)[:2])
        raise Problem(
            f"{path} has the columns {', '.join(names)}: name the source and the target with --fields, such "
            f"as --fields {example}."
        )
    return others | dict(zip(("src", "trg") if len(chosen) == 2 else ("text",), chosen, strict=False))


def _find_column(field: str, names: Sequence[str], path: str) -> int:
    stripped = [name.strip() for name in names]
    if field in stripped:
        return stripped.index(field)
    raise Problem(f"{path} has no column {field!r}; {suggest(field, stripped)}")


def map_object(row: Mapping[str, object], fields: Sequence[str]) -> dict[str, object]:
    """The fields of a JSON object or a row of Parquet, with src and trg, or text, where they are known."""
    translation = row.get("translation")
    inner = translation if isinstance(translation, dict) else {}
    flat = {**row, **inner}
    if fields:
        keys = ("src", "trg") if len(fields) == 2 else ("text",)
        kept = {name: row[name] for name in ("refs", "label") if name in row}
        return kept | {key: flat[name] for key, name in zip(keys, fields, strict=True) if name in flat}
    if len(inner) == 2 and "src" not in row:
        return dict(row) | dict(zip(("src", "trg"), inner.values(), strict=True))
    return dict(row) if _FINAL_NAMES & row.keys() else {**row, **_find_pair(row)}


_FINAL_NAMES = frozenset({"src", "trg", "text", "hyp"})


def _find_pair(row: Mapping[str, object]) -> dict[str, object]:
    """The source and the target of an object whose fields have other names, as far as they are known."""
    names = list(row)
    if not all(isinstance(name, str) for name in names) or not is_header(names):
        return {}
    try:
        columns = map_columns(names, (), "a row")
    except Problem:  # more than two languages
        return {}
    return {key: row[names[columns[key]]] for key in ("src", "trg") if key in columns}
