"""The address after --ray may be left out, and what follows is then what it always was."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from noise2text.cli.options import App
from noise2text.cli.ray_options import RayAddress, RayCommand

CASES = [
    (["model", "--ray"], (["model"], "")),
    (["model", "--ray", "--steps", "3"], (["model", "--steps", "3"], "")),
    (["--ray", "model"], (["model"], "")),
    (["--ray", "name=folder", "other"], (["name=folder", "other"], "")),
    (["--ray", "head.cluster:6379", "model"], (["model"], "head.cluster:6379")),
    (["--ray", "auto", "model"], (["model"], "auto")),
    (["--ray=10.0.0.1:6379", "model"], (["model"], "10.0.0.1:6379")),
    (["model"], (["model"], None)),
]


@pytest.mark.parametrize(("arguments", "expected"), CASES)
def test_only_an_address_is_the_value_of_ray(
    arguments: list[str], expected: tuple[list[str], str | None]
) -> None:
    app = App()
    seen = []

    @app.command(cls=RayCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def command(context: typer.Context, **options: Annotated[Any, RayAddress]) -> None:
        seen.append((context.args, RayAddress(options).address))

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert seen == [expected]


@pytest.mark.parametrize("command", ["generate", "distill", "serve"])
def test_the_commands_take_the_option(command: str) -> None:
    from noise2text.cli import app

    help_text = CliRunner().invoke(app, [command, "--help"]).output
    assert "--ray [ADDRESS]" in help_text
