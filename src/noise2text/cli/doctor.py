"""`noise2text doctor`: check the installation."""

from __future__ import annotations

import sys

from noise2text.cli.folding import print_row
from noise2text.cli.options import DeviceOption, app

__all__ = ["doctor"]


@app.command()
def doctor(device: DeviceOption = None) -> None:
    """Check what is installed, and how fast it is.

    It shows versions, devices, the speed of the shipped model, and the extras that are missing, in about ten
    seconds.
    """
    from noise2text.commands.doctor import examine

    for name, fact in examine(device=device):
        print_row(name, fact, column=12)
        sys.stdout.flush()  # the next fact may take seconds
