"""`noise2text chat`: answer texts one by one."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import EXTRA_OPTIONS, DeviceOption, PrecisionOption, app
from noise2text.cli.output import print_text
from noise2text.core.errors import Problem

__all__ = ["chat"]


@app.command(context_settings=EXTRA_OPTIONS)
def chat(
    context: typer.Context,
    model: Annotated[
        Path, typer.Argument(help="A model folder, or the name of a shipped model such as de-en.")
    ],
    n: Annotated[int, typer.Option("--n", help="Different texts per text, best first.")] = 1,
    device: DeviceOption = None,
    precision: PrecisionOption = "auto",
) -> None:
    """Answer texts one by one, at a prompt.

    :help lists the commands of the prompt; Ctrl-D quits. Every generation setting of the model is an option,
    e.g. --steps 10.
    """
    from noise2text.commands.chat import Chat
    from noise2text.core.command_line import parse_options
    from noise2text.models.folder import load

    if sys.stdin is None:
        raise Problem("There is no standard input to read texts from: give it, or use noise2text generate.")
    conversation = Chat(load(model, device=device, precision=precision), parse_options(context.args), n=n)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # bad bytes are refused with a text
    at_terminal = sys.stdin.isatty()
    if at_terminal:
        print(f"{model} is ready. Write a text, or :help; Ctrl-D quits.")
    try:
        for lines in conversation.answer_all(_read_lines("> " if at_terminal else "")):
            print_text("\n".join(lines))
    except KeyboardInterrupt:
        print()


def _read_lines(prompt: str) -> Iterator[str]:
    """The lines that are written at the prompt, until Ctrl-D."""
    while True:
        try:
            yield input(prompt)
        except EOFError:
            if prompt:
                print()
            return
