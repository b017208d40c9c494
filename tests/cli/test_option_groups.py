"""A command takes the values of a group from its options, and help has one heading for them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.options import App


class Files(OptionGroup):
    """Files."""

    panel = "The files"
    out: Annotated[str, typer.Option(help="Where to.")]
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False


def make_app(seen: list[object]) -> App:
    """An application with one command, which records its parameters."""
    app = App(rich_markup_mode=None, add_completion=False)

    @app.command()
    def copy(
        name: Annotated[str, typer.Argument(help="What.")],
        times: Annotated[int, typer.Option(help="How often.")] = 1,
        **options: Annotated[Any, Files],
    ) -> None:
        """Copy it."""
        files = Files(options)
        seen[:] = [name, vars(files), files.is_default(), times]

    return app


def test_a_command_takes_a_group_as_one_value() -> None:
    seen: list[object] = []
    result = CliRunner().invoke(make_app(seen), ["this", "--out", "there", "--times", "3", "--quiet"])
    assert result.exit_code == 0, result.output
    assert seen == ["this", {"out": "there", "quiet": True}, False, 3]
    assert CliRunner().invoke(make_app(seen), ["this", "--out", "there"]).exit_code == 0
    assert seen == ["this", {"out": "there", "quiet": False}, False, 1]


def test_an_option_without_a_default_is_required() -> None:
    result = CliRunner().invoke(make_app([]), ["this"])
    assert result.exit_code == 2
    assert "--out" in result.output


def test_help_lists_the_options_of_a_group_under_its_heading() -> None:
    shown = CliRunner().invoke(make_app([]), ["--help"]).output
    heading, options = shown.index("The files:"), shown.index("\nOptions:")
    assert heading < shown.index("--out") < shown.index("--quiet") < options < shown.index("--times")
