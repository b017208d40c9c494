"""The optimiser of every recipe: AdamW over what is trained, in one kernel where a GPU can."""

from __future__ import annotations

import torch
from torch import nn

from noise2text.training.config import OptimConfig

__all__ = ["build_adamw"]


def build_adamw(module: nn.Module, config: OptimConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW over the module's trained parameters, which are on the device."""
    return torch.optim.AdamW(
        [parameter for parameter in module.parameters() if parameter.requires_grad],
        lr=config.lr,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=device.type == "cuda",
    )
