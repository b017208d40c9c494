"""A line of a file as a record: the fields of a JSON object, the columns of TSV, or one text.

Fields are checked when they are asked for, and what is wrong is said with the line's place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from noise2text.data.text_files import Line

__all__ = ["FORMATS", "Labelled", "LineError", "Record", "from_json", "from_text", "from_tsv", "is_record"]


@dataclass(frozen=True)
class Labelled:
    """A text and the name of its class."""

    text: str
    label: str


class LineError(Exception):
    """Where a line is and what is wrong with it."""

    def __init__(self, line: Line, reason: str) -> None:
        super().__init__(f"{line.place}: {reason}")


NAMES = {"src": "the source", "trg": "the target", "text": "the text"}


@dataclass(frozen=True)
class Record:
    """The fields of a line; they are checked when asked for."""

    line: Line
    fields: dict[str, object]

    def text(self, key: str) -> str:
        """A field that must be a string."""
        if key not in self.fields and not self.line.data.strip():
            raise LineError(self.line, "the line is empty")
        if key not in self.fields:
            raise LineError(self.line, f'there is no field "{key}"{self._others()}')
        return self.string(self.fields[key], key)

    def _others(self) -> str:
        """What the line has instead, for whoever named the fields otherwise."""
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in list(self.fields)[:4])
        return f" (there is {names})" if names and self.line.data.startswith(b"{") else ""

    def string(self, value: object, key: str) -> str:
        """The value, if it is a text that UTF-8 can hold."""
        if not isinstance(value, str):
            raise LineError(self.line, f'"{key}" is not a string')
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can escape one half of a surrogate pair
            raise LineError(self.line, f'"{key}" holds half of a surrogate pair') from error
        return value

    def side(self, key: str) -> str:
        """A field that must also say something."""
        text = self.text(key)
        if not text.strip():
            raise LineError(self.line, f"{NAMES[key]} is empty")
        return text

    def refs(self) -> tuple[str, ...]:
        """The further references, none if the field is missing."""
        refs = self.fields.get("refs")
        if refs is None:
            return ()
        if not isinstance(refs, list):
            raise LineError(self.line, '"refs" is not a list')
        return tuple(self.string(ref, "refs") for ref in refs)

    def candidates(self) -> list[str] | None:
        """The texts to choose from, bare or each with its "text"; none if the field is missing."""
        found = self.fields.get("candidates")
        if found is None:
            return None
        if not isinstance(found, list):
            raise LineError(self.line, '"candidates" is not a list')
        bare = [one.get("text") if isinstance(one, dict) else one for one in found]
        return [self.string(one, "candidates") for one in bare]

    def first(self, *keys: str) -> str:
        """The first of the fields that is there."""
        for key in keys:
            if key in self.fields:
                return self.text(key)
        raise LineError(self.line, f"there is no field {' or '.join(json.dumps(key) for key in keys)}")

    def references(self) -> tuple[str, ...]:
        """The target and then the other references, or these alone if the target is among them."""
        refs = self.refs()
        if refs and "trg" not in self.fields:
            return refs
        target = self.first("trg", "text")
        return refs if target in refs else (target, *refs)

    def labelled(self) -> Labelled:
        """The text, which must say something, and its label."""
        label = self.fields.get("label")
        if isinstance(label, bool) or not isinstance(label, str | int) or label == "":
            raise LineError(self.line, 'there is no "label" that is a string or a whole number')
        return Labelled(self.side("trg" if "trg" in self.fields else "text"), str(label))


def _decoded(line: Line) -> str:
    try:
        return line.data.decode()
    except UnicodeDecodeError as error:
        raise LineError(line, f"byte {error.start + 1} of the line is not valid UTF-8") from error


def from_text(line: Line) -> Record:
    return Record(line, {"text": _decoded(line)})


def from_tsv(line: Line) -> Record:
    columns = _decoded(line).split("\t")
    if len(columns) != 2:
        raise LineError(line, f"{len(columns) - 1} tabs, where source TAB target has one")
    return Record(line, {"src": columns[0], "trg": columns[1]})


def from_json(line: Line) -> Record:
    """The object; a bare string is a text, and so is an empty line."""
    text = _decoded(line)
    try:
        value = json.loads(text) if text.strip() else ""
    except (ValueError, RecursionError) as error:
        raise LineError(line, "this is not JSON") from error
    if isinstance(value, str):
        return Record(line, {"text": value})
    if not isinstance(value, dict):
        raise LineError(line, "this is not a JSON object")
    return Record(line, value)


FORMATS = {".jsonl": from_json, ".ndjson": from_json, ".tsv": from_tsv}


def is_record(line: Line) -> bool:
    """Whether a line is a JSON object with a text in it, which nobody would want to be taken for a text."""
    known = {"src", "trg", "text", "hyp", "refs", "candidates"}
    try:
        return not known.isdisjoint(from_json(line).fields) and line.data.startswith(b"{")
    except LineError:
        return False
