"""What Python's own HTML parser finds in a page."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "input"}


class Parsed(HTMLParser):
    """The elements with their attributes, the words, and what is not balanced."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.unbalanced: list[str] = []
        self.words: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.unbalanced += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self.words.setdefault(self._open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of each element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        """What an attribute is wherever it stands."""
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]
