"""How an accelerated module takes the place of a plain one: the object stays, its class changes.

Parameters, buffers, hooks and state-dict keys stay what they are, and so do references to the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import nn

__all__ = ["swap_classes"]


def swap_classes(root: nn.Module, accelerated: Mapping[type[nn.Module], type[nn.Module]]) -> None:
    """Give every module within the root, and the root, the accelerated class of its plain one.

    Accelerated classes extend the plain class and call `super()` for what they leave as it is, so a module
    can have several of them; the last that it was given comes first.
    """
    for module in root.modules():
        for plain, fast in accelerated.items():
            if isinstance(module, plain) and not isinstance(module, fast):
                module.__class__ = _combine(fast, type(module))


_COMBINED: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}


def _combine(fast: type[nn.Module], current: type[nn.Module]) -> type[nn.Module]:
    """The accelerated class, for a module that is now of the current one; one for each pair."""
    if fast.__base__ is current:
        return fast
    if (fast, current) not in _COMBINED:
        combined = type(f"{fast.__name__}{current.__name__}", (fast, current), {})
        _COMBINED[fast, current] = cast(type[nn.Module], combined)
    return _COMBINED[fast, current]
