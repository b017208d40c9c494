"""YAML from strangers: text, numbers, truth values, lists and mappings, within limits.

YAML can do more than settings need: aliases and merge keys let a few lines stand for gigabytes, tags name
Python types, and thousands of brackets exhaust the stack. These are refused, with the line that has them. A
date is text, and every key is text.
"""

from __future__ import annotations

import functools
from typing import Any

from noise2text.core.errors import Problem, abbreviate

__all__ = ["MAX_DEPTH", "MAX_YAML_BYTES", "parse_yaml"]

MAX_YAML_BYTES = 100_000
"""The largest YAML text that is read; a whole configuration has about 5,000."""

MAX_DEPTH = 20
"""How many lists and mappings may be inside each other."""

_TYPES = ("null", "bool", "int", "float", "str", "seq", "map")
_TAG = "tag:yaml.org,2002:"


def parse_yaml(text: str, *, what: str) -> Any:
    """The value of a YAML text; `what` names it in messages, as in "The configuration c.yaml"."""
    import yaml

    if len(text) > MAX_YAML_BYTES:
        raise Problem(f"{what} is too large: YAML may have {MAX_YAML_BYTES:,} characters.")
    try:
        return yaml.load(text, Loader=_loader_class())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = " ".join((getattr(error, "problem", None) or str(error))[:200].split())
        where = f" in line {mark.line + 1}" if mark else ""
        raise Problem(f"{what} is not plain YAML{where}: {reason}.") from error


@functools.cache
def _loader_class() -> type:
    """A loader of plain values; PyYAML is imported only when it is needed."""
    import yaml
    from yaml.constructor import ConstructorError

    class PlainLoader(yaml.SafeLoader):
        """SafeLoader without aliases, merge keys, dates and tags, whose keys are text."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            mark: Any = event.start_mark
            if isinstance(event, yaml.AliasEvent):
                raise ConstructorError(None, None, "write out what the alias stands for", mark)
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise ConstructorError(
                    None, None, f"at most {MAX_DEPTH} levels may be inside each other", mark
                )
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if key.tag != f"{_TAG}str":
                    shown = abbreviate(key.value) if isinstance(key.value, str) else "a list or mapping"
                    raise ConstructorError(
                        None, None, f"a setting's name is text, not {shown}; quote it", key.start_mark
                    )
                if key.value in seen:  # the first value would be lost
                    reason = f"{abbreviate(key.value)} is there twice; drop one"
                    raise ConstructorError(None, None, reason, key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep=deep)
            except (ValueError, KeyError, OverflowError) as error:  # such as 5,000 digits or "!!int x"
                reason = f"{abbreviate(node.value)} is no value of the type {node.tag.removeprefix(_TAG)}"
                raise ConstructorError(None, None, reason, node.start_mark) from error

    PlainLoader.yaml_constructors = {
        f"{_TAG}{name}": yaml.SafeLoader.yaml_constructors[f"{_TAG}{name}"] for name in _TYPES
    } | {None: yaml.SafeLoader.yaml_constructors[None]}
    PlainLoader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag.removeprefix(_TAG) in _TYPES]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return PlainLoader
