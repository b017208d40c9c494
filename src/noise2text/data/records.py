"""A record is what one line or row of a file holds: JSON fields, the columns of TSV, or one text.

Fields are checked when they are read, and errors name the line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from noise2text.data.text_files import MAX_LINE_BYTES, FileLine

__all__ = [
    "EncodingError",
    "LabeledText",
    "LineError",
    "Record",
    "decode",
    "is_record",
    "join_references",
    "parse_json",
    "parse_text",
    "parse_tsv",
]


@dataclass(frozen=True)
class LabeledText:
    """A text and the name of its class."""

    text: str
    label: str


class LineError(Exception):
    """An error in a line: its location and what is wrong."""

    def __init__(self, line: FileLine, reason: str) -> None:
        super().__init__(f"{line.location}: {reason}")


class EncodingError(LineError):
    """A line that is not UTF-8; `suspect` is the encoding that it probably has, or is empty."""

    def __init__(self, line: FileLine, reason: str, suspect: str) -> None:
        super().__init__(line, reason)
        self.suspect = suspect


FIELD_DESCRIPTIONS = {"src": "the source", "trg": "the target", "text": "the text"}


@dataclass(frozen=True)
class Record:
    """The fields of a line, checked when they are read."""

    line: FileLine
    fields: dict[str, object]

    def get_text(self, key: str) -> str:
        """A field that must be a string and not blank."""
        if key not in self.fields and self.fields == {"text": ""}:
            raise LineError(self.line, "the line is empty")
        if key not in self.fields:
            raise LineError(self.line, f'there is no field "{key}"{self.describe_fields()}')
        text = self.check_string(self.fields[key], key)
        if not text.strip():
            raise LineError(self.line, f"{FIELD_DESCRIPTIONS[key]} is empty")
        return text

    @property
    def inner_fields(self) -> dict[str, object]:
        """The texts by language in the field "translation", as on the Hugging Face hub; else none."""
        translation = self.fields.get("translation")
        return translation if isinstance(translation, dict) else {}

    def describe_fields(self) -> str:
        """The fields that the line has instead, for an error message."""
        found = [*self.inner_fields] or [name for name in self.fields if name != "text"]
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in found[:4])
        return f" (there is {names}: choose with --fields)" if names else ""

    def check_string(self, value: object, key: str) -> str:
        """The value, if it is a string that UTF-8 can encode."""
        if not isinstance(value, str):
            raise LineError(self.line, f'"{key}" is not a string')
        if len(value) > MAX_LINE_BYTES:  # in Parquet, which has no lines
            raise LineError(self.line, f'"{key}" is longer than {MAX_LINE_BYTES:,} characters; split it')
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can escape one half of a surrogate pair
            raise LineError(self.line, f'"{key}" contains half of a surrogate pair') from error
        return value

    def get_refs(self) -> tuple[str, ...]:
        """The other references; none if the field is missing."""
        refs = self.fields.get("refs")
        if refs is None:
            return ()
        if not isinstance(refs, list):
            raise LineError(self.line, '"refs" is not a list')
        return tuple(self.check_string(ref, "refs") for ref in refs)

    def get_candidates(self) -> list[str] | None:
        """The candidates, strings or objects with "text"; None if the field is missing."""
        return self._get_texts("candidates")

    def get_alternatives(self) -> list[str] | None:
        """The alternatives, best first; None if the field is missing."""
        return self._get_texts("alternatives")

    def _get_texts(self, key: str) -> list[str] | None:
        found = self.fields.get(key)
        if found is None:
            return None
        if not isinstance(found, list):
            raise LineError(self.line, f'"{key}" is not a list')
        bare = [one.get("text") if isinstance(one, dict) else one for one in found]
        return [self.check_string(one, key) for one in bare]

    def get_first_text(self, *keys: str) -> str:
        """The first of these fields that exists, which may be blank."""
        for key in keys:
            if key in self.fields:
                return self.check_string(self.fields[key], key)
        raise LineError(self.line, f"there is no field {' or '.join(json.dumps(key) for key in keys)}")

    def get_references(self) -> tuple[str, ...]:
        """The target and the other references; without a target, these alone."""
        refs = self.get_refs()
        if refs and "trg" not in self.fields:
            return refs
        return join_references(self.get_first_text("trg", "text"), refs)

    def get_labeled_text(self) -> LabeledText:
        """The text, which must not be blank, and its label."""
        label = self.fields.get("label")
        if isinstance(label, bool) or not isinstance(label, str | int) or label == "":
            raise LineError(self.line, 'there is no "label" that is a string or a whole number')
        return LabeledText(self.get_text("trg" if "trg" in self.fields else "text"), str(label))


def join_references(target: str, refs: tuple[str, ...]) -> tuple[str, ...]:
    """The target and then the other references, or these alone if the target is among them."""
    return refs if target in refs else (target, *refs)


def decode(line: FileLine) -> str:
    """The line as text; an `EncodingError` unless it is UTF-8."""
    if len(line.data) > MAX_LINE_BYTES:
        raise LineError(line, f"the line is longer than {MAX_LINE_BYTES:,} bytes; split it")
    try:
        return line.data.decode()
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} of the line is not valid UTF-8"
        is_binary = any(byte in _BINARY for byte in line.data)
        suspect = "" if is_binary else _suspect_encoding(line.data)
        found = suspect or ("a binary file; name one of plain text" if is_binary else "")
        hint = f" (it looks like {found})" if found else ""
        raise EncodingError(line, reason + hint, suspect) from error


_BINARY = frozenset(range(9)) | frozenset(range(14, 27))
"""Control characters that no text has."""


def _suspect_encoding(data: bytes) -> str:
    """Windows-1252, which includes Latin-1, if it has letters or usual marks for all bytes above ASCII."""
    try:
        high = bytes(byte for byte in data if byte > 127).decode("cp1252")
    except UnicodeDecodeError:
        return ""
    usual = sum(each.isalpha() or each in "\xa0¡«°´·»¿–—‘’“”„…€§" for each in high)
    return "Windows-1252 or Latin-1" if usual == len(high) else ""


def parse_text(line: FileLine) -> Record:
    return Record(line, {"text": decode(line)})


def parse_tsv(line: FileLine) -> Record:
    columns = decode(line).split("\t")
    if len(columns) != 2:
        raise LineError(line, f"expected one tab (source TAB target), found {len(columns) - 1}")
    return Record(line, {"src": columns[0], "trg": columns[1]})


def parse_json(line: FileLine) -> Record:
    """The fields of a JSON object; a JSON string or an empty line is a text."""
    text = decode(line)
    try:
        value = json.loads(text) if text.strip() else ""
    except (ValueError, RecursionError) as error:
        raise LineError(line, "this is not valid JSON (write one object per line)") from error
    if isinstance(value, str):
        return Record(line, {"text": value})
    if not isinstance(value, dict):
        raise LineError(line, "this is not a JSON object")
    return Record(line, value)


def is_record(line: FileLine, fields: Sequence[str] = ()) -> bool:
    """Whether a line is a JSON object with a known field, and therefore not a plain text."""
    known = {"src", "trg", "text", "hyp", "refs", "candidates", "translation", *fields}
    try:
        return not known.isdisjoint(parse_json(line).fields) and line.data.startswith(b"{")
    except LineError:
        return False
