"""What the tests of acceleration share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def uncompiled() -> Iterator[None]:
    """Functions run as they are written: torch.compile does nothing."""
    with torch.compiler.set_stance("force_eager"):
        yield
