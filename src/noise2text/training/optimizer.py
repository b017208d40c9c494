"""The optimizer of every recipe: AdamW, fused into one kernel on a GPU."""

from __future__ import annotations

import torch
from torch import nn

from noise2text.training.config import OptimConfig

__all__ = ["build_adamw"]


def build_adamw(module: nn.Module, config: OptimConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW over the trained parameters of a module, which are on the device."""
    return torch.optim.AdamW(
        [parameter for parameter in module.parameters() if parameter.requires_grad],
        lr=config.lr,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=device.type == "cuda",
    )
