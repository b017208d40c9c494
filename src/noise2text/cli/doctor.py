"""`noise2text doctor`: check the installation."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from noise2text.cli.folding import print_row
from noise2text.cli.options import DeviceOption, app

__all__ = ["doctor", "print_facts"]


@app.command()
def doctor(device: DeviceOption = None) -> None:
    """Check what is installed, and how fast it is.

    It shows versions, devices, the speed of the shipped model, and the extras that are missing, in about ten
    seconds.
    """
    from noise2text.commands.doctor import examine

    print_facts(examine(device=device))


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print each fact beside what it is about, as soon as it is known."""
    for name, fact in facts:
        print_row(name, fact, column=12)
        sys.stdout.flush()  # the next fact may take seconds
