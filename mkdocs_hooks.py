"""Hooks of the documentation site: reference pages made from the code, and links that leave the site.

The pages of commands, settings and Python names are generated at every build, so that they cannot go stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

__all__ = ["DocstringSections", "on_files", "on_page_content", "on_page_markdown"]

LEAVES_THE_SITE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+((?:src|benchmarks|tests|examples)/[^)#]*|[A-Z]+\.md)[^)]*\)"
)
"""A link from a page to a file of the repository that is no page."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The pages of the site with the generated ones."""
    pages = {"commands": _commands_page(), "settings": _settings_page(), "python": _python_page()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the file's name in place of a link that leaves the site."""
    return LEAVES_THE_SITE.sub(lambda link: f"{link[1]} (`{link[2]}`)", markdown)


SHELL_BLOCK = re.compile(r'(?<=<div class="language-bash highlight">).*?(?=</div>)', re.DOTALL)
LONG_WORD = re.compile(r"(?<=[\s>])[^\s<>]*[-/][^\s<>]*")
"""A word that a browser would break at its hyphens and slashes."""

PLAIN_CODE = re.compile(r"<code>[^<]+</code>")
OPTION = re.compile(r"(?<=[\s>])--[\w-]+")
"""An option, which a browser would break after its two hyphens."""


PICTURE = re.compile(r'<img [^>]*src="([^"]+\.svg)"[^>]*>')


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page whose commands are broken only between words, and whose pictures open alone, to zoom in."""
    html = PICTURE.sub(r'<a href="\1" class="picture">\g<0></a>', html)
    html = PLAIN_CODE.sub(lambda code: OPTION.sub(_keep_whole, code[0]), html)
    return SHELL_BLOCK.sub(lambda block: LONG_WORD.sub(_keep_whole, block[0]), html)


def _keep_whole(word: re.Match[str]) -> str:
    return f'<span class="whole">{word[0]}</span>' if len(word[0]) <= 40 else word[0]


def _commands_page() -> str:
    from noise2text.cli import app
    from noise2text.cli.options import COMMAND_GROUPS, SAME_WORDS

    root: Any = typer.main.get_command(app)
    context = root.make_context("noise2text", [], resilient_parsing=True)
    lines = [
        *("# Commands", "", "Every command and option, as `noise2text COMMAND --help` prints them.", ""),
        *("A word means the same in every command:", "", "| option | what it is |", "|---|---|"),
        *(f"| `{words.replace(', ', '`, `')}` | {meaning} |" for words, meaning in SAME_WORDS.items()),
    ]
    for heading, names in COMMAND_GROUPS.items():
        lines += ["", f"## {heading}"]
        for name in (name for name in names if name in root.commands):
            lines += _command_section(name, root.get_command(context, name), context)
    return "\n".join(lines) + "\n"


def _command_section(name: str, command: Any, parent: Any) -> Iterator[str]:
    """The heading, help text and table of options of one command, or of each command of a group."""
    context = command.context_class(command, info_name=name, parent=parent)
    for inner, inner_command in getattr(command, "commands", {}).items():
        yield from _command_section(f"{name} {inner}", inner_command, context)
    if hasattr(command, "commands"):
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield from [
        "",
        f"### {name}",
        "",
        f"`noise2text {name} {usage}`",
        "",
        _plain_help(command.help or ""),
        "",
    ]
    rows = [row for panel in command.help_rows(context).values() for row in panel]
    yield from ["| option | what it does |", "|---|---|"]
    for option, help_text in rows:
        yield f"| `{_cell(option, code=True)}` | {_cell(help_text)} |"


def _plain_help(text: str) -> str:
    """A help text as Markdown: typer's marks for lines that stay as they are become a code block."""
    blocks = []
    for block in text.replace("\f", "").split("\n\n"):
        if block.startswith("\b"):
            block = "```text\n" + block.removeprefix("\b").strip("\n") + "\n```"
        blocks.append(block.strip())
    return "\n\n".join(blocks)


def _settings_page() -> str:
    from noise2text.core.config import describe
    from noise2text.models.registry import list_recipes

    recipes = list_recipes()
    users: dict[tuple[str, str], list[tuple[str, Any]]] = {}  # name and help → recipes and their defaults
    for recipe in recipes.values():
        for name, value, help_text in describe(recipe.preset()):
            users.setdefault((name, help_text), []).append((recipe.name, value))
    lines = [
        "# Settings",
        "",
        "Every setting of every recipe, with the defaults of the preset that stands for the paper.",
        "Change one with `--set NAME=VALUE`; the part after the dot is enough where no other setting has it.",
        "`noise2text config RECIPE --preset PRESET` prints the values of one preset.",
        *_presets_section(recipes),
    ]
    sections = sorted({name.partition(".")[0] for name, _ in users}, key=_section_order)
    for section in sections:
        lines += [
            "",
            f"## `{section}`",
            "",
            "| setting | what it does | default | recipes |",
            "|---|---|---|---|",
        ]
        for (name, help_text), uses in users.items():
            if name.partition(".")[0] == section:
                lines.append(
                    f"| `{name}` | {_cell(help_text)} | {_defaults(uses)} | {_names(uses, recipes)} |"
                )
    return "\n".join(lines) + "\n"


def _presets_section(recipes: dict[str, Any]) -> Iterator[str]:
    yield from [
        "",
        "## Recipes and presets",
        "",
        "| recipe | presets (the default first) | paper |",
        "|---|---|---|",
    ]
    for recipe in recipes.values():
        names = sorted(recipe.presets, key=lambda name: name != recipe.default_preset)
        yield f"| `{recipe.name}` | {', '.join(f'`{name}`' for name in names)} | {_cell(recipe.paper)} |"


def _section_order(section: str) -> tuple[int, str]:
    order = ["data", "model", "diffusion", "optim", "generation", "run"]
    return (order.index(section) if section in order else len(order), section)


def _defaults(uses: list[tuple[str, Any]]) -> str:
    """The default, or the most frequent ones where recipes differ."""
    values = [str(value) if value != "" else '""' for _, value in uses]
    most = sorted(set(values), key=lambda value: (-values.count(value), value))
    return ", ".join(f"`{_cell(value, code=True)}`" for value in most[:3]) + (", …" if len(most) > 3 else "")


def _names(uses: list[tuple[str, Any]], recipes: dict[str, Any]) -> str:
    """Which recipes have the setting, in few words."""
    names = [name for name, _ in uses]
    missing = [name for name in recipes if name not in names]
    if not missing:
        return "all"
    if len(missing) < 4:
        return "all but " + ", ".join(f"`{name}`" for name in missing)
    if len(names) > 6:
        return f"{len(names)} of {len(recipes)}"
    return ", ".join(f"`{name}`" for name in names)


def _python_page() -> str:
    import noise2text

    lines = [
        "# Python",
        "",
        "The public names of the package, in the order in which a newcomer needs them.",
        "",
    ]
    for name in noise2text.__all__:
        if name in noise2text._MODULES:
            lines += [f"::: noise2text.{noise2text._MODULES[name]}.{name}", ""]
    return "\n".join(lines)


def _cell(text: Any, *, code: bool = False) -> str:
    """Text that fits into a cell of a table; in code no character needs an escape but the bar."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    return line if code else line.replace("<", "&lt;")


class DocstringSections(griffe.Extension):
    """Makes our docstrings readable for griffe: fields are attributes, and doctests are an example."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is None:
            return
        text = re.sub(r"^( *)Fields:$", r"\1Attributes:", obj.docstring.value, flags=re.MULTILINE)
        before, mark, example = text.partition("\n>>> ")
        if mark:
            indented = "\n".join("    " + line for line in (mark.strip("\n") + example).splitlines())
            text = f"{before.rstrip()}\n\nExamples:\n{indented}"
        obj.docstring.value = text
